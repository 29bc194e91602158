"""Doing what was decided: each open task is tried, and how that ended is kept, so that nothing is lost or done twice.

A crash between a deed and its mark leads to a second attempt at the next tick; every deed may be repeated.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol

from spanfit.queue.state.store import QueueStore
from spanfit.queue.state.tasks import Outcome, Task, is_current


@dataclass(frozen=True, slots=True, kw_only=True)
class Deed:
    """What became of a task.

    Attributes
    ----------
    task : Task
    outcome : Outcome
    text : str
        What was run, what a person is to run, why it failed or what it waits for.
    is_news : bool
        False where the last attempt ended the same way.
    """

    task: Task
    outcome: Outcome
    text: str
    is_news: bool = True


class Actuator(Protocol):
    """Whoever does what was decided."""

    def carry_out(self, task: Task) -> Deed:
        """Do a task, which may have been done before, and return how that ended."""
        ...


def act(store: QueueStore, actuator: Actuator, *, with_told: bool = False) -> Iterator[Deed]:
    """Try every open task in its order, keep how it ended and yield it; tasks that were overtaken are dropped.

    The caller is alone in ``store.acting()``. What a person is told is kept as told once the caller asks for the next
    deed, so that a telling that was cut short is repeated.

    Parameters
    ----------
    store : QueueStore
    actuator : Actuator
    with_told : bool
        Also try what a person was told to do, who may have done it or not.
    """
    for entry in store.open_tasks(with_told=with_told):
        if is_current(entry.task, store.state()):
            deed = actuator.carry_out(entry.task)
        else:
            deed = Deed(task=entry.task, outcome=Outcome.DROPPED, text="overtaken by a later decision")
        deed = replace(deed, is_news=(deed.outcome, deed.text) != (entry.outcome, entry.said))
        is_told = deed.outcome is Outcome.TOLD
        if not is_told and (deed.is_news or deed.outcome is Outcome.FAILED):
            store.settle(entry.task_id, deed.outcome, deed.text)
        yield deed
        if is_told and deed.is_news:
            store.settle(entry.task_id, deed.outcome, deed.text)

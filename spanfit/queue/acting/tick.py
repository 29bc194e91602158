"""The parts of a tick before it acts: what happened is found, kept and decided about, or foreseen [edge: files].

From its look at the world until it has acted, a tick is alone in ``QueueStore.acting``: what another tick saw before
would be told to the queue after what this one saw.
"""

from collections.abc import Callable

from spanfit.queue.acting.deeds import Actuator, Deed
from spanfit.queue.acting.happenings import Difference, Happening, Memory, events_of
from spanfit.queue.acting.seen import Seen
from spanfit.queue.model.events import Ticked
from spanfit.queue.model.jobs import Forecast, QueueJob
from spanfit.queue.state.store import QueueStore, Step
from spanfit.queue.state.tasks import is_current


def difference_of(
    store: QueueStore, seen: Seen | None, now_s: float, predict: Callable[[QueueJob], Forecast] | None = None
) -> Difference:
    """Return what happened since the last tick: as seen in Slurm, or that time went on."""
    if seen is None:
        return Difference(happenings=(Happening(event=Ticked(at_s=now_s)),))
    memory = Memory(
        links=store.links(), deeds=store.last_deeds(), cancelled=store.cancelled(), reserved=store.ever_reserved()
    )
    return events_of(seen, store.state(), memory, now_s, predict)


def note(store: QueueStore, difference: Difference) -> tuple[Step, ...]:
    """Keep what has happened, decide about it, and keep what else is to be done."""
    for job_id, outside_id in difference.links.items():
        store.link(job_id, outside_id)
    steps = tuple(store.step(each.event, is_seen=True, link=each.link) for each in difference.happenings)
    known = {(entry.task.kind, entry.task.job_id) for entry in store.open_tasks(with_told=True)}
    for task in difference.tasks:
        if (task.kind, task.job_id) not in known:
            store.add_task(task)
    return steps


def foresee(
    store: QueueStore, difference: Difference, teller: Actuator, *, with_told: bool
) -> tuple[tuple[Step, ...], tuple[Deed, ...]]:
    """Return what a tick would decide and do, in the words of an actuator that only tells; nothing is kept."""
    steps = store.foresee(difference.events)
    open_tasks = [entry.task for entry in store.open_tasks(with_told=with_told)]
    new = [task for step in steps for task in step.tasks]
    after = steps[-1].after
    current = [task for task in (*open_tasks, *new, *difference.tasks) if is_current(task, after)]
    return steps, tuple(teller.carry_out(task) for task in current)

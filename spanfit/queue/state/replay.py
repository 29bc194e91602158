"""The journal played again: the same events must give the same decisions and the state that is kept; pure."""

from collections.abc import Iterable, Iterator

from spanfit.queue.model.jobs import Chooser
from spanfit.queue.model.state import QueueState
from spanfit.queue.state.journal import Record, is_news
from spanfit.queue.state.store import Decide


def differences(
    opening: QueueState, records: Iterable[Record], kept: QueueState, decide: Decide, choose: Chooser
) -> Iterator[str]:
    """Yield, in words, where a journal does not lead to what was decided then or to the state that is kept."""
    state = opening
    for record in records:
        after, decisions = decide(state, record.event, record.rules, choose)
        news = tuple(decision for decision in decisions if is_news(decision, state))
        if news != record.decisions:
            yield f"event {record.event_id}: gave {len(record.decisions)} decisions then and {len(news)} others now"
        state = after
    for name in ("now_s", "up", "waiting", "running", "reservations"):
        if getattr(state, name) != getattr(kept, name):
            yield f"{name}: the kept state is not what the events lead to"

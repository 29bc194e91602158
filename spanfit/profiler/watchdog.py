"""Whether a world still moves, and which ranks hold it up: pure, from heartbeats and process states.

A world moves as long as any rank begins a new phase. Ranks wait for each other between phases, so one that does not
arrive holds up all, and those that wait time out first: who ended first says nothing, who is behind does.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from spanfit.bench.heartbeat import Beat, Phase

START_LIMIT_S = 60.0
"""How much longer than a phase the start may take: processes, imports, the meeting of all ranks."""
LIMIT_MARGIN_S = 15.0
"""How much later than the watchdog the library's own limit strikes, so that ranks are there to be asked."""
_HALTED = {"T": "is stopped (process state T)", "t": "is stopped by a debugger (process state t)"}
_BLOCKED = {"D": "hangs in the kernel (process state D)", "Z": "has ended (process state Z)"}


class Watchdog:
    """Remembers when a world last moved.

    Parameters
    ----------
    limit_s : float
        The longest that a phase of a case may take [s].
    """

    def __init__(self, limit_s: float, started_s: float) -> None:
        self.limit_s = limit_s
        self.moved_s = started_s
        self.seen: tuple[int, dict[int, tuple[int, int]]] = (0, {})

    def is_stuck(self, beats: Mapping[int, Beat], ncases: int, now_s: float) -> bool:
        """Return whether no rank has begun a phase, nor a case ended, for longer than the limit.

        Times are of one clock; ``ncases`` counts the cases that ended, for ranks that give no heartbeat.
        """
        seen = (ncases, {rank: beat.place for rank, beat in beats.items()})
        if seen != self.seen:
            self.seen, self.moved_s = seen, now_s
        has_begun = ncases > 0 or any(beat.position >= 0 for beat in beats.values())
        return now_s - self.moved_s > self.limit_s + (0.0 if has_begun else START_LIMIT_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspects:
    """The ranks that hold a world up, and how that shows; no rank where nothing tells them apart."""

    ranks: tuple[int, ...]
    evidence: str


def find_suspects(
    nranks: int, beats: Mapping[int, Beat], states: Mapping[int, str], told: Collection[int] = ()
) -> Suspects:
    """Return who holds a stuck world up.

    Parameters
    ----------
    nranks : int
    beats : mapping of int to Beat
        The last beat of each rank that has given one.
    states : mapping of int to str
        The kernel's letter for the state of each rank's process, where it is known.
    told : collection of int
        The ranks that wrote their own stacks when the phase outlasted its limit.

    Notes
    -----
    A stopped process is to blame whatever the heartbeats say. Else those behind all others are, whose process may hang
    in the kernel or be gone. Where all are in one phase, a rank that wrote no stacks while others did does not run; a
    host that is cut off from the network alone shows in none of these.
    """
    if halted := _in_state(states, _HALTED):
        return halted
    silent = tuple(rank for rank in range(nranks) if rank not in beats)
    if silent and beats:
        return Suspects(ranks=silent, evidence="never began, while the others wait")
    behind = _behind(beats)
    if behind:
        last, front = beats[behind[0]], max(beats.values(), key=lambda beat: beat.place)
        return Suspects(ranks=behind, evidence=f"did not get past {_where(last)}, while others wait in {_where(front)}")
    if blocked := _in_state(states, _BLOCKED):
        return blocked
    mute = tuple(rank for rank in range(nranks) if rank not in told) if told else ()
    if mute:
        return Suspects(
            ranks=mute, evidence="wrote no stacks when its time was over, while others did: it does not run"
        )
    return Suspects(ranks=(), evidence=_nobody(beats))


def _in_state(states: Mapping[int, str], telling: Mapping[str, str]) -> Suspects | None:
    for state, meaning in telling.items():
        if ranks := tuple(rank for rank, found in states.items() if found == state):
            return Suspects(ranks=ranks, evidence=meaning)
    return None


def _behind(beats: Mapping[int, Beat]) -> tuple[int, ...]:
    places = {beat.place for beat in beats.values()}
    if len(places) < 2:
        return ()
    return tuple(rank for rank, beat in beats.items() if beat.place == min(places))


def _where(beat: Beat) -> str:
    return "the start" if beat.phase is Phase.START else f"phase {beat.phase} of visit {beat.position}"


def _nobody(beats: Mapping[int, Beat]) -> str:
    if not beats:
        return "no rank has begun"
    return f"every rank is in {_where(next(iter(beats.values())))}, so heartbeats do not tell who holds up the others"


def name_ranks(ranks: Sequence[int], node_names: Sequence[str], ngpus_per_node: int) -> str:
    """Return ranks with their hosts in words, such as ``rank 2 on m1l0h0 and rank 3 on m1l0h1``."""
    return " and ".join(f"rank {rank} on {node_names[rank // ngpus_per_node]}" for rank in ranks)

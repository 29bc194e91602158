"""One look at the queue: who starts now, and for whom nodes are kept free.

Every policy looks at waiting jobs in an order and starts those that fit; they differ in the order and in which blocked
jobs are protected. A protected job gets a shadow: the nodes and the time at which it can start if all ends as expected.
Later jobs may use them only if they are predicted to end before.
"""

import math
from collections.abc import Iterator
from enum import StrEnum
from itertools import accumulate
from typing import NamedTuple

from spanfit.queue.model.jobs import QueueJob, Waiting
from spanfit.queue.model.nodes import NodeSet
from spanfit.queue.model.rules import PolicyName
from spanfit.queue.model.state import QueueKey
from spanfit.queue.policy.admission import Branch, Zone, admit
from spanfit.queue.policy.desk import Desk
from spanfit.queue.policy.occupancy import counted_s, suitable
from spanfit.queue.policy.slots import Timeline, Window, prefer
from spanfit.queue.policy.words import clock, nodes_in_words


class Protected(StrEnum):
    """Which blocked jobs get a shadow."""

    NOBODY = "nobody"
    AGED_HEAD = "the longest waiting of those that are aged"
    HEAD = "the first"
    ALL = "all"


PROTECTED = {
    PolicyName.SPANFIT: Protected.AGED_HEAD,
    PolicyName.PAPER: Protected.NOBODY,
    PolicyName.CONSERVATIVE: Protected.ALL,
    PolicyName.EASY: Protected.HEAD,
    PolicyName.PACKING: Protected.NOBODY,
}
"""Whom each policy protects."""

RESERVING = frozenset({PolicyName.SPANFIT, PolicyName.PAPER})
"""Policies under which announced jobs get reservations; under the others they are jobs like others once they arrive."""


def zones_of(desk: Desk) -> list[Zone]:
    """Return the zones of all reservations by job id; those for preemptable jobs are closed: these stop nobody."""
    return [
        Zone(
            job_id=each.job_id,
            nodes=each.nodes,
            start_s=each.start_s,
            end_s=each.end_s,
            is_open=not desk.waiting[each.job_id].job.is_preemptable,
        )
        for _, each in sorted(desk.reservations.items())
    ]


def look(desk: Desk) -> list[Zone]:
    """Start what can start now, and return the zones that reservations and shadows made."""
    zones = zones_of(desk)
    protection = PROTECTED[desk.rules.policy]
    naged, order = in_order(desk, depth_of(desk))
    nshadows = {Protected.NOBODY: 0, Protected.AGED_HEAD: min(naged, 1), Protected.HEAD: 1}.get(protection, len(order))
    least = _least_from(order)
    shadows = Shadows(desk)
    now_s, room = desk.now_s, room_of(desk, zones)
    for place, (_, _, job_id, nnodes, lasts_s, is_preemptable) in enumerate(order):
        if room.free < least[place]:
            break
        may_start = nnodes <= room.noutside or is_preemptable or now_s + lasts_s < room.last_zone_s
        if may_start and nnodes <= room.free and try_job(desk, desk.waiting[job_id], zones):
            shadows.take_now(desk.running[job_id].nodes, now_s + lasts_s)
            room = room_of(desk, zones)
        elif nshadows and (place < naged or protection is not Protected.AGED_HEAD):
            nshadows -= 1
            shadow = shadows.of(desk.waiting[job_id])
            if shadow is None and protection is Protected.AGED_HEAD:
                shadow = gathered(desk, desk.waiting[job_id].job, zones)
            if shadow is not None:
                zones.append(shadow)
                room = room.without(shadow)
    return zones


def depth_of(desk: Desk) -> int:
    """Return how many jobs are looked at in one pass: as many as the rules say, all by Algorithm 1."""
    return len(desk.queue) if desk.rules.policy is PolicyName.PAPER else desk.rules.depth


def gathered(desk: Desk, job: QueueJob, zones: list[Zone]) -> Zone | None:
    """Return nodes that are kept for a job from now on, free ones first, where no time can be told for its start.

    So that what becomes free is gathered until it suffices. None where too few nodes outside zones are in service.
    """
    outside = desk.up & suitable(job, desk.ground)
    for zone in zones:
        outside &= ~zone.nodes
    if outside.bit_count() < job.nnodes:
        return None
    held = prefer(desk.free, outside, job.nnodes)
    return Zone(job_id=job.job_id, nodes=held, start_s=desk.now_s, end_s=math.inf, is_open=False)


def _least_from(order: list[QueueKey]) -> list[int]:
    """Return, for each place in an order, the fewest nodes that a job from there on asks for."""
    least = list(accumulate((key[3] for key in reversed(order)), min))
    least.reverse()
    return least


class Room(NamedTuple):
    """What a job can hope for: free nodes, those of them outside zones, when the last zone begins."""

    free: int
    outside: NodeSet
    noutside: int
    last_zone_s: float

    def without(self, zone: Zone) -> "Room":
        """Return what is left beside one more zone."""
        outside = self.outside & ~zone.nodes
        return Room(self.free, outside, outside.bit_count(), max(self.last_zone_s, zone.start_s))


def room_of(desk: Desk, zones: list[Zone]) -> Room:
    """Return what is free now."""
    outside, last_zone_s = desk.free, -math.inf
    for zone in zones:
        outside &= ~zone.nodes
        last_zone_s = max(last_zone_s, zone.start_s)
    return Room(desk.free.bit_count(), outside, outside.bit_count(), last_zone_s)


def in_order(desk: Desk, depth: int) -> tuple[int, list[QueueKey]]:
    """Return how many jobs are aged, and the jobs to look at, aged ones first, up to a number."""
    left_out: set[str] = set()
    if desk.rules.policy in RESERVING:
        left_out.update(job_id for job_id in desk.announced if desk.waiting[job_id].is_here)
    aged: list[QueueKey] = []
    if desk.rules.policy is PolicyName.SPANFIT:
        aged = [key for key in _aged(desk) if key[2] not in left_out]
        left_out.update(key[2] for key in aged)
    rest = desk.queue[: depth + len(left_out)]
    if left_out:
        rest = [key for key in rest if key[2] not in left_out]
    return len(aged), (aged + rest)[:depth]


def _aged(desk: Desk) -> Iterator[QueueKey]:
    limit_s = desk.now_s - desk.rules.ageing_s
    for since_s, key in desk.ages:
        if since_s > limit_s:
            return
        yield key


def try_job(desk: Desk, each: Waiting, zones: list[Zone]) -> bool:
    """Start a job if it may have enough nodes now; return whether it runs."""
    job = each.job
    end_s = desk.now_s + counted_s(job, each.forecast, desk.rules)
    branch, allowed = admit(job, end_s, desk.free & suitable(job, desk.ground), zones)
    if branch is Branch.DELAY:
        return False
    order = desk.choose(job, desk.ground, allowed)
    if not order:
        return False
    desk.start(job.job_id, order, _why_start(branch, job.nnodes, allowed, end_s, zones))
    return True


def _why_start(branch: Branch, nnodes: int, allowed: NodeSet, end_s: float, zones: list[Zone]) -> str:
    needs = f"needs {nodes_in_words(nnodes)}: {allowed.bit_count()} free"
    if branch is Branch.PREEMPTABLE:
        return f"{needs}; preemptable"
    if branch is Branch.OUTSIDE:
        return f"{needs} outside zones" if zones else needs
    first = min((zone for zone in zones if zone.start_s > end_s), key=lambda zone: zone.start_s)
    return (
        f"{needs} with the zone of {first.job_id}; predicted end {clock(end_s)}, before it begins at "
        f"{clock(first.start_s)}"
    )


def _window(zone: Zone) -> Window:
    return Window(nodes=zone.nodes, start_s=zone.start_s, end_s=zone.end_s)


class Shadows:
    """Makes shadows for blocked jobs, one after the other, each around those before it.

    Parameters
    ----------
    desk : Desk
        As it stands when the first shadow is asked for.
    """

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.timelines: dict[bool, Timeline] = {}

    def _timeline(self, is_preemptable: bool) -> Timeline:
        """Return the timeline for jobs that may not use zones of announced jobs, or for those that may."""
        if not self.timelines:
            desk, zones = self.desk, zones_of(self.desk)
            ends = [(end_s, desk.running[job_id].nodes) for end_s, job_id in desk.ends]
            self.timelines[False] = Timeline(desk.now_s, desk.free, ends, map(_window, zones))
            self.timelines[True] = self.timelines[False]
            if zones:
                closed = (_window(zone) for zone in zones if not zone.is_open)
                self.timelines[True] = Timeline(desk.now_s, desk.free, ends, closed)
        return self.timelines[is_preemptable]

    def take_now(self, nodes: NodeSet, end_s: float) -> None:
        """Take note that a job started."""
        self._take(Window(nodes=nodes, start_s=self.desk.now_s, end_s=end_s))

    def _take(self, window: Window) -> None:
        for is_preemptable, timeline in self.timelines.items():
            if not is_preemptable or self.desk.reservations:
                timeline.take(window)

    def of(self, each: Waiting) -> Zone | None:
        """Return the nodes and time at which a job can start if all ends as expected; None where never.

        Nodes that are busy now are preferred, so that free ones stay so for others.
        """
        desk, job = self.desk, each.job
        lasts_s = counted_s(job, each.forecast, desk.rules)
        timeline = self._timeline(job.is_preemptable)
        at_s, nodes = timeline.earliest(job.nnodes, lasts_s, desk.up & suitable(job, desk.ground))
        if not nodes:
            return None
        held = prefer(~desk.free, nodes, job.nnodes)
        self._take(Window(nodes=held, start_s=at_s, end_s=at_s + lasts_s))
        return Zone(job_id=job.job_id, nodes=held, start_s=at_s, end_s=at_s + lasts_s, is_open=False)

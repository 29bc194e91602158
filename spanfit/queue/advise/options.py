"""Whether a job gains by waiting for a better placement: when one comes free, and what it saves over the job's length.

Nodes that come free are counted on to be held for the job, as a reservation holds them; nodes that are reserved for
others are not counted on at all. What is not known is drawn: when running jobs end, how long the job runs, and what
spreads cost. An option is a rule to stop waiting: start as soon as the step is no longer than so much.
"""

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import or_

import numpy as np
import numpy.typing as npt

from spanfit.errors import InfeasibleError
from spanfit.queue.advise.costs import Costs
from spanfit.queue.advise.ends import drawn_end_s, law_of
from spanfit.queue.model.jobs import Chooser, Forecast, QueueJob
from spanfit.queue.model.nodes import NodeSet
from spanfit.queue.model.state import QueueState
from spanfit.queue.simulate.ledger import grid_spreads
from spanfit.results.schema import Estimate

Floats = npt.NDArray[np.float64]

_SAME = 1e-9
LEAST_GAIN = 0.01
"""A placement is worth a look where its step is shorter by this share than that of the option before."""
MOST_OPTIONS = 5
"""Placements that are told; those that save least are left out."""
MOST_LOOKS, LEAST_DRAWS = 300, 20
"""Drawing ends when the chooser and the costs were asked about so many sets of nodes, but not before so many draws."""
_EXPECTED_LOOKS, _COARSE_LOOKS = 40, 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One way to go: start as soon as a placement at least this good is free.

    Attributes
    ----------
    minipods, dp_spread, pp_spread : int
        Of the placement that is expected; the spreads are 0 for a job without a grid.
    step : Estimate
        Its step over that of the tightest placement.
    wait_s : Estimate
        Until it can start: mean over draws with the interval that holds 95% of them [s].
    finish_s : Estimate
        Until it has ended, from now on [s].
    saves_s : Estimate or None
        By how much sooner it ends than under the first option, draw by draw; None for the first [s].
    wins : float
        Share of draws in which no other option ends sooner.
    """

    minipods: int
    dp_spread: int
    pp_spread: int
    step: Estimate
    wait_s: Estimate
    finish_s: Estimate
    saves_s: Estimate | None
    wins: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What is known of waiting.

    Attributes
    ----------
    job_id : str
    options : tuple of Option
        The one that starts soonest first.
    best : int or None
        Index of the option that ends soonest in the mean, and that no other beats in more than 2.5% of draws; None:
        cannot tell.
    ndraws : int
        Draws that were made; see MOST_LOOKS.
    remarks : tuple of str
        What limits the answer, a sentence each.
    """

    job_id: str
    options: tuple[Option, ...]
    best: int | None
    ndraws: int
    remarks: tuple[str, ...]


@dataclass(slots=True, kw_only=True)
class _Place:
    """A placement and its step; as a rule it means: wait until a step is at most as long."""

    step: float
    order: tuple[int, ...]
    draws: Floats | None = None


def advise(
    job: QueueJob,
    forecast: Forecast,
    state: QueueState,
    costs: Costs,
    choose: Chooser,
    *,
    quantile: float,
    ndraws: int,
    seed: int,
) -> Advice:
    """Return the options of a job and which of them is best, if that can be told.

    Parameters
    ----------
    job : QueueJob
    forecast : Forecast
        How long it runs in the tightest placement that is thinkable.
    state : QueueState
    costs : Costs
        With as many draws.
    choose : Chooser
    quantile : float
        Of upper forecasts.
    ndraws : int
        The most draws that are made.
    seed : int

    Raises
    ------
    InfeasibleError
        If the nodes would not suffice even if all running jobs had ended.
    """
    rng = np.random.default_rng(seed)
    places = _Places(job, state, costs, choose)
    middles = [drawn_end_s(run, state.now_s, quantile, 0.5) for run in state.running.values()]
    rules = _rules(places, _timeline(state, middles))
    if not rules:
        usable = places.usable.bit_count()
        raise InfeasibleError(
            f"job {job.job_id} asks for {job.nnodes} nodes; {usable} are in service, suit it and are not reserved for "
            "others, so that waiting does not help"
        )
    at = rng.uniform(size=(ndraws, len(state.running)))
    law, lengths = law_of(forecast, quantile), rng.uniform(size=ndraws)
    runtimes_s = np.array([law.draw_s(float(share)) for share in lengths])
    waits_s, steps = _drawn(places, rules, state, quantile, at)
    finishes_s = waits_s + runtimes_s[: len(waits_s), np.newaxis] * steps
    return Advice(
        job_id=job.job_id,
        options=tuple(_options(places, rules, waits_s, steps, finishes_s)),
        best=_best(finishes_s),
        ndraws=len(waits_s),
        remarks=costs.remarks([rule.order for rule in rules]),
    )


_Timeline = Sequence[tuple[float, NodeSet]]
"""Times from now on [s], and the nodes that are free from then on."""


def _timeline(state: QueueState, ends_s: Sequence[float]) -> _Timeline:
    """Return when which nodes are free if running jobs end at these times; the first entry is now."""
    taken = 0
    for run in state.running.values():
        taken |= run.nodes
    ended = sorted((end_s, run.nodes) for end_s, run in zip(ends_s, state.running.values(), strict=True))
    free = accumulate((nodes for _, nodes in ended), or_, initial=state.up & ~taken)
    return list(zip((0.0, *(end_s - state.now_s for end_s, _ in ended)), free, strict=True))


class _Places:
    """Placements of a job on free nodes; one look for all sets with as many nodes in each minipod."""

    def __init__(self, job: QueueJob, state: QueueState, costs: Costs, choose: Chooser) -> None:
        self.job, self.ground, self.costs, self._choose = job, state.ground, costs, choose
        reserved = 0
        for each in state.reservations.values():
            reserved |= 0 if each.job_id == job.job_id else each.nodes
        suitable = state.ground.everything if job.gpu_model is None else state.ground.of_model(job.gpu_model)
        self.usable = state.up & suitable & ~reserved
        self._known: dict[tuple[int, ...], _Place] = {}

    @property
    def nlooks(self) -> int:
        """How many sets of nodes the chooser was asked about."""
        return len(self._known)

    def first_with_nodes(self, timeline: _Timeline) -> int:
        """Return the first moment with as many nodes as the job asks for, else one beyond the last."""
        return bisect_left(timeline, self.job.nnodes, key=lambda moment: (moment[1] & self.usable).bit_count())

    def on(self, free: NodeSet) -> "_Place":
        """Return the placement that the chooser makes; its step is infinite where it makes none."""
        allowed = free & self.usable
        key = tuple((allowed & mask).bit_count() for mask in self.ground.masks)
        if key not in self._known:
            order = self._choose(self.job, self.ground, allowed)
            self._known[key] = _Place(order=order, step=self.costs.best_guess(order) if order else math.inf)
        return self._known[key]

    def drawn(self, place: "_Place") -> Floats:
        """Return the draws of a placement's step."""
        if place.draws is None:
            place.draws = self.costs.draws(place.order)
        return place.draws


def _rules(places: _Places, timeline: _Timeline) -> list[_Place]:
    """Return what is worth a look: each better placement on the expected way, the soonest first.

    Of many moments, as many as are to be looked at are taken evenly; of many placements, those are left out that
    shorten the step least against the one before.
    """
    first = places.first_with_nodes(timeline)
    found: list[_Place] = []
    for index in _spread_over(first, len(timeline) - 1, _EXPECTED_LOOKS):
        place = places.on(timeline[index][1])
        if place.order and (not found or place.step < found[-1].step * (1 - LEAST_GAIN)):
            found.append(place)
    while len(found) > MOST_OPTIONS:
        inner = range(1, len(found) - 1)
        del found[min(inner, key=lambda index: found[index - 1].step - found[index].step)]
    return found


def _spread_over(first: int, last: int, most: int) -> list[int]:
    """Return at most so many whole numbers from ``first`` to ``last``, with both of them.

    >>> _spread_over(3, 12, 4), _spread_over(3, 5, 4), _spread_over(3, 2, 4)
    ([3, 6, 9, 12], [3, 4, 5], [])
    """
    if last - first < most:
        return list(range(first, last + 1))
    return [first + (last - first) * index // (most - 1) for index in range(most)]


def _drawn(
    places: _Places, rules: Sequence[_Place], state: QueueState, quantile: float, at: Floats
) -> tuple[Floats, Floats]:
    """Return the waits [s] and the steps of each draw and rule, of shape (ndraws, nrules).

    Draws end early where the looks are used up.
    """
    waits_s: list[list[float]] = []
    steps: list[list[float]] = []
    runs = list(state.running.values())
    for draw, shares in enumerate(at.tolist()):
        if draw >= LEAST_DRAWS and places.nlooks >= MOST_LOOKS:
            break
        ends_s = [drawn_end_s(run, state.now_s, quantile, share) for run, share in zip(runs, shares, strict=True)]
        timeline = _timeline(state, ends_s)
        found = [_first(places, timeline, rule.step if index else math.inf) for index, rule in enumerate(rules)]
        waits_s.append([wait_s for wait_s, _ in found])
        steps.append([float(places.drawn(place)[draw]) for _, place in found])
    return np.array(waits_s), np.array(steps)


def _first(places: _Places, timeline: _Timeline, step: float) -> tuple[float, _Place]:
    """Return when a placement whose step is at most so long is free [s], else the last there is.

    Some moments are looked at one after the other, since the chooser may do worse with more nodes; the time since the
    one before is searched by halves.
    """

    def is_good(index: int) -> bool:
        place = places.on(timeline[index][1])
        return bool(place.order) and place.step <= step + _SAME

    first, last = places.first_with_nodes(timeline), len(timeline) - 1
    before, high = first - 1, last
    for index in _spread_over(first, last, _COARSE_LOOKS):
        if index == last or is_good(index):
            high = index
            break
        before = index
    while high - before > 1:
        middle = (before + high) // 2
        before, high = (before, middle) if is_good(middle) else (middle, high)
    return timeline[high][0], places.on(timeline[high][1])


def _options(
    places: _Places, rules: Sequence[_Place], waits_s: Floats, steps: Floats, finishes_s: Floats
) -> Iterator[Option]:
    soonest = finishes_s.min(axis=1)
    for index, rule in enumerate(rules):
        minipods = tuple(places.ground.minipods[node] for node in rule.order)
        dp_spread, pp_spread = grid_spreads(places.job, minipods)
        yield Option(
            minipods=len(set(minipods)),
            dp_spread=dp_spread,
            pp_spread=pp_spread,
            step=_over(steps[:, index]),
            wait_s=_over(waits_s[:, index]),
            finish_s=_over(finishes_s[:, index]),
            saves_s=_over(finishes_s[:, 0] - finishes_s[:, index]) if index else None,
            wins=float((finishes_s[:, index] <= soonest + _SAME).mean()),
        )


def _over(draws: Floats) -> Estimate:
    """Return the mean over draws and what holds 95% of them."""
    low, high = np.quantile(draws, (0.025, 0.975))
    mean = float(draws.mean())
    return Estimate(value=mean, ci_low=min(mean, float(low)), ci_high=max(mean, float(high)))


def _best(finishes_s: Floats) -> int | None:
    """Return the option that no other beats in more than 2.5% of draws, and that ends sooner in the mean; else None."""
    means_s = finishes_s.mean(axis=0)
    best = int(means_s.argmin())
    gaps = np.delete(finishes_s, best, axis=1) - finishes_s[:, [best]]
    is_clear = (np.quantile(gaps, 0.025, axis=0) >= -_SAME) & (gaps.mean(axis=0) > _SAME)
    return best if bool(is_clear.all()) else None

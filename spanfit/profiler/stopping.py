"""When a campaign has measured enough: pure decisions over what the launches so far have written.

A case goes on until the interval of its time is as narrow as asked. Looking after every launch and stopping at the
first that looks good picks the moments at which the scatter happens to look small: with normal noise, at least 6
launches and a stop at once, 95% intervals cover as little as 92.5%. Three things mend that. No case is done with fewer
than 6 launches. One must be narrow enough after two launches running, unless it is twice as narrow as asked. And
intervals over more than 6 launches are widened (``statistics.WIDENING``). Together they cover 94 to 96% of normal and
heavy-tailed noise at any precision, by intervals 1.0 to 1.27 times as wide as those of known variances
(``benchmarks/coverage.py``). Planning all further launches from the variance of the first 6 (Stein) would cover 95% by
intervals that are 1.2 to 1.3 times as wide for good; without the widening, more launches after the first success reach
94% at most.

Launches are complete passes over the cases that are still open, each in its own random order, so that whatever ends a
campaign, all open cases have as many launches within one, and those in hand were drawn at random. Only where a limit
leaves no time for a whole pass is it cut: it keeps the cases that have the fewest launches, then the widest intervals.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import pandas as pd

from spanfit.bench.campaign_file import CampaignFile
from spanfit.bench.case import BenchCase
from spanfit.profiler import statistics
from spanfit.results.schema import Status
from spanfit.results.shards import Shard

_BEYOND_DOUBT = 0.5
"""A case whose interval is this share of what was asked is done at once."""
_MOST_TIMES_LEAST = 5
"""Unless said, a case gets at most this many times the least number of launches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """When a case is done.

    Attributes
    ----------
    least, most : int
        Launches that every case gets, and that none exceeds.
    precision : float or None
        Relative half width asked of the 95% interval of a case's time; None: ``least`` launches are enough.
    """

    least: int
    most: int
    precision: float | None = None

    def is_done(self, units: "Units") -> bool:
        """Return whether a case needs no more launches; what is done stays done."""
        if len(units) >= self.most or self.precision is None:
            return len(units) >= self.least
        asked = math.log1p(self.precision)
        was_met = False
        for count in range(self.least, len(units) + 1):
            half = log_half_width(units[:count])
            is_met = half is not None and half <= asked
            if half is not None and is_met and (was_met or half <= asked * _BEYOND_DOUBT):
                return True
            was_met = is_met
        return False


Units = tuple[tuple[float, ...], ...]
"""Of each launch that measured a case, in order, the log times of its units (its communicators)."""


def rule_of(campaign: CampaignFile) -> Rule:
    """Return the rule of a campaign; an asked precision needs at least the launches of a final claim."""
    if campaign.precision is None:
        return Rule(least=campaign.launches, most=campaign.launches)
    most = campaign.max_launches or _MOST_TIMES_LEAST * max(campaign.launches, statistics.MIN_UNITS)
    least = max(campaign.launches, min(most, statistics.MIN_UNITS))
    return Rule(least=least, most=max(least, most), precision=campaign.precision)


@lru_cache(maxsize=8192)
def log_half_width(units: Units) -> float | None:
    """Return half the width of the 95% interval of a case's log time, None where one unit gives none."""
    values = [value for launch in units for value in launch]
    launches = [index for index, launch in enumerate(units) for _ in launch]
    return statistics.half_width(statistics.unit_interval(values, launches)) if values else None


def shard_units(shard: Shard) -> dict[str, tuple[float, ...]]:
    """Return for each case of a launch the median log time of each of its units, none where it failed.

    The slowest rank counts, and a unit's groups and repetitions are pooled.
    """
    logs: dict[str, dict[str, list[float]]] = {line["case_id"]: {} for line in shard.cases}
    for line in shard.cases:
        if line["status"] == Status.OK:
            slowest = [max(ranks) for group in line["times_s"] for ranks in zip(*group, strict=True)]
            logs[line["case_id"]].setdefault(line["comm_id"], []).extend(map(math.log, slowest))
    return {case_id: tuple(float(np.median(unit)) for unit in units.values()) for case_id, units in logs.items()}


def frame_units(frame: pd.DataFrame) -> tuple[dict[str, tuple[float, ...]], ...]:
    """Return what :func:`shard_units` returns of each launch, from the measurements of a finished run."""
    launches: dict[object, dict[str, tuple[float, ...]]] = {
        launch: dict.fromkeys(rows["case_id"], ()) for launch, rows in frame.groupby("launch")
    }
    logs = statistics.unit_logs(statistics.ok_rows(frame), ["case_id"])
    for (case_id, launch, _), value in zip(logs.index.tolist(), logs.tolist(), strict=True):
        launches[launch][case_id] += (value,)
    return tuple(launches.values())


@dataclass(frozen=True)
class History:
    """What the launches so far have measured.

    Attributes
    ----------
    launches : tuple of mapping
        Of each launch, case_id -> log times of its units; none where the case failed.
    """

    launches: tuple[Mapping[str, tuple[float, ...]], ...] = ()

    @cached_property
    def units(self) -> dict[str, Units]:
        """The units of each case, by the launches that could measure it."""
        found: dict[str, Units] = {}
        for launch in self.launches:
            for case_id, values in launch.items():
                found[case_id] = (*found.get(case_id, ()), *([values] if values else []))
        return found

    @cached_property
    def given_up(self) -> frozenset[str]:
        """The cases that the last launch to try them could not measure."""
        last = {case_id: values for launch in self.launches for case_id, values in launch.items()}
        return frozenset(case_id for case_id, values in last.items() if not values)


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseState:
    """How far a case is.

    Attributes
    ----------
    nlaunches : int
        Launches that measured it.
    half_width : float or None
        Half the width of the 95% interval of its time, as a share of the time; None where there is no interval.
    is_open : bool
        Whether another launch will measure it.
    """

    case: BenchCase
    nlaunches: int
    half_width: float | None
    is_open: bool


def case_states(rule: Rule, cases: Sequence[BenchCase], history: History) -> tuple[CaseState, ...]:
    """Return how far each case is."""
    still_open = {case.case_id for case in open_cases(rule, cases, history)}
    states = []
    for case in cases:
        units = history.units.get(case.case_id, ())
        half = log_half_width(units)
        states.append(
            CaseState(
                case=case,
                nlaunches=len(units),
                half_width=None if half is None else math.expm1(half),
                is_open=case.case_id in still_open,
            )
        )
    return tuple(states)


def open_cases(rule: Rule, cases: Sequence[BenchCase], history: History) -> tuple[BenchCase, ...]:
    """Return the cases that the next launch measures, in the order given.

    The least number of launches measures every case; later ones those that are not done. A case that the last launch
    could not measure is given up then.
    """
    launch = len(history.launches)
    if launch < rule.least:
        return tuple(cases)
    if launch >= rule.most:
        return ()
    return tuple(
        case
        for case in cases
        if case.case_id not in history.given_up and not rule.is_done(history.units.get(case.case_id, ()))
    )


def most_wanted(cases: Sequence[BenchCase], history: History, count: int) -> tuple[BenchCase, ...]:
    """Return the ``count`` cases with the fewest launches, then the widest intervals, in the order given."""

    def want(case: BenchCase) -> tuple[int, float]:
        units = history.units.get(case.case_id, ())
        half = log_half_width(units)
        return len(units), -math.inf if half is None else -half

    chosen = set(sorted(cases, key=want)[:count])
    return tuple(case for case in cases if case in chosen)


def visits_that_fit(visits_so_far: int, spent_s: float, limit_s: float) -> int | None:
    """Return how many visits the time left allows at the pace so far; None where there is no pace or limit."""
    if not visits_so_far or spent_s <= 0 or math.isinf(limit_s):
        return None
    return int(max(0.0, limit_s - spent_s) / (spent_s / visits_so_far))


def expected_launches(rule: Rule, units: Units) -> int:
    """Return about how many more launches a case will take: widths shrink with the root of the launches."""
    nlaunches = len(units)
    if rule.is_done(units):
        return 0
    half = log_half_width(units)
    if nlaunches < rule.least or rule.precision is None or half is None:
        return max(1, rule.least - nlaunches)
    wanted = math.ceil(nlaunches * (half / math.log1p(rule.precision)) ** 2)
    return max(1, min(rule.most, wanted) - nlaunches)

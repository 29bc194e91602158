"""Whether a run is slower than another, case by case."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from spanfit import units
from spanfit.profiler import statistics, welch
from spanfit.profiler.cases import NO_ROWS, CaseKey, CaseTimes, with_failed_parts
from spanfit.profiler.statistics import MIN_UNITS, SIGNIFICANCE, Verdict
from spanfit.profiler.welch import Difference
from spanfit.results.schema import Estimate, format_estimate

SMALLEST_EFFECT = 0.03
"""The smallest change of a time that matters, as a share of it, unless another is asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseComparison:
    """How a case of run B compares with the same case of run A.

    Attributes
    ----------
    change : Estimate or None
        Time in B / time in A - 1; without an interval where a run has one launch of the case, None where one has none.
    p_value : float or None
        Of no change, corrected over all cases that were tested (Holm); None where the case could not be.
    nlaunches_a, nlaunches_b, nfailed_a, nfailed_b : int
        Launches that hold a time, and rows that hold none.
    verdict : Verdict
        ``slower``, ``faster``, ``same`` or ``cannot tell``.
    is_newly_failing : bool
        Whether B has failed rows of a case of which A has none, or no time of one of which A has some.
    sentence : str
        The verdict for people, with the interval and with what more measuring would cost.
    """

    case: CaseKey
    time_a_s: Estimate | None
    time_b_s: Estimate | None
    change: Estimate | None
    p_value: float | None
    nlaunches_a: int
    nlaunches_b: int
    nfailed_a: int
    nfailed_b: int
    is_provisional: bool
    verdict: Verdict
    is_newly_failing: bool
    sentence: str

    @property
    def is_finding(self) -> bool:
        """Whether the case is slower, or fails, in B and not in A."""
        return self.verdict is Verdict.SLOWER or self.is_newly_failing


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The cases that two runs share or that only fail in B, findings first, and those that only one run has."""

    threshold: float
    cases: tuple[CaseComparison, ...]
    only_a: tuple[CaseKey, ...]
    only_b: tuple[CaseKey, ...]

    @property
    def has_findings(self) -> bool:
        """Whether any case is slower, or fails, in B and not in A."""
        return any(case.is_finding for case in self.cases)

    def summary(self) -> dict[str, int]:
        """Return how many cases have each verdict, and how many fail newly."""
        counts = Counter(case.verdict for case in self.cases)
        verdicts = (Verdict.SLOWER, Verdict.FASTER, Verdict.SAME, Verdict.CANNOT_TELL)
        newly = sum(case.is_newly_failing for case in self.cases)
        return {verdict.value: counts[verdict] for verdict in verdicts} | {"newly failing": newly}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pair:
    """A case of both runs; ``difference`` is None where a run has fewer than two launches that hold a time."""

    key: CaseKey
    a: CaseTimes
    b: CaseTimes
    difference: Difference | None

    @property
    def nlaunches(self) -> tuple[int, int]:
        return self.a.nlaunches, self.b.nlaunches

    @property
    def is_newly_failing(self) -> bool:
        has_lost_all = self.a.nlaunches > 0 and self.b.nlaunches == 0
        return self.b.nfailed > 0 and (self.a.nfailed == 0 or has_lost_all)

    def log_change(self) -> Estimate | None:
        if self.difference:
            return self.difference.estimate()
        if 0 in self.nlaunches:
            return None
        value = float(self.b.launch_means().mean() - self.a.launch_means().mean())
        return Estimate(value=value, ci_low=None, ci_high=None)


def compare_runs(
    a: Mapping[CaseKey, CaseTimes], b: Mapping[CaseKey, CaseTimes], threshold: float = SMALLEST_EFFECT
) -> Comparison:
    """Return what run B changed against run A, for each case that both have or that only fails in B.

    Parameters
    ----------
    a, b : mapping of CaseKey to CaseTimes
        What ``case_times`` returns of each run.
    threshold : float
        The smallest change of a time that matters, as a share of it; above 0.

    Notes
    -----
    The launch is what replicates: a case's value in a run is the mean over launches of the means of their units' logs,
    and the difference of two runs has Welch's t, since unlike runs scatter unlike.

    A case is *slower* if its difference is told from 0 at 5%, corrected by Holm over all cases that were tested, and
    its estimate is 1 + ``threshold`` times the time of A or more; *faster* if it is that much the other way. The test
    is against 0 and not against the threshold: what must not happen by chance is an alarm where nothing changed. A test
    against the threshold would also guard against calling a true 2.9% slower, which is no untruth, and would take
    about twice the launches to find 10%. The threshold keeps out what is real and too small to act on.

    A case is *same* if its 95% interval lies within the threshold on both sides; these intervals are each case's own,
    not corrected over the family. Anything else cannot be told. Where programs printed their times, what the last
    digits leave open is added to each side of the interval, and a difference within it is none.

    Failed rows in B of a case of which A has none, and nothing but failed rows of one of which A has times, are a
    finding of their own, whatever the times say. So is a case that only B has and never with a time: a run of a program
    that died before its table, or at a size that it did not print, is such a case.
    """
    a, b = with_failed_parts(a, b), with_failed_parts(b, a)
    a = {**a, **{key: NO_ROWS for key, case in b.items() if key not in a and not case.launches}}
    pairs = [_Pair(key=key, a=a[key], b=b[key], difference=_difference(a[key], b[key])) for key in a if key in b]
    tested = [pair for pair in pairs if pair.difference]
    p_values = statistics.holm([pair.difference.p_value for pair in tested if pair.difference])
    by_key = {pair.key: p_value for pair, p_value in zip(tested, p_values, strict=True)}
    compared = [_compared(pair, by_key.get(pair.key), threshold, len(tested)) for pair in pairs]
    return Comparison(
        threshold=threshold,
        cases=tuple(sorted(compared, key=lambda case: (not case.is_finding, case.case))),
        only_a=tuple(key for key in a if key not in b),
        only_b=tuple(key for key in b if key not in a),
    )


def _difference(a: CaseTimes, b: CaseTimes) -> Difference | None:
    if min(a.nlaunches, b.nlaunches) < 2:
        return None
    return welch.difference(a.launch_means(), b.launch_means(), a.resolution, b.resolution)


def _compared(pair: _Pair, p_value: float | None, threshold: float, ntests: int) -> CaseComparison:
    log_change = pair.log_change()
    change = statistics.mapped(log_change, math.expm1) if log_change else None
    verdict = _verdict(log_change, p_value, math.log1p(threshold))
    return CaseComparison(
        case=pair.key,
        time_a_s=pair.a.time_s(),
        time_b_s=pair.b.time_s(),
        change=change,
        p_value=p_value,
        nlaunches_a=pair.a.nlaunches,
        nlaunches_b=pair.b.nlaunches,
        nfailed_a=pair.a.nfailed,
        nfailed_b=pair.b.nfailed,
        is_provisional=min(pair.nlaunches) < MIN_UNITS,
        verdict=verdict,
        is_newly_failing=pair.is_newly_failing,
        sentence=_sentence(pair, change, verdict, threshold, ntests),
    )


def _verdict(log_change: Estimate | None, p_value: float | None, matters: float) -> Verdict:
    if log_change is None or p_value is None or log_change.ci_low is None or log_change.ci_high is None:
        return Verdict.CANNOT_TELL
    if p_value < SIGNIFICANCE and abs(log_change.value) >= matters:
        return Verdict.SLOWER if log_change.value > 0 else Verdict.FASTER
    is_within = -matters <= log_change.ci_low and log_change.ci_high <= matters
    return Verdict.SAME if is_within else Verdict.CANNOT_TELL


def _sentence(pair: _Pair, change: Estimate | None, verdict: Verdict, threshold: float, ntests: int) -> str:
    fails = f"fails: {_failures(pair.b)}" if pair.is_newly_failing else ""
    if change is None:
        return fails or f"cannot tell: {_without_times(pair)}"
    text = format_estimate(change, units.format_percent)
    if verdict is Verdict.CANNOT_TELL:
        told = f"cannot tell: {text}; {_cost(pair, threshold, ntests)}"
    elif verdict is Verdict.SAME:
        told = f"the same within {units.format_percent(threshold)}: {text}"
    else:
        told = f"{verdict}: {text}"
    return f"{fails}; {told}" if fails else told


def _failures(case: CaseTimes) -> str:
    return f"{case.nfailed} {'row' if case.nfailed == 1 else 'rows'} without a time ({case.reason})"


def _without_times(pair: _Pair) -> str:
    named = (("A", pair.a), ("B", pair.b))
    return ", ".join(f"{name} has {_failures(case)}" for name, case in named if not case.nlaunches)


def _cost(pair: _Pair, threshold: float, ntests: int) -> str:
    """Return what would tell, or that nothing measured in this way would."""
    if pair.difference is None:
        few = " and ".join(name for name, n in zip(("A", "B"), pair.nlaunches, strict=True) if n < 2)
        return f"one launch in {few} cannot say how launches differ; {MIN_UNITS} in each run would"
    off, matters = abs(pair.difference.value), math.log1p(threshold)
    if off >= matters:
        target, goal, confidence = off, "tell it from none", 1 - SIGNIFICANCE / ntests
    else:
        target = max(matters - off, matters / 4)
        goal, confidence = f"narrow it to ± {units.format_percent(math.expm1(target))}", statistics.CONFIDENCE
    target -= pair.difference.resolution
    if target <= 0:
        return f"the printed digits leave ± {units.format_percent(math.expm1(pair.difference.resolution))} open"
    wanted = welch.launches_wanted(pair.difference.sd, target, confidence)
    return f"about {max(wanted, max(pair.nlaunches) + 1)} launches in each run would {goal}"

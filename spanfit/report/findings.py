"""What a run says, in plain sentences: each with its interval, and "cannot tell" where the data cannot."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby

from spanfit import units
from spanfit.bench.case import on_rail
from spanfit.placer.model import Placement, PlacementStatus
from spanfit.profiler import statistics
from spanfit.profiler.curves import SMALLEST_EFFECT, SpanCurvePoint
from spanfit.profiler.gains import SMALLEST_EFFECT as SMALLEST_GAIN
from spanfit.profiler.gains import JobGains, PlacementGain
from spanfit.profiler.statistics import Verdict
from spanfit.report.figures import largest_cases, shape, spanned
from spanfit.results.schema import Estimate, format_estimate
from spanfit.weights.model import Source, WeightEntry, format_weight


class Tone(StrEnum):
    """What kind of finding it is, in one or two words."""

    LOSS = "loss"
    NO_LOSS = "no loss"
    GAIN = "gain"
    NO_GAIN = "no gain"
    CANNOT_TELL = "cannot tell"
    WEIGHTS = "weights"
    PLACEMENT = "placement"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A sentence or two; ``subject`` begins the text and may be set in bold."""

    tone: Tone
    subject: str
    text: str


_CONCURRENCY = {"alone": "with one group alone", "all": "when all groups run at once"}


def loss_findings(points: Iterable[SpanCurvePoint]) -> tuple[Finding, ...]:
    """Return what each collective loses over minipods at its largest size, the largest sure loss first."""
    cases = sorted(largest_cases(points), key=lambda point: shape(point)[:-1])
    found = [_collective(list(group)) for _, group in groupby(cases, key=lambda point: shape(point)[:-1])]
    return tuple(finding for _, finding in sorted(found, key=lambda pair: -pair[0]))


def _collective(cases: list[SpanCurvePoint]) -> tuple[float, Finding]:
    """Return the finding of one collective, and its largest sure loss to sort by."""
    by_verdict = {verdict: [point for point in cases if _verdict(point) is verdict] for verdict in Verdict}
    slower = sorted(by_verdict[Verdict.SLOWER], key=_loss_value)
    clauses: list[str] = []
    if slower:
        clauses.append(f"{_where(slower[-1])} loses {_loss_text(slower[-1])} against one minipod")
    if len(slower) > 1:
        clauses.append(f"its smallest sure loss is {_loss_text(slower[0])}, {_where(slower[0])}")
    clauses += [_clause(by_verdict[key]) for key in (Verdict.NO_SLOWER, Verdict.CANNOT_TELL) if by_verdict[key]]
    tone = Tone.LOSS if slower else Tone.NO_LOSS if by_verdict[Verdict.NO_SLOWER] else Tone.CANNOT_TELL
    size = units.format_size(max(point.size_bytes for point in cases))
    subject = f"{cases[0].operation}, {size}{on_rail(cases[0].rail)},"
    finding = Finding(tone=tone, subject=subject, text="; ".join(clauses) + "." + _caveat(cases))
    return (_loss_value(slower[-1]) if slower else -1.0), finding


def _clause(cases: list[SpanCurvePoint]) -> str:
    """Return a clause on the cases of a verdict: the widest by name, the others counted."""
    first = min(cases, key=lambda point: (-point.span, -_loss_value(point)))
    others = len(cases) - 1
    more = f", and likewise in {others} other {'case' if others == 1 else 'cases'}" if others else ""
    return f"{_where(first)} {_saying(first)} ({_loss_text(first)}){more}"


def _saying(point: SpanCurvePoint) -> str:
    """Return what can be said of a case that is not told to be slower."""
    assert point.loss is not None
    low, effect = point.loss.estimate.ci_low, f"{SMALLEST_EFFECT:.0%}"
    if point.loss.verdict is Verdict.NO_SLOWER:
        return f"it loses less than {effect}"
    if low is None or low <= 0:
        return "the data cannot tell a loss"
    if point.loss.estimate.value < SMALLEST_EFFECT:
        return f"the data cannot tell whether the loss reaches {effect}"
    return "the data cannot tell a loss once all comparisons of the run are allowed for"


def _where(point: SpanCurvePoint) -> str:
    concurrency = _CONCURRENCY.get(point.concurrency, f"with groups at once: {point.concurrency}")
    return f"over {spanned(point.span)} in {point.rank_order} order {concurrency}"


def _verdict(point: SpanCurvePoint) -> Verdict:
    assert point.loss is not None
    return point.loss.verdict


def _loss_value(point: SpanCurvePoint) -> float:
    assert point.loss is not None
    return point.loss.estimate.value


def _loss_text(point: SpanCurvePoint) -> str:
    assert point.loss is not None
    return format_estimate(point.loss.estimate, units.format_percent)


def _caveat(cases: Sequence[SpanCurvePoint]) -> str:
    fewest = min(point.loss.nlaunches for point in cases if point.loss)
    return _provisional(fewest) if statistics.is_provisional(fewest) else ""


def _provisional(nlaunches: int) -> str:
    return f" Provisional: {statistics.count_launches(nlaunches)}, at least {statistics.MIN_UNITS} make a final claim."


def gain_findings(jobs: Iterable[JobGains]) -> tuple[Finding, ...]:
    """Return what the placements of each job gain over its misaligned ones."""
    return tuple(_job(job) for job in jobs if job.gains)


def _job(job: JobGains) -> Finding:
    ordered = sorted(job.gains, key=lambda gain: -gain.gain.value)
    verdicts = {gain.verdict for gain in ordered}
    tone = Tone.CANNOT_TELL if verdicts == {Verdict.CANNOT_TELL} else Tone.NO_GAIN
    text = "; ".join(_arm(gain) for gain in ordered) + "."
    if job.misaligned_ratio and job.misaligned_ratio.ci_low is not None:
        ratio = format_estimate(job.misaligned_ratio, lambda value: f"{value:.3g}")
        count = len(job.base_arms)
        text += f" The slowest of the {count} misaligned placements takes {ratio} times as long as the fastest."
    if any(gain.is_provisional for gain in ordered):
        text += _provisional(min(gain.nunits for gain in ordered))
    return Finding(tone=Tone.GAIN if Verdict.FASTER in verdicts else tone, subject=f"Job {job.job}:", text=text)


def _arm(gain: PlacementGain) -> str:
    text = format_estimate(gain.gain, units.format_percent)
    if gain.verdict is Verdict.FASTER:
        return f"{gain.arm} gains {text} in throughput over misaligned placements"
    if gain.verdict is Verdict.SLOWER:
        return f"{gain.arm} is slower ({text})"
    if gain.verdict is Verdict.SAME:
        return f"{gain.arm} is the same within {SMALLEST_GAIN:.0%} ({text})"
    return f"for {gain.arm} the data cannot tell a difference ({text})"


def weight_findings(entries: Iterable[WeightEntry]) -> tuple[Finding, ...]:
    """Return which crossings weigh more for each job."""
    return tuple(_weights(entry) for entry in entries)


def _weights(entry: WeightEntry) -> Finding:
    alpha = format_weight(entry.alpha)
    if entry.alpha.ci_low is None:
        text = f"alpha is {alpha}, without an interval."
    elif entry.is_flat:
        text = f"alpha is {alpha}, as neither gain can be told from 0; it may be anything."
    elif _holds(entry.alpha, 0.5):
        text = f"alpha is {alpha}; the data cannot tell which crossings of minipods weigh more."
    else:
        more, less = ("DP", "PP") if entry.alpha.value > 0.5 else ("PP", "DP")
        text = f"alpha is {alpha}: {more} crossings of minipods weigh more than {less} crossings."
    if entry.source is not Source.MEASURED:
        text += " It was given by hand." if entry.source is Source.HAND else " It was predicted, not measured."
    for gain, arm in ((entry.gain_dp, "DP-aligned"), (entry.gain_pp, "PP-aligned")):
        if gain is not None and gain.value < 0:
            text += (
                f" The gain of its {arm} placement is {format_estimate(gain, units.format_percent)} and counts as none."
            )
    if entry.is_provisional:
        text += _provisional(entry.launches)
    return Finding(tone=Tone.WEIGHTS, subject=f"Job {entry.job} ({entry.dp} × {entry.pp}):", text=text)


def _holds(estimate: Estimate, value: float) -> bool:
    if estimate.ci_low is None or estimate.ci_high is None:
        return True
    return estimate.ci_low <= value <= estimate.ci_high


def placement_finding(placement: Placement) -> Finding:
    """Return how good a placement is; nothing here is measured, so nothing has an interval."""
    dp, pp = max(placement.dp_spreads), max(placement.pp_spreads)
    text = (
        f"placed on {len(placement.cells)} nodes with objective {placement.objective:.4g}, "
        f"{_proof(placement)}: DP groups touch at most {spanned(dp)} (best-fit {placement.best_fit_dp_spread}), "
        f"PP groups at most {spanned(pp)} (best-fit {placement.best_fit_pp_spread}); "
        f"best-fit has objective {placement.best_fit_objective:.4g}."
    )
    return Finding(tone=Tone.PLACEMENT, subject=f"Job {placement.job.name}:", text=text)


def _proof(placement: Placement) -> str:
    if placement.status is PlacementStatus.OPTIMAL:
        return "proven optimal"
    return f"not proven optimal (no placement is below {placement.bound:.4g})"

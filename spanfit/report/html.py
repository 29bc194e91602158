"""One self-contained page of a run: nothing is loaded from elsewhere, and it reads the same with JavaScript off."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib import resources

import numpy as np
import pandas as pd
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

import spanfit
from spanfit import files, units
from spanfit.bench.case import COMMUNICATION
from spanfit.errors import FitError
from spanfit.placer.model import Placement
from spanfit.profiler import statistics
from spanfit.profiler.curves import SMALLEST_EFFECT, fit_curves, join_curves
from spanfit.profiler.gains import JobGains, fit_gains, lacking_base, seconds_per_launch
from spanfit.profiler.pairs import fit_pairs
from spanfit.report import figures, findings, pair_map, placement_map, tables
from spanfit.report.drawing import printable
from spanfit.results.schema import RunInfo, Status
from spanfit.weights import stale
from spanfit.weights.io import content_hash
from spanfit.weights.model import WeightSet


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """How the figures of a run came about, said before anything else.

    Attributes
    ----------
    label : str
        ``emulated``, ``measured``, or what the caller says, such as ``recorded campaign``.
    remark : str
    is_real : bool
        A fabric was measured, not an emulation, and the caller has nothing to add.
    """

    label: str
    remark: str
    is_real: bool


def origin(info: RunInfo, label: str = "") -> Origin:
    """Return whether a run was emulated, measured, or what ``label`` says it is."""
    emulated = bool(info.truth) or "emulated" in info.transport.lower()
    over = f"Over {info.transport}."
    if emulated:
        over += " These figures describe this emulation, not a real fabric."
    return Origin(label=label or ("emulated" if emulated else "measured"), remark=over, is_real=not (emulated or label))


def render_page(
    info: RunInfo,
    frame: pd.DataFrame,
    *,
    written_at: str,
    weights: WeightSet | None = None,
    placement: Placement | None = None,
    free: Mapping[str, int] | None = None,
    label: str = "",
) -> str:
    """Return the report of a run as one HTML page.

    Parameters
    ----------
    info : RunInfo
    frame : pandas.DataFrame
        The run's measurements, as ``Store.read`` returns them.
    written_at : str
        When the page is written, ISO 8601, UTC.
    weights : WeightSet or None
    placement : Placement or None
    free : mapping of str to int or None
        Nodes that each minipod had free for the placed job; None where that is not known.
    label : str
        What to call the run, such as ``recorded campaign``, instead of ``emulated`` or ``measured``.

    Raises
    ------
    FitError
        If a row has status ok but no time.
    """
    points = fit_curves(frame)
    curves = join_curves(frame, points)
    scans = fit_pairs(frame, info)
    jobs, gains_fault = _gains(info, frame)
    entries = weights.entries if weights else ()
    template = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    ).from_string(resources.files("spanfit.report").joinpath("page.html.jinja").read_text(encoding="utf-8"))
    page = template.render(
        info=info,
        origin=origin(info, label),
        facts=_facts(info, frame),
        findings=(
            *findings.loss_findings(points),
            *findings.gain_findings(jobs),
            *findings.weight_findings(entries),
            *((findings.placement_finding(placement),) if placement else ()),
        ),
        legend=figures.curve_legend(points),
        curve_panels=_safe(figures.curve_panels(points, curves)),
        loss_panels=_safe(figures.loss_panels(points)),
        gain_panels=_safe([figures.gain_panel(job, misaligned_gains(frame, job)) for job in jobs if job.gains]),
        gains_fault=gains_fault,
        weights_panels=_safe([figures.weights_figure(entries)] if entries else []),
        placement_panels=_safe(_placement_panels(placement, free)),
        curve_tables=tables.curve_tables(points),
        gain_tables=tables.gain_tables(jobs),
        weights_table=tables.weights_table(entries) if entries else None,
        fit_tables=tables.fit_tables(curves),
        pair_panels=_safe(pair_map.pair_panels(scans, info.minipods)),
        pair_tables=pair_map.pair_tables(scans),
        placement_tables=tables.placement_tables(placement) if placement else (),
        truth_tables=tables.truth_tables(info, points, tables.groups_at_once(frame)),
        failures=tables.failure_table(frame),
        provenance=tables.provenance(info),
        made_from=_made_from(weights, placement, written_at),
        warnings=_warnings(info, weights, placement, written_at),
        settings=files.render_json(info.spec),
        effect=f"{SMALLEST_EFFECT:.0%}",
    )
    return printable(page)


def _safe(panels: Sequence[str]) -> list[Markup]:
    """Mark figures as markup: they are drawn here, and matplotlib escapes the names in them."""
    return [Markup(panel) for panel in panels]  # noqa: S704


def _placement_panels(placement: Placement | None, free: Mapping[str, int] | None) -> list[str]:
    if placement is None:
        return []
    return [placement_map.placement_grid(placement), placement_map.minipod_bars(placement, free)]


def _gains(info: RunInfo, frame: pd.DataFrame) -> tuple[tuple[JobGains, ...], str]:
    """Return the gains, and why those of some jobs or of all cannot be told."""
    try:
        return fit_gains(frame, seconds_per_launch(info)), "\n".join(lacking_base(frame))
    except FitError as error:
        return (), str(error)


def misaligned_gains(frame: pd.DataFrame, job: JobGains) -> tuple[float, ...]:
    """Return the gain of each misaligned arm of a job over their own median, a share of one, slowest first."""
    steps = frame[(frame["kind"] == "step") & (frame["operation"] == job.job) & (frame["compute"] == job.compute)]
    rows = statistics.ok_rows(steps[steps["arm"].isin(job.base_arms)])
    logs = statistics.launch_logs(statistics.unit_logs(rows, ["arm"]), ["arm"]).unstack("arm").loc[list(job.launches)]
    log_times = logs.to_numpy(dtype=float)
    base = np.median(log_times, axis=1, keepdims=True)
    return tuple(sorted(np.expm1((base - log_times).mean(axis=0)).tolist()))


def _facts(info: RunInfo, frame: pd.DataFrame) -> list[tuple[str, str]]:
    """Return what was measured, on what, when and how, each as a name and a sentence or two."""
    return [
        ("What", _what(frame)),
        ("On what", _on_what(info)),
        ("When", _when(info)),
        ("How", _how(info, frame)),
    ]


def _what(frame: pd.DataFrame) -> str:
    parts = []
    collectives = frame[frame["kind"] == "collective"]
    if len(collectives):
        groups = sorted(collectives["concurrency"].unique(), key=_alone_first)
        least, most = (units.format_size(int(size)) for size in collectives["size_bytes"].agg(["min", "max"]))
        parts.append(
            f"{_listed(collectives['operation'])} of {least if least == most else f'{least} to {most}'} "
            f"over {_listed(collectives['span'])} minipods, with ranks in {_listed(collectives['rank_order'])} order, "
            f"{_joined([figures.at_once(name) for name in groups])}."
        )
    steps = frame[(frame["kind"] == "step") & ~frame["operation"].str.endswith(COMMUNICATION)]
    if len(steps):
        parts.append(f"Training steps of {_listed(steps['operation'])} in {steps['arm'].nunique()} placements.")
    return " ".join(parts)


def _alone_first(concurrency: str) -> tuple[bool, str]:
    return concurrency != "alone", concurrency


def _listed(values: pd.Series) -> str:
    return _joined([str(value) for value in sorted(values.unique().tolist())])


def _joined(words: Sequence[str]) -> str:
    """Return words as people list them: a, b and c."""
    return " and ".join(part for part in (", ".join(words[:-1]), *words[-1:]) if part)


def _on_what(info: RunInfo) -> str:
    sizes = [info.minipods.count(name) for name in dict.fromkeys(info.minipods)]
    each = f"{sizes[0]}" if len(set(sizes)) == 1 else f"{min(sizes)} to {max(sizes)}"
    ranks = "1 rank" if info.ngpus_per_node == 1 else f"{info.ngpus_per_node} ranks"
    return (
        f"Cluster {info.cluster}: {len(info.node_names)} nodes in {figures.spanned(len(sizes))} of {each}, "
        f"{ranks} a node ({info.gpu_model}); {info.backend} over {info.transport}."
    )


def _when(info: RunInfo) -> str:
    if info.period is None:
        return f"{info.started_at} to {info.ended_at}."
    start, end = info.period
    return f"{start:%Y-%m-%d %H:%M} UTC, for {units.format_time((end - start).total_seconds())}."


def _how(info: RunInfo, frame: pd.DataFrame) -> str:
    nfailed = int((frame["status"] != Status.OK.value).sum())
    failed = "none failed" if nfailed == 0 else f"{nfailed} failed"
    nlaunches = int(frame["launch"].nunique())
    return (
        f"{statistics.count_launches(nlaunches)}, {frame['case_id'].nunique()} cases, {len(frame)} rows ({failed})."
        f"{_order(frame)} A unit of replication is a launch with its freshly made communicators. Intervals are 95%: "
        "Student's t on logs of per-unit medians; differences are paired by launch, and verdicts are corrected over "
        "the run (Holm)."
    )


def _order(frame: pd.DataFrame) -> str:
    """Say whether the order of cases differs between launches, as the rows show it."""
    ordered = frame.sort_values("position", kind="stable")
    visits = {launch: tuple(rows["case_id"].unique()) for launch, rows in ordered.groupby("launch")}
    if len(visits) < 2 or frame["case_id"].nunique() < 2:
        return ""
    if len(set(visits.values())) > 1:
        return " The order of cases was shuffled anew in each launch."
    return " Every launch ran the cases in the same order, so drift may look like an effect."


def _made_from(weights: WeightSet | None, placement: Placement | None, written_at: str) -> list[tuple[str, str]]:
    """Return what the page was made from beside the run."""
    rows = [("page written", f"{written_at} by spanfit {spanfit.__version__}")]
    if weights:
        rows.append(("weights", f"SHA-256 {content_hash(weights)}"))
        rows.append(("weights come from", ", ".join([*weights.run_ids, weights.created_at or "by hand"])))
    if placement:
        rows.append(("weights of the placement", placement.weights_hash or "given by hand"))
    return rows


def _warnings(info: RunInfo, weights: WeightSet | None, placement: Placement | None, written_at: str) -> list[str]:
    """Return what does not belong together or is over, one sentence each."""
    found = []
    if weights:
        found += [f"Stale weights: {each}." for each in stale.reasons(weights, now=datetime.fromisoformat(written_at))]
    if weights and info.run_id not in weights.run_ids:
        found.append(f"The weights come from {', '.join(weights.run_ids) or 'no run'}, not from this run.")
    if weights and placement and placement.weights_hash != content_hash(weights):
        found.append("The placement was not made with these weights.")
    for made in (weights, placement):
        found += [f"Stale weights were accepted: {reason}." for reason in (made.accepted_stale if made else ())]
    if placement and placement.cluster != info.cluster:
        found.append(f"The placement is on cluster {placement.cluster}; this run measured {info.cluster}.")
    return found

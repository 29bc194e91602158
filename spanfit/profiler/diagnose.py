"""What is wrong with a cluster, in plain sentences, from the rows of a run alone: pure.

Slow places are found by :mod:`spanfit.profiler.localize`; groups that are slower than their twins on other rails of the
same hosts by :mod:`spanfit.profiler.rails`; dead and stuck hosts by the rows that failed.
"""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
import pandas as pd

from spanfit import units
from spanfit.bench.case import ALL_GPUS
from spanfit.profiler import statistics
from spanfit.profiler.drift import drifting, fit_drift
from spanfit.profiler.localize import (
    MIN_OBSERVATIONS,
    SMALLEST_EFFECT,
    Culprit,
    compare,
    find_culprits,
    observe,
)
from spanfit.profiler.pair_scan import LinkRate
from spanfit.profiler.pairs import fit_pairs
from spanfit.profiler.paths import Place, PlaceKind, Tree
from spanfit.profiler.rails import Accusation, accused, find_twins, host_links
from spanfit.profiler.statistics import FloatArray
from spanfit.results.schema import Estimate, RunInfo, Status, format_estimate

_KINDS = ("collective", "pairs")
_ERRATIC = 0.12
"""A robust spread of log times beyond this, and beyond thrice that of the others, is no steady limit."""
_SICK_RANK = re.compile(r"rank \d+ on (\S+)")
_ENDED = re.compile(r"was ended by signal|ended with exit code")


class Ailment(StrEnum):
    """What is wrong with a place: how its times behave, or how its ranks ended."""

    SLOW = "slow"
    ERRATIC = "erratic"
    NARROW = "narrow"
    TWIN = "twin"
    DRIFT = "drift"
    DEAD = "dead"
    STUCK = "stuck"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that stands out.

    Attributes
    ----------
    ailment : Ailment
    places : tuple of str
        One place, or several that the measurements cannot tell apart.
    slowdown : Estimate or None
        Time of the groups that show it over that of the others or of their twins, of the last over the first where it
        drifts; None for a host that died or hung.
    nobservations : int
        Medians of groups and units, comparisons of twins, launches, or failed cases, that show it.
    sentence : str
    """

    ailment: Ailment
    places: tuple[str, ...]
    slowdown: Estimate | None
    nobservations: int
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """All that stands out in a run, and what it cannot show.

    Attributes
    ----------
    findings : tuple of Finding
    unseen : tuple of str
        Hosts and links that too few groups passed to judge.
    nobservations : int
    """

    findings: tuple[Finding, ...]
    unseen: tuple[str, ...]
    nobservations: int

    def sentences(self) -> tuple[str, ...]:
        """Return the diagnosis in plain sentences."""
        said = [finding.sentence for finding in self.findings]
        if not said:
            said.append(
                f"nothing stands out in {self.nobservations} observations: no host, link or switch makes groups take "
                f"{units.format_percent(SMALLEST_EFFECT)} longer than their like"
            )
        if self.unseen:
            said.append(f"cannot tell, since too few groups passed: {', '.join(self.unseen)}")
        return tuple(said)


def diagnose(frame: pd.DataFrame, info: RunInfo) -> Diagnosis:
    """Return what stands out in a run.

    Parameters
    ----------
    frame : pandas.DataFrame
        Measurements of one run, as ``Store.read`` returns them. Small groups tell most places apart: pairs, and groups
        of two to four nodes at every tier, alone and all at once.
    info : RunInfo
    """
    ended = tuple(_find_ended(frame))
    rows = statistics.ok_rows(frame[frame["kind"].isin(_KINDS) & (frame["nnodes"] > 1) & (frame["size_bytes"] > 0)])
    tree = Tree(info.node_names, info.switches, sorted(set(rows.loc[rows["rail"] != ALL_GPUS, "rail"].tolist())))
    if rows.empty:
        return Diagnosis(findings=ended, unseen=tuple(f"host {name}" for name in info.node_names), nobservations=0)
    seen = observe(rows, tree)
    slow = tuple(_find_slow(tuple(find_culprits(seen)), accused(find_twins(rows)), tree, rows, info))
    return Diagnosis(
        findings=(*ended, *slow, *_find_drift(rows)),
        unseen=tuple(str(place) for place in tree.links() if (seen.load(place) > 0).sum() < MIN_OBSERVATIONS),
        nobservations=len(seen.deviations),
    )


def _find_slow(
    culprits: Sequence[Culprit], accusations: Sequence[Accusation], tree: Tree, rows: pd.DataFrame, info: RunInfo
) -> Iterator[Finding]:
    """Yield the slow places; what twins say of a rail's link is evidence for it, or says more where it is not told."""
    left = list(accusations)
    for culprit in culprits:
        same = [each for each in left if _is_about(each, culprit.places, tree)]
        if same and len(culprit.places) > 1:
            continue
        left = [each for each in left if each not in same]
        finding = _describe(culprit)
        evidence = "; ".join([*_carried(culprit.places, rows, info), *(_twins(each, tree) for each in same)])
        yield replace(finding, sentence=f"{finding.sentence}; {evidence}") if evidence else finding
    yield from (_accuse(each, tree) for each in left)


def _is_about(accusation: Accusation, places: Sequence[Place], tree: Tree) -> bool:
    """Return whether places are all on the rail that is accused, and one of them is among the hosts."""
    hosts = {tree.node_names[node] for node in accusation.nodes}
    return all(place.rail == accusation.rail for place in places) and any(
        place.kind is PlaceKind.PLANE or place.name in hosts for place in places
    )


def _carried(places: Sequence[Place], rows: pd.DataFrame, info: RunInfo) -> Iterator[str]:
    """Yield what the link of a host on one rail carries beside its links on others, where pairs were measured so."""
    if len(places) == 1 and places[0].kind is PlaceKind.RAIL:
        links = host_links(fit_pairs(rows[rows["rail"] != ALL_GPUS], info), places[0].name)
        texts = {rail: _link_rate(link) for rail, link in links.items()}
        if own := texts.pop(places[0].rail, None):
            others = [f"rail {rail} of that host {text}" for rail, text in sorted(texts.items())]
            yield ", ".join([f"it carries {own}", *others])


def _link_rate(link: LinkRate) -> str:
    rate_bits_per_s = float(f"{8 * link.rate_bytes_per_s.value:.3g}")
    return ("at least " if link.is_bound else "") + units.format_link_rate(rate_bits_per_s)


def _twins(accusation: Accusation, tree: Tree) -> str:
    """Return what was measured of a group and its twins."""
    widest = accusation.widest
    hosts = ", ".join(tree.node_names[node] for node in sorted(widest.nodes))
    times = format_estimate(widest.ratio, lambda value: f"{value:.2f}")
    return (
        f"the group of rail {accusation.rail} on hosts {hosts} takes {times} times as long as its twins on other rails "
        f"({widest.label}; so in {accusation.nslow} of {accusation.ntested} comparisons of this rail)"
    )


def _accuse(accusation: Accusation, tree: Tree) -> Finding:
    names = [tree.node_names[node] for node in accusation.nodes]
    where = f"host {names[0]}" if len(names) == 1 else f"one or more of {', '.join(names)}"
    if len(names) == len(accusation.widest.nodes):
        where = "one or more of these hosts"
    return Finding(
        ailment=Ailment.TWIN,
        places=tuple(str(Place(PlaceKind.RAIL, "", name, accusation.rail)) for name in names),
        slowdown=accusation.widest.ratio,
        nobservations=accusation.nslow,
        sentence=(
            f"{_twins(accusation, tree)}: the NIC of that rail on {where}, or which GPU it is mapped to; hosts are the "
            "twins' too, and so are switches unless each rail has its own"
        ),
    )


def _describe(culprit: Culprit) -> Finding:
    theory, deviations = culprit.theory, culprit.seen.deviations
    hit, calm = theory.hit, theory.calm
    ratio = compare(culprit.seen.by_moment(hit), culprit.seen.by_moment(~hit)).ratio
    if _is_erratic(deviations[hit] - theory.predicted[hit], deviations[~hit]):
        ailment = Ailment.ERRATIC
    else:
        ailment = Ailment.NARROW if calm.sum() >= MIN_OBSERVATIONS else Ailment.SLOW
    places = tuple(map(str, culprit.places))
    where = places[0] if len(places) == 1 else f"one of these, which the groups do not tell apart: {'; '.join(places)}"
    times = format_estimate(ratio, lambda value: f"{value:.2f}")
    count = f"{hit.sum()} observations against {(~hit).sum()}"
    said = f"{where}: {_behaviour(ailment, culprit)} take {times} times as long as others ({count})"
    return Finding(
        ailment=ailment,
        places=places,
        slowdown=ratio,
        nobservations=int(hit.sum()),
        sentence=said + _HINT[ailment],
    )


_HINT = {
    Ailment.SLOW: ", steadily, as with a lower rate",
    Ailment.ERRATIC: (
        ", and erratically, as where packets are lost or where other traffic comes and goes; times do not say which"
    ),
    Ailment.NARROW: "; a link that they share is slow, or there are fewer links than planned",
}


def _behaviour(ailment: Ailment, culprit: Culprit) -> str:
    theory = culprit.theory
    if ailment is not Ailment.NARROW:
        return "groups that pass it"
    off = abs(math.expm1(float(np.median(culprit.seen.deviations[theory.calm]))))
    return (
        f"groups that have it to themselves are within {units.format_percent(off)} of the usual (up to "
        f"{theory.load[theory.calm].max():g} flows at once), those with up to {theory.load[theory.hit].max():g} flows"
    )


def _is_erratic(hit: FloatArray, rest: FloatArray) -> bool:
    return _spread(hit) > max(_ERRATIC, 3 * _spread(rest))


def _spread(values: FloatArray) -> float:
    """Return the standard deviation of normal values with the same median absolute deviation."""
    return float(1.4826 * np.median(np.abs(values - np.median(values))))


def _find_drift(rows: pd.DataFrame) -> Iterator[Finding]:
    """Yield the trend over the run or within its launches, and of cases that drift though the whole does not."""
    drifts = [drift for drift in drifting(fit_drift(rows)) if abs(drift.change.value) > SMALLEST_EFFECT]
    together = [drift for drift in drifts if not drift.case_id]
    for drift in together or drifts:
        yield Finding(
            ailment=Ailment.DRIFT,
            places=(f"case {drift.case_id}" if drift.case_id else "all cases",),
            slowdown=statistics.mapped(drift.change, lambda share: 1 + share),
            nobservations=drift.nlaunches,
            sentence=drift.sentence,
        )


def _find_ended(frame: pd.DataFrame) -> Iterator[Finding]:
    """Yield the hosts that rows name which failed or timed out."""
    bad = frame[frame["status"].isin([Status.FAILED.value, Status.TIMED_OUT.value])]
    named: dict[tuple[str, Ailment], list[tuple[str, str]]] = {}
    for case_id, reason in zip(bad["case_id"], bad["reason"], strict=True):
        ailment = Ailment.DEAD if _ENDED.search(reason) else Ailment.STUCK
        for host in dict.fromkeys(_SICK_RANK.findall(reason)):
            named.setdefault((host, ailment), []).append((case_id, reason))
    for (host, ailment), found in named.items():
        ncases = len({case_id for case_id, _ in found})
        cost = f"{ncases} case{'s' * (ncases > 1)} could not be measured"
        yield Finding(
            ailment=ailment,
            places=(str(Place(PlaceKind.HOST, "", host)),),
            slowdown=None,
            nobservations=ncases,
            sentence=f"host {host} is {ailment}: {found[0][1]} ({cost})",
        )

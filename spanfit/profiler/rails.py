"""Groups of the same nodes on different rails, which should take as long: pure.

Real nodes have a NIC for each GPU, so that the groups of a job's ranks with one local rank are twins: same hosts, same
switches, other NICs. One that is slower than its twins tells a NIC, or how NICs are mapped to GPUs.
"""

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

import pandas as pd

from spanfit import units
from spanfit.bench.case import ALL_GPUS
from spanfit.profiler import statistics
from spanfit.profiler.curves import SMALLEST_EFFECT
from spanfit.profiler.pair_scan import HOST, LinkRate, PairScan
from spanfit.results.schema import Estimate

_WORK = ["kind", "operation", "size_bytes", "dtype", "redop", "in_place", "nranks"]
_GROUP = [*_WORK, "tier", "span", "rank_order", "concurrency", "draw", "nodes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Twin:
    """A group of one rail in one case, beside the groups of other rails on the same nodes in the same case otherwise.

    Attributes
    ----------
    work : tuple
        What the group does, wherever its nodes are.
    nodes : tuple of int
        Node ranks in rank order.
    ratio : Estimate
        Its time over the median of the others', paired by launch.
    is_slow : bool
        Slower beyond the interval, corrected over all twins of the run (Holm), and by 3% or more.
    """

    rail: int
    work: tuple[object, ...]
    nodes: tuple[int, ...]
    ratio: Estimate
    is_slow: bool
    label: str

    @property
    def is_fine(self) -> bool:
        """Whether it is known not to be slower by an effect that matters."""
        return self.ratio.ci_high is not None and self.ratio.ci_high < 1 + SMALLEST_EFFECT


def find_twins(rows: pd.DataFrame) -> tuple[Twin, ...]:
    """Return every group of one rail that has a twin, from rows that hold times; none where no rail was measured."""
    own = rows[rows["rail"] != ALL_GPUS]
    # What launches differ by, all rails share; within a single launch its units are all there is.
    unit = "launch" if own["launch"].nunique() > 1 else "comm_id"
    logs = statistics.unit_logs(own, [*_GROUP, "rail"]).groupby(level=[*_GROUP, "rail", unit]).median()
    table = logs.unstack("rail")
    drafts = [
        (int(rail), differences)
        for rail in table.columns.tolist()
        for _, differences in _differences(table, rail).groupby(level=_GROUP)
    ]
    p_values = statistics.holm([statistics.p_above(differences, 0.0) for _, differences in drafts])
    return tuple(_twin(*draft, p_value) for draft, p_value in zip(drafts, p_values, strict=True))


def _differences(table: pd.DataFrame, rail: Hashable) -> "pd.Series[float]":
    """Return by group and unit the log time on a rail less the median of the other rails, where both are held."""
    return (table[rail] - table.drop(columns=rail).median(axis="columns")).dropna()


def _twin(rail: int, differences: "pd.Series[float]", p_value: float) -> Twin:
    group = differences.index[0][: len(_GROUP)]
    values = dict(zip(_GROUP, group, strict=True))
    ratio = statistics.mapped(statistics.interval(differences), math.exp)
    return Twin(
        rail=rail,
        work=group[: len(_WORK)],
        nodes=tuple(map(int, str(values["nodes"]).split(","))),
        ratio=ratio,
        is_slow=p_value < statistics.SIGNIFICANCE and ratio.value > 1 + SMALLEST_EFFECT,
        label=f"{values['operation']} of {units.format_size(int(str(values['size_bytes'])))}, {values['concurrency']}",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Accusation:
    """Slow twins of one rail, and the nodes that may be why.

    Attributes
    ----------
    nodes : tuple of int
        Node ranks that every slow group has, and none that is not slow at what shows others to be.
    widest : Twin
        The slow group of most nodes; of several the slowest against its twins.
    nslow, ntested : int
        Twins of the rail with any of these nodes that are slow, and all of those.
    """

    rail: int
    nodes: tuple[int, ...]
    widest: Twin
    nslow: int
    ntested: int


def accused(twins: Sequence[Twin]) -> tuple[Accusation, ...]:
    """Return who may be why twins are slow, the widest groups first; each slow twin is explained by one accusation."""
    found = []
    left = [twin for twin in twins if twin.is_slow]
    while left:
        widest = max(left, key=lambda twin: (len(twin.nodes), twin.ratio.value))
        nodes = _suspects(widest, [twin for twin in twins if twin.rail == widest.rail])
        own = [twin for twin in twins if twin.rail == widest.rail and nodes & set(twin.nodes)]
        found.append(
            Accusation(
                rail=widest.rail,
                nodes=tuple(sorted(nodes)),
                widest=widest,
                nslow=sum(twin.is_slow for twin in own),
                ntested=len(own),
            )
        )
        left = [twin for twin in left if twin not in own]
    return tuple(found)


def _suspects(widest: Twin, twins: Sequence[Twin]) -> set[int]:
    """Return the nodes of a slow group that the other groups of its rail leave under suspicion."""
    nodes = set(widest.nodes)
    slow = [twin for twin in twins if twin.is_slow and nodes & set(twin.nodes)]
    telling = {twin.work for twin in slow}
    cleared = {node for twin in twins if twin.is_fine and twin.work in telling for node in twin.nodes}
    nodes = nodes - cleared or nodes
    for twin in slow:
        nodes = nodes & set(twin.nodes) or nodes
    return nodes


def host_links(scans: Iterable[PairScan], host: str) -> dict[int, LinkRate]:
    """Return what a host's link on each rail carries, by scans of single rails."""
    return {scan.rail: link for scan in scans for link in scan.links if (link.link_class, link.name) == (HOST, host)}

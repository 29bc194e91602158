"""What a scan over pairs of nodes says of every host's link, every uplink and every class of them.

Where each rail was measured by itself, each is a scan and a host has a link on each. Else a host counts as one link,
whatever NICs it has.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from spanfit import units
from spanfit.bench.tournament import standard_error
from spanfit.collectives import Collective
from spanfit.profiler import statistics
from spanfit.profiler.bottleneck import LinkFit, Load, fit_links, seen_rates
from spanfit.profiler.curves import SMALLEST_EFFECT
from spanfit.profiler.pair_scan import HOST, ClassRate, LinkRate, PairRate, PairScan, TierRate, place_of
from spanfit.profiler.statistics import FloatArray, Verdict
from spanfit.results.schema import Estimate, RunInfo, format_estimate


class _Unit(NamedTuple):
    launch: int
    comm_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Round:
    """The flows of a case, and the seconds of each in each repetition (repetitions × flows) by unit."""

    concurrency: str
    pairs: tuple[tuple[int, int], ...]
    times_s: Mapping[_Unit, FloatArray]


class _Fabric:
    """The links above the nodes of a run on one rail, and the way between two of them."""

    def __init__(self, info: RunInfo, rail: int) -> None:
        self.rail = rail
        self.tiers = info.tiers
        self.switches = info.switches
        self.links = [(HOST, name) for name in info.node_names]
        for tier in info.tiers:
            self.links += [(tier, switch) for switch in dict.fromkeys(info.switches[tier])]
        self.index = {link: number for number, link in enumerate(self.links)}
        self.node_names = info.node_names

    def place(self, link: int) -> str:
        """Return a link in words."""
        return place_of(*self.links[link], self.rail)

    def common_tier(self, a: int, b: int) -> str:
        return next((tier for tier in self.tiers if self.switches[tier][a] == self.switches[tier][b]), "")

    def path(self, a: int, b: int, *, is_one_way: bool) -> list[int]:
        """Return the ways from node rank ``a`` to ``b``, and back where both send; padded with -1."""
        up, down = [2 * a], [2 * b + 1]
        for tier in self.tiers:
            if self.switches[tier][a] == self.switches[tier][b]:
                break
            up.append(2 * self.index[tier, self.switches[tier][a]])
            down.append(2 * self.index[tier, self.switches[tier][b]] + 1)
        ways = up + down if is_one_way else [way + back for way in (*up, *down) for back in (0, 1 - 2 * (way % 2))]
        return ways + [-1] * ((1 if is_one_way else 2) * 2 * (len(self.tiers) + 1) - len(ways))


def fit_pairs(frame: pd.DataFrame, info: RunInfo) -> tuple[PairScan, ...]:
    """Return what the pair scans of a run say, one for each operation, dtype and rail, none where there are no pairs.

    Parameters
    ----------
    frame : pandas.DataFrame
        Measurements of one run, as ``Store.read`` returns them.
    info : RunInfo

    Raises
    ------
    FitError
        If a row has status ok but no time.

    Notes
    -----
    The rate of a flow is its bytes over its time, start-up and bursts included, so sizes should be well beyond the
    knee; only the largest of a scan is used.
    """
    timed = statistics.ok_rows(frame[frame["kind"] == "pairs"])
    scans = []
    for _, rows in timed.groupby(["operation", "dtype", "rail"], sort=True):
        scans.append(_scan(rows[rows["size_bytes"] == rows["size_bytes"].max()], info))
    return tuple(scans)


def _scan(rows: pd.DataFrame, info: RunInfo) -> PairScan:
    first = rows.iloc[0]
    operation, size_bytes = str(first["operation"]), int(first["size_bytes"])
    volume = float(size_bytes * (1 if operation == Collective.SEND_RECV else int(first["nranks"]) // 2))
    fabric, rounds = _Fabric(info, int(first["rail"])), tuple(_rounds(rows))
    pairs = tuple(_pair_rates(rounds, fabric, volume))
    names = sorted({unit for each in rounds for unit in each.times_s})
    links = _links(rounds, fabric, names, volume, is_one_way=operation == Collective.SEND)
    return PairScan(
        operation=operation,
        dtype=str(first["dtype"]),
        rail=fabric.rail,
        size_bytes=size_bytes,
        node_names=info.node_names,
        pairs=pairs,
        links=tuple(sorted(links, key=lambda link: (link.verdict is not Verdict.SLOWER, _lag(link)))),
        classes=tuple(_classes(links)),
        tiers=tuple(_tiers(pairs)),
        nunits=len(names),
        is_provisional=statistics.is_provisional(len(names)),
    )


def _lag(link: LinkRate) -> float:
    return -link.against_class.value if link.against_class else 0.0


def _rounds(rows: pd.DataFrame) -> Iterator[_Round]:
    """Yield the rounds; a repetition in which a flow has no time is left out, since all flows shaped it."""
    pairs: dict[str, dict[int, tuple[int, int]]] = {}
    samples: dict[str, dict[tuple[_Unit, int], dict[int, float]]] = {}
    concurrencies: dict[str, str] = {}
    names = ("case_id", "concurrency", "launch", "comm_id", "repetition", "group", "nodes", "time_s")
    columns = [rows[name].tolist() for name in names]
    for case_id, concurrency, launch, comm_id, repetition, group, nodes, time_s in zip(*columns, strict=True):
        a, b = nodes.split(",")
        pairs.setdefault(case_id, {})[group] = (int(a), int(b))
        samples.setdefault(case_id, {}).setdefault((_Unit(launch, comm_id), repetition), {})[group] = time_s
        concurrencies[case_id] = concurrency
    for case_id in sorted(pairs):
        groups = sorted(pairs[case_id])
        by_unit: dict[_Unit, list[list[float]]] = {}
        for (unit, _), times in samples[case_id].items():
            if len(times) == len(groups):
                by_unit.setdefault(unit, []).append([times[group] for group in groups])
        if by_unit:
            yield _Round(
                concurrency=concurrencies[case_id],
                pairs=tuple(pairs[case_id][group] for group in groups),
                times_s={unit: np.array(rows_of_unit) for unit, rows_of_unit in by_unit.items()},
            )


def _pair_rates(rounds: Sequence[_Round], fabric: _Fabric, volume: float) -> Iterator[PairRate]:
    for each in rounds:
        launches = [unit.launch for unit in each.times_s]
        logs = np.array([np.median(np.log(volume / times), axis=0) for times in each.times_s.values()])
        for flow, (a, b) in enumerate(each.pairs):
            yield PairRate(
                sender=fabric.node_names[a],
                receiver=fabric.node_names[b],
                tier=fabric.common_tier(a, b),
                concurrency=each.concurrency,
                rate_bytes_per_s=statistics.mapped(statistics.unit_interval(logs[:, flow], launches), math.exp),
            )


def _links(
    rounds: Sequence[_Round], fabric: _Fabric, names: Sequence[_Unit], volume: float, *, is_one_way: bool
) -> list[LinkRate]:
    loads = [
        Load(
            paths=np.array([fabric.path(a, b, is_one_way=is_one_way) for a, b in each.pairs], dtype=np.intp),
            volume_bytes=volume,
        )
        for each in rounds
    ]
    pooled = [np.vstack(list(each.times_s.values())) for each in rounds]
    fit = fit_links(loads, pooled, [link_class for link_class, _ in fabric.links])
    logs = _unit_logs(fit, loads, rounds, names)
    reached = np.flatnonzero(fit.capacities > 0).tolist()
    lags = {link: _lags(link, reached, logs, fabric, fit) for link in reached}
    launches = [name.launch for name in names]
    p_values = dict(zip(lags, statistics.holm([_p_slower(lag, launches) for lag in lags.values()]), strict=True))
    return [_link_rate(link, fabric, fit, logs[:, link], lags[link], launches, p_values[link]) for link in reached]


def _unit_logs(fit: LinkFit, loads: Sequence[Load], rounds: Sequence[_Round], names: Sequence[_Unit]) -> FloatArray:
    """Return the log rate of each link in each unit (units × links), NaN where a unit does not tell it.

    A link that was never full has what it carried, the same in each unit.
    """
    logs = np.full((len(names), len(fit.capacities)), np.nan)
    for row, name in enumerate(names):
        seen: dict[int, list[FloatArray]] = {}
        for each in fit.evidence:
            if name in rounds[each.load].times_s:
                rates = seen_rates(each, loads[each.load], rounds[each.load].times_s[name])
                seen.setdefault(each.link, []).append(rates)
        for link, found in seen.items():
            logs[row, link] = math.log(float(np.median(np.concatenate(found))))
    unseen = np.isnan(logs).all(axis=0) & (fit.capacities > 0)
    logs[:, unseen] = np.log(fit.capacities[unseen])
    return logs


def _lags(link: int, reached: Sequence[int], logs: FloatArray, fabric: _Fabric, fit: LinkFit) -> FloatArray:
    """Return by unit the log rate of a link less the median of the others of its class; empty for a bound."""
    own_class = fabric.links[link][0]
    others = [other for other in reached if other != link and fabric.links[other][0] == own_class]
    if fit.is_bound[link] or not others or np.isnan(logs[:, [link, *others]]).any():
        return np.empty(0)
    lags: FloatArray = logs[:, link] - np.median(logs[:, others], axis=1)
    return lags


def _p_slower(lags: FloatArray, launches: Sequence[int]) -> float:
    if not len(lags):
        return 1.0
    by_launch = pd.Series(lags).groupby(np.asarray(launches)).mean().to_numpy(dtype=float)
    return statistics.p_below(by_launch if len(by_launch) > 1 else lags, 0.0)


def _link_rate(
    link: int,
    fabric: _Fabric,
    fit: LinkFit,
    logs: FloatArray,
    lags: FloatArray,
    launches: Sequence[int],
    p_value: float,
) -> LinkRate:
    is_bound = bool(fit.is_bound[link])
    rate = Estimate(value=float(fit.capacities[link]), ci_low=None, ci_high=None)
    told = ~np.isnan(logs)
    if told.any() and link in {each.link for each in fit.evidence}:
        rate = statistics.mapped(statistics.unit_interval(logs[told], np.asarray(launches)[told]), math.exp)
    lag = (
        statistics.mapped(statistics.unit_interval(lags, launches), lambda log: -math.expm1(log)) if len(lags) else None
    )
    is_slower = lag is not None and p_value < statistics.SIGNIFICANCE and lag.value >= SMALLEST_EFFECT
    # Hosts that met no other and are as fast as their class are no finding.
    is_plain = is_bound or (fabric.links[link][0] == HOST and not is_slower)
    ties = () if is_plain else tuple(fabric.place(other) for other in fit.ties[link])
    return LinkRate(
        name=fabric.links[link][1],
        link_class=fabric.links[link][0],
        place=fabric.place(link),
        rate_bytes_per_s=rate,
        is_bound=is_bound,
        ties=ties,
        against_class=lag,
        verdict=Verdict.SLOWER if is_slower else Verdict.CANNOT_TELL,
        sentence=_sentence(lag, ties, is_bound=is_bound, is_slower=is_slower),
    )


def _sentence(lag: Estimate | None, ties: Sequence[str], *, is_bound: bool, is_slower: bool) -> str:
    if is_bound:
        return "at least this: it held nothing back"
    beside = f"; or {', '.join(ties)}: every flow that it held back crossed these too" if ties else ""
    if lag is None:
        return f"no other link of its class to compare with{beside}"
    text = format_estimate(lag, units.format_percent)
    return (
        f"slower than its class by {text}" if is_slower else f"cannot be told from its class: {text} below"
    ) + beside


def _classes(links: Sequence[LinkRate]) -> Iterator[ClassRate]:
    for name in dict.fromkeys(link.link_class for link in links):
        own = [link for link in links if link.link_class == name]
        logs = np.log([link.rate_bytes_per_s.value for link in own if not link.is_bound])
        yield ClassRate(
            link_class=name,
            rate_bytes_per_s=statistics.mapped(statistics.interval(logs), math.exp) if len(logs) else None,
            spread=float(logs.std(ddof=1)) if len(logs) > 1 else 0.0,
            nlinks=len(own),
            nbounds=len(own) - len(logs),
        )


def _tiers(pairs: Sequence[PairRate]) -> Iterator[TierRate]:
    for tier, concurrency in dict.fromkeys((pair.tier, pair.concurrency) for pair in pairs):
        own = [pair for pair in pairs if (pair.tier, pair.concurrency) == (tier, concurrency)]
        logs = np.log([pair.rate_bytes_per_s.value for pair in own])
        partners = {frozenset((pair.sender, pair.receiver)) for pair in own}
        nnodes = len({node for pair in partners for node in pair})
        spread = float(logs.std(ddof=1)) if len(logs) > 1 else 0.0
        npartners = 2 * len(partners) / nnodes
        yield TierRate(
            tier=tier,
            concurrency=concurrency,
            rate_bytes_per_s=statistics.mapped(statistics.interval(logs), math.exp),
            spread=spread,
            npairs=len(own),
            npartners=npartners,
            standard_error=standard_error(spread, npartners),
        )

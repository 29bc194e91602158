from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest

from spanfit.bench.tournament import tournament
from spanfit.profiler.bottleneck import Load
from spanfit.profiler.pair_scan import PairScan
from spanfit.profiler.pairs import fit_pairs
from spanfit.profiler.statistics import Verdict
from spanfit.results.schema import Measurement, RunInfo
from tests.unit.profiler.factory import MEASUREMENT, RUN, failed, framed
from tests.unit.profiler.fluid import flow_times

NAMES = tuple(f"m{m}l{leaf}h{h}" for m in range(2) for leaf in range(2) for h in range(4))
INFO = replace(
    RUN,
    node_names=NAMES,
    minipods=tuple(name[:2] for name in NAMES),
    switches={
        "leaf": tuple(name[:4] for name in NAMES),
        "minipod": tuple(name[:2] for name in NAMES),
        "core": ("c",) * 16,
    },
)
RATES = {"host": 50e6, "leaf": 75e6, "minipod": 1e9}
LINKS = [
    *(("host", name) for name in NAMES),
    *(("leaf", leaf) for leaf in sorted({name[:4] for name in NAMES})),
    *(("minipod", minipod) for minipod in ("m0", "m1")),
]
SIZE = 4 << 20


def path(a: str, b: str) -> list[int]:
    ways = [2 * LINKS.index(("host", a)), 2 * LINKS.index(("host", b)) + 1]
    for tier, end in (("leaf", 4), ("minipod", 2)):
        if a[:end] != b[:end]:
            ways += [2 * LINKS.index((tier, a[:end])), 2 * LINKS.index((tier, b[:end])) + 1]
    return ways + [-1] * (6 - len(ways))


def scanned(
    slow: dict[tuple[str, str], float], *, noise: float = 0.01, launches: int = 6, alone: bool = False
) -> list[Measurement]:
    """Return the rows of a whole scan, one way, on links of which some are slower than their class."""
    rng = np.random.default_rng(len(slow))
    capacities = np.repeat([RATES[kind] * slow.get((kind, name), 1.0) for kind, name in LINKS], 2)
    rounds = [tuple((NAMES[a], NAMES[b]) for a, b in pairs) for pairs in tournament(range(16))]
    rounds += [tuple((b, a) for a, b in pairs) for pairs in rounds]
    if alone:
        rounds = [((a, b),) for a, b in permutations(NAMES, 2)]
    rows = []
    for number, pairs in enumerate(rounds):
        load = Load(paths=np.array([path(a, b) for a, b in pairs], dtype=np.intp), volume_bytes=float(SIZE))
        times = flow_times(load, capacities)
        for launch in range(launches):
            for repetition in range(2):
                for group, (a, b) in enumerate(pairs):
                    rows.append(
                        replace(
                            MEASUREMENT,
                            kind="pairs",
                            operation="send",
                            size_bytes=SIZE,
                            nranks=2,
                            nnodes=2,
                            concurrency="alone" if alone else "all",
                            case_id=f"round{number}",
                            draw=number,
                            launch=launch,
                            comm_id=f"{launch}.0",
                            group=group,
                            nodes=f"{NAMES.index(a)},{NAMES.index(b)}",
                            repetition=repetition,
                            time_s=float(times[group] * np.exp(rng.normal(0, noise))),
                        )
                    )
    return rows


def scan_of(rows: list[Measurement], info: RunInfo = INFO) -> PairScan:
    (scan,) = fit_pairs(framed(rows), info)
    return scan


SLOW = {("host", "m0l0h1"): 0.5, ("leaf", "m1l0"): 0.25}


def test_slow_hosts_and_uplinks_are_told_first_with_their_rates() -> None:
    scan = scan_of(scanned(SLOW))
    assert [(link.link_class, link.name) for link in scan.links[:2]] == [("leaf", "m1l0"), ("host", "m0l0h1")]
    assert [link.verdict for link in scan.links].count(Verdict.SLOWER) == 2
    for link in scan.links:
        truth = RATES[link.link_class] * SLOW.get((link.link_class, link.name), 1.0) if link.link_class != "core" else 0
        assert link.link_class in ("host", "leaf", "minipod")
        off = link.rate_bytes_per_s.value / truth - 1
        assert off < 0.03
        if not link.is_bound:
            assert off > -0.04
            assert link.rate_bytes_per_s.ci_low is not None
    against = scan.links[0].against_class
    assert against is not None and against.value == pytest.approx(0.75, abs=0.02)
    assert scan.links[0].sentence.startswith("slower than its class by 7")


def test_minipods_that_are_never_full_are_bounds() -> None:
    scan = scan_of(scanned(SLOW, launches=2))
    minipods = [link for link in scan.links if link.link_class == "minipod"]
    assert len(minipods) == 2 and all(link.is_bound for link in minipods)
    (kind,) = [kind for kind in scan.classes if kind.link_class == "minipod"]
    assert (kind.rate_bytes_per_s, kind.nlinks, kind.nbounds) == (None, 2, 2)
    assert scan.is_provisional


def test_a_healthy_fabric_has_no_outlier() -> None:
    scan = scan_of(scanned({}, noise=0.03))
    assert {link.verdict for link in scan.links} == {Verdict.CANNOT_TELL}
    hosts = [link for link in scan.links if link.link_class == "host"]
    assert [link.rate_bytes_per_s.value for link in hosts] == pytest.approx([50e6] * 16, rel=0.04)


def test_of_two_minipods_either_may_be_slow() -> None:
    scan = scan_of(scanned({("minipod", "m1"): 0.02}, launches=2))
    minipods = {link.name: link for link in scan.links if link.link_class == "minipod"}
    assert minipods["m0"].ties == ("minipod m1",) and minipods["m1"].ties == ("minipod m0",)
    assert minipods["m0"].rate_bytes_per_s.value == pytest.approx(20e6, rel=0.05)
    assert "every flow that it held back crossed these too" in minipods["m0"].sentence


def test_isolated_pairs_show_the_least_of_both_hosts_and_no_uplink() -> None:
    scan = scan_of(scanned({("host", "m0l0h1"): 0.5}, launches=2, alone=True))
    rates = {link.name: link for link in scan.links}
    assert rates["m0l0h1"].rate_bytes_per_s.value == pytest.approx(25e6, rel=0.02)
    assert rates["m0l0h2"].rate_bytes_per_s.value == pytest.approx(50e6, rel=0.02)
    assert all(rates[name].is_bound for name in ("m0l0", "m1l1", "m0", "m1"))
    matrix = scan.matrix()
    assert np.isnan(np.diag(matrix)).all() and np.isnan(matrix).sum() == 16
    slow = NAMES.index("m0l0h1")
    others = [place for place in range(16) if place != slow]
    assert matrix[slow, others] == pytest.approx(np.full(15, 25e6), rel=0.05)
    assert np.nanmin(np.delete(np.delete(matrix, slow, 0), slow, 1)) > 45e6


def test_tiers_have_a_mean_a_spread_and_the_error_of_a_sample() -> None:
    tiers = {tier.tier: tier for tier in scan_of(scanned({}, launches=2)).tiers}
    assert {name: (tier.npairs, tier.npartners) for name, tier in tiers.items()} == {
        "leaf": (48, 3),
        "minipod": (64, 4),
        "core": (128, 8),
    }
    assert tiers["leaf"].rate_bytes_per_s.value == pytest.approx(50e6, rel=0.02)
    assert tiers["core"].standard_error == pytest.approx(tiers["core"].spread / 8**0.5)


def test_each_rail_is_a_scan_in_which_a_host_has_a_link_of_its_own() -> None:
    slow = {("host", "m0l0h1"): 0.5}
    rows = [replace(row, rail=0) for row in scanned({}, launches=3)]
    rows += [replace(row, rail=1, case_id=f"{row.case_id}r") for row in scanned(slow, launches=3)]
    healthy, sick = fit_pairs(framed(rows), INFO)
    assert (healthy.rail, sick.rail) == (0, 1)
    assert not any(link.verdict is Verdict.SLOWER for link in healthy.links)
    assert [link.place for link in sick.links if link.verdict is Verdict.SLOWER] == ["rail 1 of host m0l0h1"]
    assert {link.place for link in sick.links if link.link_class == "leaf"} == {
        f"leaf {name}" for name in {host[:4] for host in NAMES}
    }


def test_a_repetition_in_which_a_flow_failed_is_left_out_whole() -> None:
    rows = scanned(SLOW, launches=2)
    broken = [failed(row) if (row.draw, row.group, row.repetition) == (0, 0, 0) else row for row in rows]
    without = [row for row in rows if (row.draw, row.repetition) != (0, 0)]
    assert scan_of(broken) == scan_of(without)


def test_an_exchange_fills_both_ways_and_its_matrix_is_symmetric() -> None:
    rows = [replace(row, operation="exchange") for row in scanned({("host", "m0l0h1"): 0.5}, launches=2, alone=True)]
    scan = scan_of([row for row in rows if int(row.nodes.split(",")[0]) < int(row.nodes.split(",")[1])])
    assert np.array_equal(scan.matrix(), scan.matrix().T, equal_nan=True)
    assert scan.links[0].name == "m0l0h1"


def test_only_the_largest_size_counts_and_other_kinds_are_no_pairs() -> None:
    rows = scanned({}, launches=1)
    small = [replace(row, size_bytes=1024, case_id=f"small{row.case_id}") for row in rows]
    assert scan_of(rows + small) == scan_of(rows)
    assert fit_pairs(framed([MEASUREMENT]), INFO) == ()

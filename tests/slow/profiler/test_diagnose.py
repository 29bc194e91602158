"""What is named in rows of an emulated tree whose slow place is known, and what is said where nothing is wrong."""

import itertools
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from spanfit.profiler.diagnose import Ailment, Diagnosis, diagnose
from spanfit.profiler.paths import Tree, hops
from spanfit.results.schema import Measurement, RunInfo, Status
from tests.unit.profiler.factory import MEASUREMENT, RUN, Noise, failed, framed, measured

HOSTS = tuple(f"m{m}l{leaf}h{h}" for m in range(2) for leaf in range(2) for h in range(2))
TREE: RunInfo = replace(
    RUN,
    node_names=HOSTS,
    minipods=tuple(name[:2] for name in HOSTS),
    switches={
        # The store sorts keys; the order of the tiers must not matter.
        "core": ("core",) * len(HOSTS),
        "leaf": tuple(name[:4] for name in HOSTS),
        "minipod": tuple(name[:2] for name in HOSTS),
    },
)
Rates = Callable[[str, str], float]
"""Rate of a cable, by its kind ("host", "leaf", "minipod") and name, in units of a host's."""
CABLES = {"host": 1.0, "leaf": 2.0, "minipod": 4.0}


def ideal(kind: str, _: str) -> float:
    return CABLES[kind]


def slower(slow_kind: str, slow_name: str, rate: float) -> Rates:
    return lambda kind, name: rate if kind == slow_kind and name.startswith(slow_name) else CABLES[kind]


def time_s(groups: Sequence[Sequence[int]], operation: str, rates: Rates) -> list[float]:
    """Return the true time of each of the groups that run at once: the slowest cable's flows over its rate."""
    moved = [hops(operation, group) for group in groups]
    flows: dict[tuple[str, str, bool], float] = {}
    used: list[set[tuple[str, str, bool]]] = []
    for group in moved:
        used.append(set())
        for a, b, share, _ in group:
            for here, there, is_up in ((HOSTS[a], HOSTS[b], True), (HOSTS[b], HOSTS[a], False)):
                cables = [("host", here)]
                cables += [("leaf", here[:4])] if here[:4] != there[:4] else []
                cables += [("minipod", here[:2])] if here[:2] != there[:2] else []
                for kind, name in cables:
                    flows[kind, name, is_up] = flows.get((kind, name, is_up), 0.0) + share
                    used[-1].add((kind, name, is_up))
    return [max(flows[cable] / rates(cable[0], cable[1]) for cable in mine) for mine in used]


def case(groups: Sequence[Sequence[int]], rates: Rates, operation: str = "send") -> list[tuple[Measurement, float]]:
    name = f"{operation} {groups}"
    return [
        (
            replace(
                MEASUREMENT,
                operation=operation,
                case_id=name,
                group=index,
                nodes=",".join(map(str, group)),
                nranks=len(group),
                nnodes=len(group),
                concurrency="alone" if len(groups) == 1 else "all",
            ),
            true_s,
        )
        for index, (group, true_s) in enumerate(zip(groups, time_s(groups, operation, rates), strict=True))
    ]


def pairs(rates: Rates) -> list[tuple[Measurement, float]]:
    """Return every pair of hosts alone, one way."""
    found = [case([pair], rates) for pair in itertools.combinations(range(len(HOSTS)), 2)]
    return list(itertools.chain.from_iterable(found))


def crossing(rates: Rates) -> list[tuple[Measurement, float]]:
    """Return groups of four that alternate between minipods, alone and two at once, and groups that stay in one."""
    rings = [[(0, 4, 1, 5)], [(2, 6, 3, 7)], [(0, 4, 1, 5), (2, 6, 3, 7)], [(0, 6, 1, 7), (2, 4, 3, 5)]]
    stay = [[(0, 1, 2, 3)], [(4, 5, 6, 7)], [(0, 1, 2, 3), (4, 5, 6, 7)]]
    return list(itertools.chain.from_iterable(case(groups, rates, "all_reduce") for groups in rings + stay))


def rows_of(
    truths: list[tuple[Measurement, float]], seed: int = 1, noise: Noise | None = None, launches: int = 3
) -> list[Measurement]:
    rng = np.random.default_rng(seed)
    rows = measured(rng, truths, launches=launches, noise=noise or Noise(launch=0.05, unit=0.02, row=0.02))
    return [replace(row, case_id=truths[row.position][0].case_id) for row in rows]


def diagnosed(truths: list[tuple[Measurement, float]], seed: int = 1, noise: Noise | None = None) -> Diagnosis:
    return diagnose(framed(rows_of(truths, seed, noise)), TREE)


def test_nothing_stands_out_in_a_healthy_fabric() -> None:
    for seed in range(12):
        found = diagnosed(pairs(ideal) + crossing(ideal), seed)
        assert found.findings == ()
        assert found.unseen == ()
        assert found.sentences()[0].startswith("nothing stands out in ")


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", HOSTS)
def test_a_host_at_half_rate_is_named_alone(name: str, seed: int) -> None:
    (finding,) = diagnosed(pairs(slower("host", name, 0.5)), seed).findings
    assert finding.places == (f"host {name}",)
    assert finding.ailment is Ailment.SLOW
    assert finding.slowdown is not None
    assert finding.slowdown.ci_low is not None and finding.slowdown.ci_high is not None
    assert finding.slowdown.ci_low < 2.0 * 1.02 and finding.slowdown.ci_high > 2.0 * 0.98


@pytest.mark.parametrize("leaf", ["m0l0", "m0l1", "m1l0", "m1l1"])
def test_a_slow_leaf_uplink_is_told_from_its_hosts_and_its_minipod(leaf: str) -> None:
    (finding,) = diagnosed(pairs(slower("leaf", leaf, 0.5))).findings
    assert finding.places == (f"the uplink of leaf {leaf}",)


def test_with_two_minipods_their_uplinks_and_the_core_cannot_be_told_apart() -> None:
    (finding,) = diagnosed(pairs(slower("minipod", "m1", 0.5))).findings
    assert set(finding.places) == {
        "the uplink of minipod m0",
        "the uplink of minipod m1",
        "all uplinks of the minipod tier",
        "core core (the switch with all its links)",
    }
    assert "do not tell apart" in finding.sentence


def test_a_minipod_whose_switch_is_slow_is_named() -> None:
    spine = lambda kind, name: 0.5 if kind in ("leaf", "minipod") and name.startswith("m1") else CABLES[kind]  # noqa: E731
    (finding,) = diagnosed(pairs(spine)).findings
    assert finding.places == ("minipod m1 (the switch with all its links)",)


def test_two_slow_hosts_are_both_named() -> None:
    two = lambda kind, name: 0.4 if (kind, name) in (("host", HOSTS[1]), ("host", HOSTS[6])) else CABLES[kind]  # noqa: E731
    found = diagnosed(pairs(two)).findings
    assert {finding.places for finding in found} == {(f"host {HOSTS[1]}",), (f"host {HOSTS[6]}",)}


def test_a_shared_core_is_found_though_every_pair_alone_is_fine() -> None:
    """NVIDIA/nccl#1453: every pair of nodes is fine, groups across two racks are slow."""
    shared = slower("minipod", "m", 1.0)
    assert diagnosed(pairs(shared)).findings == ()
    (finding,) = diagnosed(pairs(shared) + crossing(shared)).findings
    assert finding.ailment is Ailment.NARROW
    assert "all uplinks of the minipod tier" in finding.places
    assert not any(place.startswith(("host", "leaf")) for place in finding.places)
    assert "have it to themselves" in finding.sentence


def on_rails(
    groups: Sequence[Sequence[int]], nic: Callable[[int, str], float], nrails: int = 2, operation: str = "send"
) -> list[tuple[Measurement, float]]:
    """Return the groups on each rail, one rail after the other; ``nic`` is the rate of a host's link on a rail."""

    def rates(rail: int) -> Rates:
        return lambda kind, name: nic(rail, name) if kind == "host" else 99

    return [
        (replace(truth, rail=rail, case_id=f"{truth.case_id} on {rail}"), true_s)
        for rail in range(nrails)
        for truth, true_s in case(groups, rates(rail), operation)
    ]


def pairs_on_rails(nic: Callable[[int, str], float]) -> list[tuple[Measurement, float]]:
    found = [on_rails([pair], nic) for pair in itertools.combinations(range(len(HOSTS)), 2)]
    return list(itertools.chain.from_iterable(found))


def one_nic(slow_rail: int, slow_host: str, rate: float) -> Callable[[int, str], float]:
    return lambda rail, host: rate if (rail, host) == (slow_rail, slow_host) else 1.0


def every_nic(slow_host: str, rate: float) -> Callable[[int, str], float]:
    return lambda _, host: rate if host == slow_host else 1.0


def test_a_group_slower_than_its_twins_on_the_same_hosts_is_named() -> None:
    """NVIDIA/nccl#820: one process group of several on the same hosts uses a NIC far from its GPU."""
    everyone = [tuple(range(8))]
    twins = on_rails(everyone, one_nic(2, HOSTS[5], 0.5), 4, "all_reduce")
    (finding,) = diagnose(framed(rows_of(twins, launches=6)), TREE).findings
    assert finding.ailment is Ailment.TWIN
    assert finding.places == tuple(f"rail 2 of host {name}" for name in HOSTS)
    assert finding.slowdown is not None and finding.slowdown.value == pytest.approx(2, rel=0.05)
    assert finding.sentence.startswith(f"the group of rail 2 on hosts {', '.join(HOSTS)} takes ")
    assert "which GPU it is mapped to" in finding.sentence


def test_draws_of_nodes_tell_whose_rail_makes_twins_slow() -> None:
    draws = ((0, 1, 4, 5), (1, 2, 5, 6), (0, 3, 4, 7), (2, 3, 6, 7), (1, 3, 4, 6))
    twins = [
        (replace(truth, draw=draw), true_s)
        for draw, nodes in enumerate(draws)
        for truth, true_s in on_rails([nodes], one_nic(1, HOSTS[5], 0.9), 2, "all_reduce")
    ]
    noise = Noise(launch=0.05, unit=0.003, row=0.003)
    (finding,) = diagnose(framed(rows_of(twins, launches=8, noise=noise)), TREE).findings
    # A tenth is too little for what tells places apart, but not for twins.
    assert (finding.ailment, finding.places) == (Ailment.TWIN, (f"rail 1 of host {HOSTS[5]}",))


@pytest.mark.parametrize("name", HOSTS[::3])
def test_a_slow_nic_is_one_finding_with_what_its_host_carries_on_other_rails(name: str) -> None:
    truths = pairs_on_rails(one_nic(1, name, 0.1))
    truths = [(replace(truth, kind="pairs"), true_s) for truth, true_s in truths]
    truths += on_rails([tuple(range(8))], one_nic(1, name, 0.1), 2, "all_reduce")
    (finding,) = diagnose(framed(rows_of(truths)), TREE).findings
    assert (finding.ailment, finding.places) == (Ailment.SLOW, (f"rail 1 of host {name}",))
    # A MiB a second is 8.39 Mbit/s.
    rates = re.search(r"it carries (\d+) kbit/s, rail 0 of that host (?:at least )?(\d\.\d+) Mbit/s", finding.sentence)
    assert rates is not None
    assert [float(rate) for rate in rates.groups()] == pytest.approx([839, 8.39], rel=0.1)
    assert "times as long as its twins on other rails" in finding.sentence


def test_a_host_whose_every_rail_is_slow_is_the_host() -> None:
    (finding,) = diagnosed(pairs_on_rails(every_nic(HOSTS[3], 0.5))).findings
    assert (finding.ailment, finding.places) == (Ailment.SLOW, (f"host {HOSTS[3]}",))


def test_a_rail_that_is_slow_everywhere_is_that_rail_of_every_host() -> None:
    (finding,) = diagnosed(pairs_on_rails(lambda rail, _: 0.5 if rail == 1 else 1.0)).findings
    assert finding.places == ("rail 1 of every host",)


def test_nothing_stands_out_on_healthy_rails() -> None:
    healthy = pairs_on_rails(lambda *_: 1.0) + on_rails([tuple(range(8))], lambda *_: 1.0, 2, "all_reduce")
    for seed in range(6):
        found = diagnosed(healthy, seed)
        assert (found.findings, found.unseen) == ((), ())


def test_all_rails_at_once_do_not_share_a_host_s_link() -> None:
    tree = Tree(HOSTS, TREE.switches, rails=(0, 1))
    (loads, _) = tree.loads([hops("send", (0, 4), rail) for rail in (0, 1)])
    by_name = {str(place): load for place, load in loads.items()}
    assert by_name["host m0l0h0"] == by_name["rail 0 of host m0l0h0"] == by_name["rail 0 of every host"] == 1.0
    assert by_name["the uplink of minipod m0"] == 2.0
    assert "rail 1 of host m0l0h0" not in by_name


def test_speed_that_drifts_within_the_hour_is_found_and_blames_no_host() -> None:
    """NVIDIA/nccl#883: the same test becomes slower while it goes on."""
    rows = rows_of(pairs(ideal), launches=8, noise=Noise(launch=0.01, unit=0.01, row=0.02))
    assert diagnose(framed(rows), TREE).findings == ()
    drifting = [replace(row, time_s=row.time_s * math.exp(0.06 * row.launch)) for row in rows]
    (finding,) = diagnose(framed(drifting), TREE).findings
    assert (finding.ailment, finding.places) == (Ailment.DRIFT, ("all cases",))
    assert finding.slowdown is not None and finding.slowdown.value == pytest.approx(math.exp(0.06 * 7), rel=0.03)


def test_loss_shows_as_erratic_times_of_one_host() -> None:
    rng = np.random.default_rng(5)
    lossy = slower("host", HOSTS[3], 0.5)
    rows = [
        replace(row, time_s=row.time_s * math.exp(rng.normal(0, 0.4))) if "3" in row.nodes.split(",") else row
        for row in rows_of(pairs(lossy))
    ]
    (finding,) = diagnose(framed(rows), TREE).findings
    assert finding.places == (f"host {HOSTS[3]}",)
    assert finding.ailment is Ailment.ERRATIC
    assert "packets are lost" in finding.sentence


@pytest.mark.parametrize(
    ("reason", "ailment"),
    [
        ("rank 2 on m0l1h0 is stopped (process state T)", Ailment.STUCK),
        ("rank 2 on m0l1h0 did not get past phase check of visit 3, while others wait in phase timed", Ailment.STUCK),
        ("rank 2 on m0l1h0 was ended by signal 9 (SIGKILL)", Ailment.DEAD),
        ("host m0l1h0 was excluded after launch 0: rank 2 on m0l1h0 was ended by signal 9 (SIGKILL)", Ailment.DEAD),
    ],
)
def test_hosts_that_failed_rows_name_are_dead_or_stuck(reason: str, ailment: Ailment) -> None:
    rows = rows_of(pairs(ideal))
    (finding,) = diagnose(framed([*rows, failed(rows[0], reason)]), TREE).findings
    assert (finding.ailment, finding.places) == (ailment, ("host m0l1h0",))
    assert reason in finding.sentence


def test_hosts_that_no_group_passed_are_named_as_unseen() -> None:
    truths = [truth for truth in pairs(ideal) if "7" not in truth[0].nodes.split(",")]
    found = diagnosed(truths)
    assert found.findings == ()
    assert found.unseen == ("host m1l1h1",)
    assert "cannot tell, since too few groups passed: host m1l1h1" in found.sentences()


def test_a_run_without_times_still_names_who_failed() -> None:
    row = failed(rows_of(pairs(ideal))[0], "rank 1 on m0l0h1 was ended by signal 9 (SIGKILL)")
    found = diagnose(framed([replace(row, status=Status.FAILED)]), TREE)
    assert [finding.places for finding in found.findings] == [("host m0l0h1",)]
    assert len(found.unseen) == len(HOSTS)


def test_flows_that_share_a_link_are_counted_in_the_busier_direction() -> None:
    tree = Tree(HOSTS, TREE.switches)
    loads = tree.loads([hops("send", (0, 4)), hops("send", (1, 5)), hops("send", (6, 2))])
    uplink = next(place for place in loads[0] if str(place) == "the uplink of minipod m0")
    assert [group[uplink] for group in loads] == [2.0, 2.0, 2.0]
    leaf = next(place for place in loads[2] if str(place) == "the uplink of leaf m0l1")
    assert loads[2][leaf] == 1.0
    assert leaf not in loads[0]

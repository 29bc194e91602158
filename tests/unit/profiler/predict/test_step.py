from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spanfit.errors import ConfigError
from spanfit.profiler.predict import step
from spanfit.profiler.predict.collectives import Library
from spanfit.profiler.predict.network import Network
from spanfit.profiler.predict.parameters import Parameters, ParametersFile
from spanfit.profiler.predict.ranks import Cast, everyone, run_step
from spanfit.profiler.predict.step import StepPrediction, StepPredictor, compute_s, seated
from spanfit.topology.model import RankMap
from spanfit.workload.dtypes import Dtype
from spanfit.workload.job import Job
from spanfit.workload.program import Compute, Receive, Timer
from spanfit.workload.schedules import Schedule
from spanfit.workload.script import Script
from tests.unit.profiler.predict.factory import JOB, PLAIN, cluster, fabric, job, network, rank_map
from tests.unit.workload.factory import job as model_job

EIGHT = cluster()
UNFAIR = replace(PLAIN, spread=0.4, burst_bytes=1e4, latency_s=1e-4)


def predicted(job: Job, order: Sequence[int] | None = None, told: ParametersFile | None = None) -> StepPrediction:
    return StepPredictor(job, EIGHT, told or fabric()).predict(rank_map(EIGHT, order))


def test_a_pipeline_of_two_stages_takes_what_it_takes_by_hand() -> None:
    # Stage 0 sends at 10 and 20 ms; each message takes 40 ms, one after the other: they arrive at 50 and 90 ms.
    # Stage 1 ends its forwards at 60 and 100 ms, its backwards at 120 and 140 ms, and sends both gradients back:
    # they arrive at 160 and 200 ms, and stage 0 ends its backwards at 180 and 220 ms.
    found = predicted(JOB, [0, 4], fabric(library=Library.GLOO))
    assert found.time_s.value == pytest.approx(0.220)
    assert found.communication_share == pytest.approx(1 - 0.06 / 0.220)
    assert found.busiest_uplink_bytes == pytest.approx(80_000)
    assert found.busiest_uplink.startswith("minipod m")


def test_receives_that_are_posted_when_they_are_needed_hold_messages_back() -> None:
    # The second message waits for stage 1 to end its first forward, at 60 ms, and arrives at 100 ms: 30 ms later than
    # stage 1 could have used it in all, since the second gradient waits for stage 0 in the same way.
    found = predicted(JOB, [0, 4], fabric(library=Library.NCCL))
    assert found.time_s.value == pytest.approx(0.250)


@pytest.mark.parametrize("library", list(Library))
def test_what_stays_in_a_minipod_loads_no_uplink(library: Library) -> None:
    found = predicted(JOB, [0, 1], fabric(library=library))
    assert (found.busiest_uplink, found.busiest_uplink_bytes) == ("", 0.0)


def test_a_ring_that_alternates_takes_longer_by_what_it_crosses() -> None:
    one_column = replace(JOB, dp=4, pp=1, forward_s=0.0, backward_s=0.0)
    times_s = [
        predicted(one_column, order, fabric(library=library)).time_s.value
        for library in (Library.GLOO, Library.NCCL)
        for order in ([0, 1, 4, 5], [0, 4, 1, 5])
    ]
    assert times_s == pytest.approx([0.12, 0.24] * 2)


def test_the_interval_holds_the_error_of_the_fit() -> None:
    found = predicted(JOB, [0, 4]).time_s
    assert found.ci_low is not None and found.ci_low == pytest.approx(found.value * 0.9616, rel=1e-3)


def test_draws_come_from_the_seed() -> None:
    def drawn(seed: int) -> StepPrediction:
        told = fabric(UNFAIR, Library.GLOO)
        return StepPredictor(job(4, 2), EIGHT, told, ndraws=3, seed=seed).predict(rank_map(EIGHT))

    assert drawn(0) == drawn(0) != drawn(9)


def test_local_ranks_side_by_side_share_the_link_of_their_node() -> None:
    bytes_only = replace(JOB, forward_s=0.0, backward_s=0.0)
    for told in (fabric(), fabric(library=Library.GLOO)):
        alone, both = (
            StepPredictor(bytes_only, EIGHT, told, ngpus_per_node=ngpus).step_time_s(
                RankMap(node_names=("m0h0", "m0h1"), ngpus_per_node=ngpus)
            )
            for ngpus in (1, 2)
        )
        assert both == pytest.approx(2 * alone)


def test_placements_that_differ_in_names_only_are_simulated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[int] = []

    def counted(cast: Cast, network: Network, parameters: Parameters, library: Library, seed: int) -> float:
        ran.append(seed)
        return run_step(cast, network, parameters, library, seed)

    monkeypatch.setattr(step, "run_step", counted)
    predictor = StepPredictor(job(4, 2), EIGHT, fabric())
    orders = ([0, 1, 2, 3, 4, 5, 6, 7], [7, 6, 5, 4, 3, 2, 1, 0], [0, 4, 1, 5, 2, 6, 3, 7])
    found = [predictor.predict(rank_map(EIGHT, order)) for order in orders]
    assert len(ran) == 2
    assert found[0].time_s == found[1].time_s != found[2].time_s
    assert [each.time_s.value for each in found] == [predictor.step_time_s(rank_map(EIGHT, order)) for order in orders]


def test_compute_of_unknown_time_is_refused() -> None:
    with pytest.raises(ConfigError, match="stage 3: found no time"):
        compute_s((Compute(timer=Timer("compute", 3)),))


def test_programs_that_do_not_fit_are_refused() -> None:
    lonely = (Receive(timer=Timer("pp_comm", 0), count=1, dtype=Dtype.FLOAT32, peer=1),)
    cast = everyone(Script(programs=(lonely, ()), chains=((0, 1),), groups={}), network(EIGHT, [0, 1]), Library.NCCL)
    with pytest.raises(ConfigError, match="ranks 0: found programs that wait for ever"):
        run_step(cast, network(EIGHT, [0, 1]), PLAIN, Library.NCCL, 0)
    with pytest.raises(ConfigError, match="found 8 ranks, expected 2"):
        predicted(JOB)


def test_placements_that_do_not_fit_the_predictor_are_refused_with_all_reasons() -> None:
    twice = RankMap(node_names=("m0h0", "m0h0"), ngpus_per_node=1)
    with pytest.raises(ConfigError, match="placement: found m0h0 more than once, expected every node once"):
        StepPredictor(JOB, EIGHT, fabric()).step_time_s(twice)
    with pytest.raises(ConfigError, match=r"found 2 ranks, expected 4.*found 1 ranks on a node, expected 2.*m0h0"):
        StepPredictor(JOB, EIGHT, fabric(), ngpus_per_node=2).traffic(twice)


def test_nodes_of_cells_become_those_of_ranks_in_the_order_of_the_layout() -> None:
    model = model_job(dp=4, pp=2)
    names = tuple(f"row{row}column{column}" for row in range(2) for column in range(2))
    assert seated(model, names, 2).node_names == ("row0column0", "row1column0", "row0column1", "row1column1")
    assert seated(JOB, names[:2], 2).node_names == names[:2]


ORDERS = st.permutations(range(8))
SHAPES = st.sampled_from([(4, 2, Schedule.GPIPE), (2, 4, Schedule.ONE_F_ONE_B), (8, 1, Schedule.GPIPE)])


@settings(max_examples=40, deadline=None)
@given(ORDERS, SHAPES, st.floats(1.05, 4), st.sampled_from(list(Library)))
def test_links_that_are_all_faster_never_slow_a_step_down(
    order: list[int], shape: tuple[int, int, Schedule], factor: float, library: Library
) -> None:
    dp, pp, schedule = shape
    told = replace(JOB, dp=dp, pp=pp, schedule=schedule)
    slow = predicted(told, order, fabric(library=library)).time_s.value
    faster = replace(PLAIN, rates_bytes_per_s={kind: rate * factor for kind, rate in PLAIN.rates_bytes_per_s.items()})
    fast = predicted(told, order, fabric(faster, library)).time_s.value
    assert slow / factor * (1 - 1e-6) <= fast <= slow * (1 + 1e-6)


@settings(max_examples=25, deadline=None)
@given(ORDERS, SHAPES)
def test_ranks_that_are_alike_stand_for_one_another(order: list[int], shape: tuple[int, int, Schedule]) -> None:
    dp, pp, schedule = shape
    told = replace(JOB, dp=dp, pp=pp, schedule=schedule)
    all_of_them = predicted(told, order)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(step, "EVERYONE_UP_TO", 1)
        few = predicted(told, order)
    assert few.time_s.value == pytest.approx(all_of_them.time_s.value, rel=0.05)
    assert few.busiest_uplink_bytes == pytest.approx(all_of_them.busiest_uplink_bytes)

from dataclasses import asdict, replace
from pathlib import Path

import pandas as pd
import pytest

from spanfit.errors import ConfigError
from spanfit.profiler.curves import fit_curves, join_curves
from spanfit.results.importers.log import LogStatus
from spanfit.results.importers.pooling import ImportRequest, pool
from spanfit.results.importers.sources import read_sources
from spanfit.results.schema import Measurement, RunInfo, Status
from spanfit.topology.model import Cluster, Node
from tests.unit.results.importers.rendering import V213, foot, head, writes
from tests.unit.results.importers.reports import REPORT, Report
from tests.unit.results.importers.test_nccl_text import ROW
from tests.unit.results.importers.test_osu import COLLECTIVE

CLUSTER = Cluster(
    name="demo",
    tiers=("leaf", "minipod", "core"),
    nodes=tuple(Node(name=f"n{i}.site", fabric=(f"leaf{i // 2}", f"pod{i // 2}", "core")) for i in range(4)),
)
REQUEST = ImportRequest(
    campaign="night", origin={}, started_at="2026-01-02T03:04:05+00:00", ended_at="2026-01-02T03:14:05+00:00"
)
NARROW, WIDE = ("n0", "n0", "n1", "n1"), ("n0", "n0", "n2", "n2")


def pooled(
    texts: dict[str, str], request: ImportRequest = REQUEST, operation: str = ""
) -> tuple[RunInfo, tuple[Measurement, ...]]:
    return pool(read_sources(texts, operation=operation), CLUSTER, request)


def of_spans(nruns: int) -> dict[str, str]:
    """Return reports of runs in one minipod and across two, where these take twice as long."""
    narrow = {f"narrow{i}.json": replace(REPORT, hosts=NARROW, time_us=100.0 + i).render() for i in range(nruns)}
    wide = {f"wide{i}.json": replace(REPORT, hosts=WIDE, time_us=200.0 + 2 * i).render() for i in range(nruns)}
    return narrow | wide


def test_each_run_is_a_launch_and_curves_show_what_the_span_costs() -> None:
    info, rows = pooled(of_spans(6))
    assert (info.engine, info.backend, info.launches, info.ngpus_per_node) == ("nccl-tests", "nccl", 6, 2)
    assert (info.node_names, info.minipods) == (("n0.site", "n1.site", "n2.site"), ("pod0", "pod0", "pod1"))
    assert (info.gpu_model, info.versions["NCCL"]) == ("NVIDIA H100 80GB HBM3", "22807")
    assert {(row.span, row.nodes, row.launch) for row in rows} == {
        (span, nodes, launch) for span, nodes in ((1, "0,1"), (2, "0,2")) for launch in range(6)
    }
    assert len({row.comm_id for row in rows}) == 12 and {row.dtype for row in rows} == {"float32"}
    assert [row.time_resolution_s for row in rows] == pytest.approx([5e-13] * 48)
    frame = pd.DataFrame([asdict(row) for row in rows])
    points = fit_curves(frame)
    (wide,) = [point for point in points if point.span == 2 and point.size_bytes == 1 << 22 and not point.in_place]
    assert wide.loss is not None and wide.loss.estimate.value == pytest.approx(0.5) and wide.nunits == 6
    assert all(curve.fit for curve in join_curves(frame, points))


def test_hosts_that_the_cluster_lacks_are_named_with_their_file() -> None:
    with pytest.raises(ConfigError) as refused:
        pooled({"a.json": replace(REPORT, hosts=("x", "x", "y", "n0")).render(), "b.json": REPORT.render()})
    assert str(refused.value).startswith("a.json: hosts: found x, y, expected nodes of cluster demo")


def test_a_program_that_prints_no_hosts_needs_them_in_rank_order() -> None:
    with pytest.raises(ConfigError, match=r"osu\.txt: does not name the host of each rank; give them .* with --nodes"):
        pooled({"osu.txt": COLLECTIVE})
    _, rows = pooled({"osu.txt": COLLECTIVE}, replace(REQUEST, nodes=("n0", "n2", "n1", "n3")))
    assert {(row.nranks, row.span, row.rank_order, row.nodes) for row in rows} == {(4, 2, "alternating", "0,2,1,3")}
    assert rows[-1].time_min_s < rows[-1].time_s


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (
            replace(REPORT, json_version=2),
            "version: 2.19.6+ (JSON version 3) in a; 2.19.2-2.19.5 (JSON version 2) in b",
        ),
        (replace(REPORT, nccl_version=22304), "NCCL library: 22807 in a; 22304 in b"),
        (replace(REPORT, environment=["NCCL_ALGO=Tree"]), "NCCL_ALGO: unset in a; Tree in b"),
        (replace(REPORT, hosts=("n0", "n1")), "ranks on each node: 2 in a; 1 in b"),
    ],
)
def test_unlike_runs_are_pooled_only_where_that_is_asked_for(other: Report, said: str) -> None:
    texts = {"a": REPORT.render(), "b": other.render()}
    with pytest.raises(ConfigError) as refused:
        pooled(texts)
    assert said in str(refused.value) and "--pool-unlike" in str(refused.value)
    assert len(pooled(texts, replace(REQUEST, pool_unlike=True))[1]) == 8


def test_a_launch_that_failed_before_any_program_spoke_is_pooled_with_runs_of_any() -> None:
    rccl = "\n".join([*head(V213, ("n0", "n1")), "".join(writes(V213, ROW)), *foot(V213, 27.165), ""])
    rccl = rccl.replace("# Using devices", "rccl-tests: Version develop:ae3e635\n# Using devices")
    texts = {"a.log": rccl, "b.log": "srun: error: Unable to create step for job 7: Requested nodes are busy\n"}
    info, rows = pooled(texts, replace(REQUEST, nodes=("n0", "n1")), "all_reduce")
    assert (info.engine, info.backend) == ("rccl-tests", "rccl")
    assert [(row.status, row.operation, row.nranks) for row in rows] == [
        (Status.OK, "all_reduce", 2),
        (Status.OK, "all_reduce", 2),
        (Status.FAILED, "all_reduce", 0),
    ]
    assert rows[-1].reason.startswith("srun: error: Unable to create step")


def test_settings_that_only_make_nccl_talk_do_not_matter() -> None:
    talking = replace(REPORT, environment=["NCCL_DEBUG=INFO"]).render()
    assert len(pooled({"a": REPORT.render(), "b": talking})[1]) == 8


def test_times_of_the_two_clocks_are_never_pooled() -> None:
    texts = {"a": REPORT.render(), "b": replace(REPORT, time_key="cpu_time").render()}
    with pytest.raises(ConfigError, match="clock: GPU in a; CPU in b"):
        pooled(texts, replace(REQUEST, pool_unlike=True))
    info, _ = pooled({"b": texts["b"]})
    assert "CPU times" in info.transport


def test_what_failed_is_a_row_with_its_reason() -> None:
    cut = (
        REPORT.head()
        + REPORT.result(1 << 20)
        + ","
        + REPORT.cells(1 << 22)
        + f',"out_of_place":{REPORT.half(1 << 22)},'
    )
    _, rows = pooled(
        {"cut": cut, "early": REPORT.head(), "wrong": replace(REPORT, nwrong="2.0", out_of_bounds=4).render()}
    )
    ended = [(row.launch, row.size_bytes, row.in_place, row.status) for row in rows if row.status is not Status.OK]
    assert ended == [
        (0, 1 << 22, True, Status.FAILED),
        (1, 0, False, Status.FAILED),
        *((2, size, place, Status.WRONG_RESULT) for size in REPORT.sizes for place in (False, True)),
    ]
    (empty,) = pooled({"a": replace(REPORT, sizes=()).render()})[1]
    assert (empty.status, empty.reason) == (Status.FAILED, "no row")
    assert all(row.reason and row.time_s != row.time_s for row in rows if row.status is not Status.OK)
    assert fit_curves(pd.DataFrame([asdict(row) for row in rows]))


def test_worlds_of_one_rank_each_are_no_result_of_one_world() -> None:
    text = (Path(__file__).parents[3] / "data" / "nccl_tests" / "v2178_two_labelled_worlds.log").read_text()
    (source,) = read_sources({"a.log": text})
    assert [run.status for run in source.runs] == [LogStatus.FAILED] * 2
    assert all("built without MPI=1" in run.timings[-1].reason for run in source.runs)


def test_a_log_that_was_cut_behind_its_last_half_has_a_row_that_failed() -> None:
    text = (Path(__file__).parents[3] / "data" / "nccl_tests" / "v2178_timestamps_cut.log").read_text()
    (run,) = read_sources({"a.log": text})[0].runs
    assert (run.status, run.timings[-1].status) == (LogStatus.TRUNCATED, Status.FAILED)


def test_groups_at_once_are_one_row_of_the_widest() -> None:
    _, rows = pooled({"a": replace(REPORT, hosts=("n0", "n0", "n1", "n2"), groups=(0, 1, 0, 1)).render()})
    assert {(row.group, row.nranks, row.span, row.concurrency) for row in rows} == {(1, 2, 2, "all")}


def test_an_operation_without_a_word_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"a: operation: found new_perf, expected one that spanfit knows"):
        pooled({"a": replace(REPORT, program="new_perf").render()})

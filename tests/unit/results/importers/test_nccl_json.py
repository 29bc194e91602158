import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanfit.results.importers.log import ErrorClass, LogRun, LogStatus, Printed
from spanfit.results.importers.nccl_json import read_json
from tests.unit.results.importers.reports import REPORT, Report


def read_one(text: str) -> LogRun:
    (run,) = read_json(text)
    return run


@pytest.mark.parametrize(("version", "told"), [(1, "2.17.3-2.17.8"), (2, "2.19.2-2.19.5"), (3, "2.19.6+")])
def test_a_report_of_each_version_is_read_whole(version: int, told: str) -> None:
    run = read_one(replace(REPORT, json_version=version).render())
    assert (run.status, run.error, run.program, run.warnings) == (LogStatus.OK, None, "all_reduce_perf", ())
    assert run.version == f"{told} (JSON version {version})"
    assert (run.nccl_library, run.nranks, run.ranks_per_group) == (22807, 4, None)
    assert (run.out_of_bounds, run.validation, run.wrong_column) == (0, 1, "#wrong")
    assert [device.host for device in run.devices] == ["n0", "n0", "n1", "n1"]
    assert [(row.size_bytes, row.nelements, row.dtype, row.redop, row.root) for row in run.rows] == [
        (1 << 20, 1 << 18, "float", "sum", -1),
        (1 << 22, 1 << 20, "float", "sum", -1),
    ]
    half = run.rows[0].ip
    assert half is not None and half.time_us == Printed(value=100.0, text="100.000000")
    assert half.time_us.resolution == pytest.approx(5e-7) and half.wrong == 0
    assert (run.parameters["nThread"], run.parameters["step"], run.parameters["blocking"]) == ("1", "4", "false")


def test_a_report_that_was_indented_again_says_the_same() -> None:
    text = REPORT.render()
    again, run = read_one(json.dumps(json.loads(text), indent=2)), read_one(text)
    assert [row.size_bytes for row in again.rows] == [row.size_bytes for row in run.rows]
    assert again.devices == run.devices and again.status is LogStatus.OK


def test_each_process_stands_for_all_its_gpus() -> None:
    assert read_one(replace(REPORT, hosts=("n0", "n1"), ngpus=8).render()).nranks == 16


def test_of_the_environment_only_what_is_on_the_list_is_kept() -> None:
    lines = ["NCCL_ALGO=Ring", "HOME=x", "NCCL_SECRET_KEY=x", "AWS_TOKEN=x", "NCCL_NET_PLUGIN=a=b"]
    run = read_one(replace(REPORT, environment=lines).render())
    assert run.environment == {"NCCL_ALGO": "Ring", "NCCL_NET_PLUGIN": "a=b"}


def test_numbers_that_are_not_json_are_read() -> None:
    report = replace(REPORT, sizes=(1024,))
    text = report.render().replace('"alg_bw":0.010240', '"alg_bw":inf').replace('"bus_bw":0.015360', '"bus_bw":"nan"')
    half = read_one(text).rows[0].oop
    assert half is not None and half.algbw_text == "Infinity"
    assert half.busbw_text == "nan"


def test_an_unchecked_half_has_no_count_and_a_trace_has_no_first_half() -> None:
    run = read_one(replace(REPORT, nwrong="null").render())
    assert run.rows[0].oop is not None and run.rows[0].oop.wrong is None
    text = REPORT.render().replace(f'"out_of_place":{REPORT.half(1 << 20)}', '"out_of_place":null')
    run = read_one(text)
    assert run.rows[0].oop is None and run.rows[0].ip is not None and run.partial_rows == ()


def test_cpu_times_and_times_of_iterations_are_told() -> None:
    half = read_one(replace(REPORT, time_key="cpu_time").render(per_iteration=True)).rows[0].oop
    assert half is not None and half.is_cpu_time and half.per_iteration is not None
    assert (half.per_iteration.p99_us, half.per_iteration.times_us) == (119.0, (90.0, 120.0))


def test_wrong_results_and_low_bandwidth_are_no_success() -> None:
    run = read_one(replace(REPORT, out_of_bounds=3).render())
    assert (run.status, run.error_class, run.out_of_bounds) == (LogStatus.WRONG_RESULTS, ErrorClass.WRONG_RESULTS, 3)
    run = read_one(replace(REPORT, okay="false").render())
    assert (run.status, run.error_class) == (LogStatus.FAILED, ErrorClass.LOW_BANDWIDTH)


def test_valid_json_without_its_last_keys_is_a_failed_run() -> None:
    run = read_one(REPORT.head() + REPORT.result(1 << 20) + "]}")
    assert run.status is LogStatus.FAILED and len(run.rows) == 1
    assert "out_of_bounds, average_bus_bandwidth, end_time" in run.warnings[0]


def test_a_row_that_lacks_a_half_is_partial() -> None:
    text = REPORT.head() + REPORT.result(1 << 20) + "," + REPORT.cells(1 << 22)
    run = read_one(text + f',"out_of_place":{REPORT.half(1 << 22)},')
    assert run.status is LogStatus.TRUNCATED
    assert [row.size_bytes for row in run.rows] == [1 << 20]
    (partial,) = run.partial_rows
    assert partial.size_bytes == 1 << 22 and partial.oop is not None and partial.ip is None


@given(st.integers(min_value=0, max_value=len(REPORT.render()) - 1))
def test_a_cut_anywhere_keeps_every_complete_row_and_invents_none(length: int) -> None:
    text = REPORT.render()[:length]
    complete = sum(
        REPORT.result(size)[: -len(',"actual_iterations":20,"experiment_name":""}')] in text for size in REPORT.sizes
    )
    whole = read_one(REPORT.render())
    for run in read_json(text):
        assert run.status is LogStatus.TRUNCATED
        assert run.rows == whole.rows[: len(run.rows)] and len(run.rows) == complete
        assert len(run.partial_rows) <= 1


@pytest.mark.parametrize("text", ["", "[1, 2]", '{"a": 1}', "[]", "{", "# nccl-tests version 2.17.6", '{"config"'])
def test_what_is_no_report_is_no_run(text: str) -> None:
    assert read_json(text) == ()


def record(size_bytes: int, in_place: int, *, wrong: str = '"wrong":"0"', cycle: int = 0) -> str:
    return (
        f'{{"numCycle":{cycle}, "name":"AllReduce", "nodes":1, "ranks":2, "ranksPerNode":2, "gpusPerRank":1, '
        f'"size":{size_bytes}, "type":"float", "redop":"sum", "inPlace":{in_place}, "time":38.41, "algBw":27.3, '
        f'"busBw":27.3, {wrong}}}'
    )


def test_records_of_rccl_pair_up_to_rows() -> None:
    records = [record(size, place) for size in (1024, 2048) for place in (0, 1)]
    run = read_one("[\n" + ",\n".join(records) + "\n]\n")
    assert (run.program, run.nranks, run.status, run.version) == ("all_reduce_perf", 2, LogStatus.OK, "rccl-tests 2025")
    assert [(row.size_bytes, bool(row.oop), bool(row.ip), row.nelements) for row in run.rows] == [
        (1024, True, True, None),
        (2048, True, True, None),
    ]


def test_records_on_lines_of_their_own_pair_up_too() -> None:
    lines = [record(1024, place, wrong='"#wrong":"0"', cycle=cycle) for cycle in (0, 1) for place in (0, 1)]
    run = read_one("\n".join(lines))
    assert [(row.cycle, bool(row.oop and row.ip)) for row in run.rows] == [(0, True), (1, True)]


def test_a_list_of_records_without_end_is_truncated() -> None:
    records = [record(1024, 0), record(1024, 1), record(2048, 0)]
    run = read_one("[\n" + ",\n".join(records) + ",")
    assert run.status is LogStatus.TRUNCATED
    assert [row.size_bytes for row in run.rows] == [1024] and [row.size_bytes for row in run.partial_rows] == [2048]


def test_wrong_records_are_wrong_results() -> None:
    run = read_one(f"[{record(1024, 0, wrong=chr(34) + 'wrong' + chr(34) + ':' + chr(34) + '7' + chr(34))}]")
    assert run.status is LogStatus.WRONG_RESULTS and run.rows[0].oop is not None and run.rows[0].oop.wrong == 7


def test_split_groups_are_told() -> None:
    assert read_one(Report(groups=(0, 1, 0, 1)).render()).ranks_per_group == 2

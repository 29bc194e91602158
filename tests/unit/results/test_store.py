import json
from collections.abc import Callable
from dataclasses import asdict, fields, replace
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spanfit.errors import StoreError
from spanfit.results.schema import SCHEMA_VERSION, Measurement
from spanfit.results.store import Store, arrow_schema
from tests.unit.profiler.factory import MEASUREMENT, RUN, failed

ROWS = [MEASUREMENT, replace(MEASUREMENT, repetition=1, time_s=2.0), failed(replace(MEASUREMENT, repetition=2))]


def filled(folder: Path, *run_ids: str) -> Store:
    store = Store(folder)
    for day, run_id in enumerate(run_ids, 1):
        info = replace(RUN, run_id=run_id, started_at=f"2026-01-{day:02d}T00:00:00+00:00")
        store.write(info, [replace(row, run_id=run_id) for row in ROWS])
    return store


def test_a_run_comes_back_as_it_was_written(tmp_path: Path) -> None:
    store = Store(tmp_path / "new" / "store")
    path = store.write(RUN, ROWS)
    assert path == tmp_path / "new" / "store" / f"{RUN.run_id}.parquet"
    info, frame = store.read(RUN.run_id)
    assert info == RUN
    assert list(frame.columns) == [field.name for field in fields(Measurement)]
    pd.testing.assert_frame_equal(frame, pd.DataFrame([asdict(row) for row in ROWS]), check_dtype=False)
    assert [path.name for path in path.parent.iterdir()] == [path.name]


def test_every_column_has_its_type(tmp_path: Path) -> None:
    _, frame = filled(tmp_path, "a").read("a")
    kinds = {name: str(dtype) for name, dtype in frame.dtypes.items()}
    assert (kinds["size_bytes"], kinds["time_s"], kinds["status"], kinds["arm"]) == ("int64", "float64", "str", "str")


def test_a_run_is_written_once(tmp_path: Path) -> None:
    store = filled(tmp_path, "a")
    before = (tmp_path / "a.parquet").read_bytes()
    with pytest.raises(StoreError, match=r"a\.parquet: found a finished run of this id"):
        store.write(replace(RUN, run_id="a"), [replace(MEASUREMENT, run_id="a", time_s=9.0)])
    assert (tmp_path / "a.parquet").read_bytes() == before


@pytest.mark.parametrize(
    ("info", "rows", "message"),
    [
        (replace(RUN, schema_version=99), ROWS, f"schema_version: found 99, expected {SCHEMA_VERSION}"),
        (RUN, [replace(MEASUREMENT, run_id="other")], "run_id of the measurements: found other"),
        (RUN, [], "found no measurements"),
        (replace(RUN, run_id="../out"), ROWS, "run_id: found '../out'"),
    ],
)
def test_what_is_no_run_is_refused(tmp_path: Path, info: object, rows: list[Measurement], message: str) -> None:
    with pytest.raises(StoreError, match=message):
        Store(tmp_path).write(info, rows)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_runs_are_listed_oldest_first(tmp_path: Path) -> None:
    store = filled(tmp_path, "zeta", "alpha")
    assert [info.run_id for info in store.runs()] == ["zeta", "alpha"]


def test_unfinished_runs_have_a_plan_and_no_result(tmp_path: Path) -> None:
    store = filled(tmp_path, "done")
    for name in ("done", "half", "notes"):
        (tmp_path / name).mkdir()
    for name in ("done", "half"):
        (tmp_path / name / "plan.json").write_text("{}")
    assert store.unfinished() == ("half",)
    with pytest.raises(StoreError, match="run 'half' is unfinished; finish it with: spanfit campaign run"):
        store.resolve("half")


@pytest.mark.parametrize(
    ("run", "expected"),
    [("20260102-b", "20260102-b"), ("2026", "20260102-b"), ("latest", "19990101"), ("1", "19990101")],
)
def test_runs_are_found_by_id_prefix_and_latest(tmp_path: Path, run: str, expected: str) -> None:
    assert filled(tmp_path, "20260102-b", "19990101").resolve(run) == expected


def test_an_exact_id_wins_over_longer_ones(tmp_path: Path) -> None:
    assert filled(tmp_path, "a", "ab").resolve("a") == "a"


def test_prefixes_that_fit_no_run_or_several_are_refused(tmp_path: Path) -> None:
    store = filled(tmp_path, "run-1", "run-2")
    with pytest.raises(StoreError, match="run 'run' fits run-1, run-2; give more of the id"):
        store.resolve("run")
    with pytest.raises(StoreError, match="found 'x', expected latest or one of run-1, run-2"):
        store.resolve("x")


def test_an_empty_store_and_a_missing_one_say_what_to_do(tmp_path: Path) -> None:
    assert Store(tmp_path).runs() == ()
    with pytest.raises(StoreError, match="found no finished run, expected at least one; measure one with"):
        Store(tmp_path).resolve("latest")
    for call in (Store(tmp_path / "no").runs, Store(tmp_path / "no").unfinished):
        with pytest.raises(StoreError, match="no: found nothing, expected a folder of runs"):
            call()
    with pytest.raises(StoreError, match=r"x\.parquet: not there; see the runs with: spanfit results list"):
        Store(tmp_path).read("x")


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def foreign(path: Path) -> None:
    pq.write_table(pa.table({"x": [1]}), path)


def of_version_99(path: Path) -> None:
    table = pq.read_table(path)
    document = json.dumps({**asdict(RUN), "run_id": path.stem, "schema_version": 99})
    pq.write_table(table.replace_schema_metadata({b"spanfit.run": document.encode()}), path)


def without_a_column(path: Path) -> None:
    table = pq.read_table(path)
    pq.write_table(table.drop_columns(["span"]), path)


def described_badly(path: Path) -> None:
    document = json.dumps({**asdict(RUN), "run_id": path.stem, "launches": "six"})
    pq.write_table(pq.read_table(path).replace_schema_metadata({b"spanfit.run": document.encode()}), path)


def described_in_no_json(path: Path) -> None:
    pq.write_table(pq.read_table(path).replace_schema_metadata({b"spanfit.run": b"{"}), path)


def of_another_run(path: Path) -> None:
    document = json.dumps({**asdict(RUN), "run_id": "b"})
    pq.write_table(pq.read_table(path).replace_schema_metadata({b"spanfit.run": document.encode()}), path)


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (truncated, "found no whole Parquet file, expected a finished run .*; it was cut short"),
        (emptied, "found no whole Parquet file, expected a finished run"),
        (foreign, "found a Parquet file of another program, expected a run; move it"),
        (
            of_version_99,
            f"schema_version: found 99, expected {SCHEMA_VERSION}; read it with the version of spanfit that wrote it",
        ),
        (without_a_column, r"columns: .*missing: span; unknown: none"),
        (described_badly, 'launches: found "six", expected a valid integer'),
        (described_in_no_json, "found no whole Parquet file, expected a finished run"),
        (of_another_run, "run_id: found 'b', expected 'a'"),
    ],
)
def test_files_that_are_no_run_are_refused_by_name(tmp_path: Path, harm: Callable[[Path], None], message: str) -> None:
    store = filled(tmp_path, "a")
    harm(tmp_path / "a.parquet")
    with pytest.raises(StoreError, match=rf"a\.parquet: {message}"):
        store.read("a")


def test_the_list_names_every_broken_file_and_the_others_stay_readable(tmp_path: Path) -> None:
    store = filled(tmp_path, "a", "b", "c")
    truncated(tmp_path / "a.parquet")
    foreign(tmp_path / "b.parquet")
    with pytest.raises(StoreError) as caught:
        store.runs()
    first, second = str(caught.value).splitlines()
    assert "a.parquet" in first and "b.parquet" in second
    assert len(store.read(store.resolve("c"))[1]) == 3


def test_the_schema_is_the_fields_of_a_measurement() -> None:
    schema = arrow_schema()
    assert schema.names == [field.name for field in fields(Measurement)]
    assert schema.field("time_s").type == pa.float64() and schema.field("launch").type == pa.int64()
    assert schema.field("status").type == pa.string() and not schema.field("status").nullable

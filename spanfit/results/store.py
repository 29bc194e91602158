"""The results store: a folder with one Parquet file per finished run, and a folder for each unfinished one."""

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, get_type_hints

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from spanfit import files
from spanfit.errors import ConfigError, StoreError
from spanfit.results.schema import SCHEMA_VERSION, Measurement, RunInfo

LATEST = "latest"
_RUN_KEY = b"spanfit.run"
_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_ARROW = {int: pa.int64(), float: pa.float64(), bool: pa.bool_()}


def arrow_schema() -> pa.Schema:
    """Return the columns of a run's Parquet file: the fields of ``Measurement``, in order; none is ever null."""
    hints = get_type_hints(Measurement)
    return pa.schema(
        [
            pa.field(field.name, _ARROW.get(hints[field.name], pa.string()), nullable=False)
            for field in fields(Measurement)
        ]
    )


@dataclass(frozen=True, slots=True)
class Store:
    """A folder of runs.

    Attributes
    ----------
    path : pathlib.Path
        Holds ``<run_id>.parquet`` for a finished run and a folder ``<run_id>`` for one that is not.
    """

    path: Path

    def runs(self) -> tuple[RunInfo, ...]:
        """Return the finished runs, oldest first; StoreError lists every file that is none."""
        infos, faults = [], []
        for name in self._finished():
            try:
                infos.append(self._info(name))
            except StoreError as error:
                faults.append(str(error))
        if faults:
            raise StoreError("\n".join(faults))
        return tuple(sorted(infos, key=lambda info: (info.started_at, info.run_id)))

    def unfinished(self) -> tuple[str, ...]:
        """Return the ids of the runs that have a plan but no result yet."""
        finished = set(self._finished())
        plans = sorted(self.path.glob("*/plan.json"))
        return tuple(plan.parent.name for plan in plans if plan.parent.name not in finished)

    def write(self, info: RunInfo, measurements: Sequence[Measurement]) -> Path:
        """Write a finished run, whole or not at all, and return its file.

        Raises
        ------
        StoreError
            If the run is there already, or what is given is no run of this version.
        """
        path = self._file(info.run_id)
        if fault := _unfit(info, measurements):
            raise StoreError(f"{path}: {fault}")
        if path.exists():
            raise StoreError(f"{path}: found a finished run of this id, expected none; runs are written once")
        document = json.dumps(asdict(info), sort_keys=True, allow_nan=False)
        table = pa.Table.from_pylist(
            [asdict(measurement) for measurement in measurements],
            schema=arrow_schema().with_metadata({_RUN_KEY: document.encode()}),
        )
        with files.replacing(path) as temporary:
            pq.write_table(table, temporary, compression="zstd")
        return path

    def read(self, run_id: str) -> tuple[RunInfo, pd.DataFrame]:
        """Return a finished run and its measurements, one row each, with the fields of ``Measurement`` as columns.

        Raises
        ------
        StoreError
            If the run is not there, or its file is cut short, foreign or of another schema version.
        """
        info = self._info(run_id)
        path = self._file(run_id)
        try:
            return info, pq.read_table(path).to_pandas()
        except (pa.ArrowException, OSError) as error:
            raise _unreadable(path, error) from error

    def resolve(self, run: str) -> str:
        """Return the id of a finished run from its id, a prefix that only one run has, or ``latest``.

        Raises
        ------
        StoreError
            If no run or more than one fits.
        """
        finished = self._finished()
        if run in finished:
            return run
        if not finished:
            raise StoreError(f"{self.path}: found no finished run, expected at least one; {self._next_step()}")
        if run == LATEST:
            return self.runs()[-1].run_id
        matches = [name for name in finished if name.startswith(run)]
        if len(matches) == 1:
            return matches[0]
        if matches:
            raise StoreError(f"{self.path}: run {run!r} fits {', '.join(matches)}; give more of the id")
        if run in self.unfinished():
            raise StoreError(f"{self.path}: run {run!r} is unfinished; finish it with: spanfit campaign run")
        raise StoreError(f"{self.path}: run: found {run!r}, expected {LATEST} or one of {', '.join(finished)}")

    def _next_step(self) -> str:
        if unfinished := self.unfinished():
            return f"finish {', '.join(unfinished)} with: spanfit campaign run"
        return "measure one with: spanfit campaign run"

    def _finished(self) -> tuple[str, ...]:
        if not self.path.is_dir():
            found = "a file" if self.path.exists() else "nothing"
            raise StoreError(
                f"{self.path}: found {found}, expected a folder of runs; "
                "name the store with --store, or measure a run with: spanfit campaign run"
            )
        return tuple(sorted(path.stem for path in self.path.glob("*.parquet") if not path.name.startswith(".")))

    def _file(self, run_id: str) -> Path:
        if not _RUN_ID.fullmatch(run_id):
            raise StoreError(f"run_id: found {run_id!r}, expected letters, digits, '.', '_' and '-'")
        return self.path / f"{run_id}.parquet"

    def _info(self, run_id: str) -> RunInfo:
        path = self._file(run_id)
        if not path.is_file():
            raise StoreError(f"{path}: not there; see the runs with: spanfit results list --store {self.path}")
        try:
            schema = pq.read_schema(path)
        except (pa.ArrowException, OSError) as error:
            raise _unreadable(path, error) from error
        info = _parse_info(path, schema)
        if info.run_id != run_id:
            raise StoreError(f"{path}: run_id: found {info.run_id!r}, expected {run_id!r}; rename the file back")
        return info


def _unfit(info: RunInfo, measurements: Sequence[Measurement]) -> str:
    if info.schema_version != SCHEMA_VERSION:
        return f"schema_version: found {info.schema_version}, expected {SCHEMA_VERSION}"
    if strangers := {row.run_id for row in measurements} - {info.run_id}:
        return f"run_id of the measurements: found {', '.join(sorted(strangers))}, expected only {info.run_id}"
    return "" if measurements else "found no measurements, expected a row for each case; a failed case is a row too"


def _unreadable(path: Path, error: Exception) -> StoreError:
    return StoreError(
        f"{path}: found no whole Parquet file, expected a finished run ({error}); "
        "it was cut short or is something else: fetch it again, or move it out of the store"
    )


def _parse_info(path: Path, schema: pa.Schema) -> RunInfo:
    """Return the run that a Parquet schema describes; StoreError where it is foreign or of another version."""
    text = (schema.metadata or {}).get(_RUN_KEY)
    if text is None:
        raise StoreError(f"{path}: found a Parquet file of another program, expected a run; move it out of the store")
    try:
        document: Any = json.loads(text)
    except ValueError as error:
        raise _unreadable(path, error) from None
    found = document.get("schema_version") if isinstance(document, dict) else None
    if found != SCHEMA_VERSION:
        raise StoreError(
            f"{path}: schema_version: found {found!r}, expected {SCHEMA_VERSION}; "
            "read it with the version of spanfit that wrote it, or measure again"
        )
    if not schema.remove_metadata().equals(arrow_schema()):
        missing = ", ".join(sorted(set(arrow_schema().names) - set(schema.names))) or "none"
        extra = ", ".join(sorted(set(schema.names) - set(arrow_schema().names))) or "none"
        raise StoreError(
            f"{path}: columns: found other columns or types than expected (missing: {missing}; unknown: {extra}); "
            "export the run again with the version of spanfit that wrote it"
        )
    try:
        return files.parse(RunInfo, document, str(path))
    except ConfigError as error:
        raise StoreError(str(error)) from None

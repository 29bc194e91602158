"""What the jobs of a campaign read from other files: tables of models, and placements as further arms."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from spanfit import files
from spanfit.bench.arms import DP_ALIGNED, MISALIGNED, PACKED, PP_ALIGNED, Arm
from spanfit.bench.job_file import read_models
from spanfit.bench.job_table import JobTable
from spanfit.errors import ConfigError
from spanfit.workload.models import Model

PLACEMENT_VERSION = 1
"""Of the placement files that are read; the placer, some floors up, writes them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedRanks:
    """The nodes of a placement file, in node-rank order."""

    node_names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementFile:
    """What of a placement file says where a job's grid goes.

    Attributes
    ----------
    cells : tuple of (int, int)
        Row and column of each node of ``rank_map``.
    """

    schema_version: int
    rank_map: PlacedRanks
    cells: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobInputs:
    """What was read for the jobs of a campaign.

    Attributes
    ----------
    node_names : tuple of str
        The campaign's nodes, in node-rank order.
    models : mapping of str to mapping of str to Model
        By the ``models`` of a table, "" where it names no file, the models by name.
    placements : mapping of str to PlacementFile
        By what a table calls the file.
    """

    node_names: tuple[str, ...] = ()
    models: Mapping[str, Mapping[str, Model]] = field(default_factory=dict)
    placements: Mapping[str, PlacementFile] = field(default_factory=dict)

    def arms(self, table: JobTable, nrows: int, ncolumns: int) -> tuple[Arm, ...]:
        """Return the arms of a table's placement files, called by their names without the ending.

        Raises
        ------
        ValueError
            With a line for each placement that is of another grid or of other nodes.
        """
        faults = [fault for name in table.placements for fault in self._faults(name, nrows, ncolumns)]
        names = [Path(name).stem for name in table.placements]
        for name in sorted(set(names)):
            if names.count(name) > 1 or name in (DP_ALIGNED, PP_ALIGNED, PACKED) or name.startswith(MISALIGNED):
                faults.append(f"placements: {name} is the name of another arm; rename the file")
        if faults:
            raise ValueError("\n".join(faults))
        return tuple(
            Arm(name=arm, node_ranks=self._node_ranks(name)) for arm, name in zip(names, table.placements, strict=True)
        )

    def _faults(self, name: str, nrows: int, ncolumns: int) -> Iterator[str]:
        placement = self.placements[name]
        names, cells = placement.rank_map.node_names, placement.cells
        expected = {(row, column) for row in range(nrows) for column in range(ncolumns)}
        if set(cells) != expected or not len(cells) == len(expected) == len(set(names)) == len(names):
            yield f"placements: {name} is no placement of {nrows} x {ncolumns} nodes, the grid of the job"
        if strangers := [node for node in names if node not in self.node_names]:
            yield f"placements: {name} uses {', '.join(strangers)}; expected nodes of the campaign"

    def _node_ranks(self, name: str) -> tuple[int, ...]:
        placement = self.placements[name]
        seats = {node: node_rank for node_rank, node in enumerate(self.node_names)}
        by_cell = dict(zip(placement.cells, placement.rank_map.node_names, strict=True))
        return tuple(seats[by_cell[cell]] for cell in sorted(by_cell))


def read_job_inputs(tables: Sequence[JobTable], folder: Path, node_names: tuple[str, ...]) -> JobInputs:
    """Return what the jobs name, relative to the campaign's folder; ConfigError lists every mistake of every file."""
    with_models = [table for table in tables if table.model is not None]
    faults: list[str] = []
    models: dict[str, Mapping[str, Model]] = {}
    placements: dict[str, PlacementFile] = {}
    for name in dict.fromkeys(table.models or "" for table in with_models):
        try:
            models[name] = read_models(folder / name if name else None)
        except ConfigError as error:
            faults.append(str(error))
    for name in dict.fromkeys(name for table in tables for name in table.placements):
        try:
            placements[name] = files.read_json(folder / name, PlacementFile, PLACEMENT_VERSION)
        except ConfigError as error:
            faults.append(str(error))
    if faults:
        raise ConfigError("\n".join(faults))
    return JobInputs(node_names=node_names, models=models, placements=placements)

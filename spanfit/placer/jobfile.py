"""Job files: a job to place, as people write it in TOML."""

from dataclasses import dataclass
from pathlib import Path

from spanfit import files
from spanfit.placer.model import JobSpec
from spanfit.workload.layout import MEGATRON, ParallelLayout


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFile:
    """The keys of a job file; those without a default are required.

    Attributes
    ----------
    name : str
    dp, pp, tp, cp, ep : int
        Parallel degrees.
    order : str
        Axes from the fastest to the slowest, Megatron's unless said.
    ngpus_per_node : int
    gpu_model : str or None
        Only nodes of this model are used where it is given.
    command : tuple of str
        What torchrun starts on each node; launch files need it.
    """

    __pydantic_config__ = files.CONFIG

    name: files.Name
    dp: files.Count
    pp: files.Count
    tp: files.Count = 1
    cp: files.Count = 1
    ep: files.Count = 1
    order: str = MEGATRON
    ngpus_per_node: files.Count = 8
    gpu_model: str | None = None
    command: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse degrees that give no grid of nodes."""
        self.layout().node_cells(self.ngpus_per_node)

    def layout(self) -> ParallelLayout:
        """Return the parallel layout; ValueError where the degrees or the order describe none."""
        return ParallelLayout(dp=self.dp, pp=self.pp, tp=self.tp, cp=self.cp, ep=self.ep, order=self.order)


def read_job(path: Path) -> JobSpec:
    """Return the job of a TOML file; ConfigError lists every wrong key with file, key, found and expected."""
    job = files.read_toml(path, JobFile)
    return JobSpec(
        name=job.name,
        layout=job.layout(),
        ngpus_per_node=job.ngpus_per_node,
        gpu_model=job.gpu_model,
        command=job.command,
    )

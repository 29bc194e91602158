"""Job files: a job to place, as people write it in TOML."""

from pathlib import Path

from spanfit import files
from spanfit.bench.job_file import JobFile, read_training_job
from spanfit.errors import ConfigError
from spanfit.placer.model import EdgeBytes, JobSpec
from spanfit.weights.volumes import node_bytes
from spanfit.workload.job import TrainingJob


def read_job(path: Path) -> JobSpec:
    """Return the job of a TOML file; ConfigError lists every wrong key with file, key, found and expected.

    A ``[step]`` table says what a step moves, so that a placement can tell the bytes of every uplink.
    """
    job = files.read_toml(path, JobFile)
    layout = job.layout()
    try:
        layout.node_cells(job.ngpus_per_node)
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from None
    return JobSpec(
        name=job.name,
        layout=layout,
        ngpus_per_node=job.ngpus_per_node,
        gpu_model=job.gpu_model,
        command=job.command,
        edges=_edges(read_training_job(path), job.ngpus_per_node) if job.step else None,
    )


def _edges(job: TrainingJob, ngpus_per_node: int) -> EdgeBytes | None:
    """Return what an edge carries: a ring of n nodes sends 2 (n - 1) / n of what it reduces over each.

    A job of one stage has no boundary, and no volumes by the paper's definition: None.
    """
    if job.layout.pp == 1:
        return None
    dp_bytes, pp_bytes = node_bytes(job, ngpus_per_node)
    nrows, _ = job.layout.grid(ngpus_per_node)
    return EdgeBytes(ring_bytes=2 * (nrows - 1) / nrows * dp_bytes, chain_bytes=pp_bytes)

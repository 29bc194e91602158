"""Job files: a job to place, as people write it in TOML."""

from pathlib import Path

from spanfit import files
from spanfit.bench.job_file import JobFile
from spanfit.errors import ConfigError
from spanfit.placer.model import JobSpec


def read_job(path: Path) -> JobSpec:
    """Return the job of a TOML file; ConfigError lists every wrong key with file, key, found and expected."""
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
    )

"""``spanfit launch``: the launch file of a placement that was written before."""

from pathlib import Path

import click

FORMATS = (
    *("hostfile", "rankfile", "seqfile", "mpich", "torchrun", "slurm", "jobset", "indexed-job", "indexed-job-pinner"),
    *("pytorchjob", "pytorchjob-pinner", "megatron", "deepspeed", "torchtitan"),
)
"""The values of ``spanfit.placer.emit.LaunchFile``, which help must not import."""


@click.command(epilog="Example: spanfit launch slurm placement.json --profile site.toml")
@click.argument("launch_file", metavar="FORMAT", type=click.Choice(FORMATS))
@click.argument("placement", type=click.Path(path_type=Path))
@click.option("--profile", type=click.Path(path_type=Path), help="What the site needs around the job, as TOML.")
def launch(launch_file: str, placement: Path, profile: Path | None) -> None:
    """Print what starts the ranks of PLACEMENT, a placement.json, in its order.

    FORMAT is hostfile, rankfile, seqfile, mpich, torchrun, slurm, jobset, indexed-job, indexed-job-pinner, pytorchjob,
    pytorchjob-pinner, megatron, deepspeed or torchtitan.
    """
    from spanfit import files
    from spanfit.launch.profile import read_profile
    from spanfit.placer.emit import emit
    from spanfit.placer.model import SCHEMA_VERSION, Placement

    site = read_profile(profile) if profile else None
    click.echo(emit(files.read_json(placement, Placement, SCHEMA_VERSION), launch_file, site), nl=False)

"""The arguments and options that several commands share."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

store_option: Decorator = click.option(
    "--store",
    type=click.Path(path_type=Path),
    default=Path("runs"),
    show_default=True,
    metavar="DIR",
    help="The folder that holds the runs.",
)
run_argument: Decorator = click.argument("run", default="latest")
"""A run's id, a prefix of it that no other run has, or ``latest``."""

cluster_option: Decorator = click.option(
    "--cluster",
    type=click.Path(path_type=Path),
    required=True,
    help="A cluster's TOML file, or what Slurm or another source prints.",
)
entry_option: Decorator = click.option("--entry", help="Entry of the weights to use, by its job's name.")
scaling_option: Decorator = click.option(
    "--scaling",
    type=click.Choice(["volumes", "paper"]),
    default="volumes",
    show_default=True,
    help="Alpha from another shape: scaled by volumes where those of the job are known, or as it was measured.",
)

"""The arguments that commands over a store share."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

store_option: Callable[[Callable[..., Any]], Callable[..., Any]] = click.option(
    "--store",
    type=click.Path(path_type=Path),
    default=Path("runs"),
    show_default=True,
    metavar="DIR",
    help="The folder that holds the runs.",
)
run_argument: Callable[[Callable[..., Any]], Callable[..., Any]] = click.argument("run", default="latest")
"""A run's id, a prefix of it that no other run has, or ``latest``."""

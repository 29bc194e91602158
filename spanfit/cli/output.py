"""How every command prints: tables for people on stdout, JSON for programs, talk on stderr."""

import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console

json_option: Callable[[Callable[..., Any]], Callable[..., Any]] = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON for programs instead of a table."
)


def console() -> "Console":
    """Return the console of stdout; off a terminal it is wide enough that no cell is cut."""
    from rich.console import Console

    return Console(file=sys.stdout, width=None if sys.stdout.isatty() else 160, highlight=False)


def talk(text: str) -> None:
    """Say something to the person on stderr, so that data on stdout stay clean."""
    click.echo(text, err=True)


def print_json(value: object) -> None:
    """Print a value as canonical JSON on stdout."""
    from spanfit import files

    click.echo(files.render_json(value), nl=False)


def print_table(title: str, columns: Iterable[str], rows: Iterable[Iterable[str]]) -> None:
    """Print a table of plain text; columns whose name starts with '>' are right-aligned."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(title, style="table.title"), title_justify="left", header_style="bold")
    for column in columns:
        table.add_column(Text(column.removeprefix(">")), justify="right" if column.startswith(">") else "left")
    for row in rows:
        table.add_row(*map(Text, row))
    console().print(table)

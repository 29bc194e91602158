"""Slurm's commands, played by a script: each says what a test has written for it, and nothing else is known to it."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

PROGRAMS = ("scontrol", "sinfo")
_SCRIPT = """#!/bin/sh
said="$SAID/${0##*/} $*"
echo "${0##*/} $* $LC_ALL$SLURM_TOPO_LEN$SLURM_TIME_FORMAT" >> "$SAID/asked"
PATH=/usr/bin:/bin
if [ -f "$said" ]; then
    cat "$said"
    [ ! -f "$said.code" ] || exit "$(cat "$said.code")"
    [ ! -d "$said.then" ] || cp "$said.then"/* "$SAID"
    exit 0
fi
cat "$SAID/error" >&2
exit 1
"""


def install(folder: Path) -> None:
    """Write the programs; PATH must name the folder, and SAID its folder ``said``."""
    for name in PROGRAMS:
        (folder / name).write_text(_SCRIPT)
        (folder / name).chmod(0o755)


def tell(
    folder: Path,
    said: Mapping[str, str],
    error: str = "invalid entity or option",
    then: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
) -> None:
    """Set what each command line says.

    Others complain with ``error``, their exit code 1; a command line with ``.code`` after it is the code that it ends
    with all the same. ``then`` is what is said anew once a command line was run.
    """
    shutil.rmtree(folder / "said", ignore_errors=True)
    _write(folder / "said", {**said, "error": f"{error}\n"})
    for command, more in then.items():
        _write(folder / "said" / f"{command}.then", more)


def _write(folder: Path, texts: Mapping[str, str]) -> None:
    folder.mkdir()
    for name, text in texts.items():
        (folder / name).write_text(text)


def asked(folder: Path) -> list[str]:
    """Return the command lines that were run, each with the variables that change what Slurm prints."""
    return (folder / "said" / "asked").read_text().splitlines()

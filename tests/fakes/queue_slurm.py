"""Slurm's programs as the queue meets them: scripts that print files of a folder, and log every other command."""

import os
from pathlib import Path

from spanfit.queue.acting.seen import SEPARATOR

_SCONTROL = """#!/bin/sh
case "$*" in
    ping) echo "Slurmctld(primary) at here is UP" ;;
    *--json* | *"show topo"*) echo "invalid entity" >&2; exit 1 ;;
    *"show nodes"*) cat "{folder}/nodes.txt" ;;
    *"show reservation"*) cat "{folder}/reservations.txt" ;;
    *"show config"*) echo "SlurmUser               = slurm(64030)" ;;
    *) echo "scontrol $*" >> "{folder}/told.txt"; cat "{folder}/refusal.txt" >&2; test ! -s "{folder}/refusal.txt" ;;
esac
"""
_SQUEUE = """#!/bin/sh
format="${{3#--format=}}"
token="${{format%%%i*}}"
sed "s/^/$token/" "{folder}/squeue.txt"
"""
_SCANCEL = '#!/bin/sh\necho "scancel $*" >> "{folder}/told.txt"\n'


class FakeSlurm:
    """A Slurm whose answers a test writes.

    Parameters
    ----------
    folder : pathlib.Path
        Holds the programs and their answers.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "bin").mkdir(parents=True)
        for name, text in (("scontrol", _SCONTROL), ("squeue", _SQUEUE), ("scancel", _SCANCEL)):
            (folder / "bin" / name).write_text(text.format(folder=folder))
            (folder / "bin" / name).chmod(0o755)
        for name in ("nodes", "squeue", "told", "refusal"):
            (folder / f"{name}.txt").write_text("")
        (folder / "reservations.txt").write_text("No reservations in the system\n")

    @property
    def path(self) -> str:
        """The value of PATH by which the programs are found."""
        return f"{self.folder / 'bin'}:{os.environ['PATH']}"

    def show_nodes(self, **states: str) -> None:
        """Let nodes be in states, such as IDLE+DRAIN."""
        lines = [f"NodeName={name} State={state} ThreadsPerCore=1 Partitions=all\n" for name, state in states.items()]
        (self.folder / "nodes.txt").write_text("".join(lines))

    def show_jobs(self, *jobs: tuple[str, ...]) -> None:
        """Let jobs be there: id, state, nodes asked for, user, priority, nodes, comment, name."""
        lines = []
        for number, state, nnodes, user, priority, nodes, comment, name in jobs:
            middle = ("2:00:00", priority, "2025-12-01T12:00:00", "8", "gres/gpu:8")
            lines.append(
                SEPARATOR.join((number, state, nnodes, user, "", *middle, nodes, "(null)", "(null)", comment, name))
            )
        (self.folder / "squeue.txt").write_text("".join(f"{line}\n" for line in lines))

    def refuse(self, text: str) -> None:
        """Let scontrol refuse what it is told; nothing ends that."""
        (self.folder / "refusal.txt").write_text(text)

    def told(self) -> list[str]:
        """Return what was told since this was last asked."""
        lines = (self.folder / "told.txt").read_text().splitlines()
        (self.folder / "told.txt").write_text("")
        return lines

"""What a rank learns from whatever started it, and how it ends with that; standard library only, for the ranks."""

import ctypes
import signal
from collections.abc import Mapping, MutableMapping, Sequence

_SET_PARENT_DEATH_SIGNAL = 1

STARTERS: dict[str, tuple[str, str, str]] = {
    "torchrun": ("RANK", "WORLD_SIZE", "LOCAL_RANK"),
    "Open MPI": ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    "MPICH": ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
    "srun": ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"),
}
"""The variables of rank, nranks and local rank. The innermost starter comes first: torchrun and mpirun inside a Slurm
allocation leave Slurm's variables of the batch script in place, where they name another world."""


def rank_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return RANK, WORLD_SIZE and LOCAL_RANK as torch reads them.

    Raises
    ------
    ValueError
        If no starter has said who this rank is.
    """
    for variables in STARTERS.values():
        if all(name in environment for name in variables):
            return {name: environment[found] for name, found in zip(STARTERS["torchrun"], variables, strict=True)}
    raise ValueError(
        f"this process does not know its rank; start it by {', '.join(STARTERS)}, or set "
        f"{', '.join(STARTERS['torchrun'])}"
    )


def set_local(environment: MutableMapping[str, str], tables: Sequence[Mapping[str, str]]) -> None:
    """Give this process the variables of its local rank; a library reads them once, as it joins the world."""
    if tables:
        environment.update(tables[int(rank_environment(environment)["LOCAL_RANK"])])


def by_local_rank(environment: Mapping[str, str], tables: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Return the variables of a process, of those that local ranks set each for itself all values: ``eth0 | eth1``."""
    names = sorted({name for table in tables for name in table})
    return {**environment, **{name: " | ".join(table.get(name, "") for table in tables) for name in names}}


def die_with_parent() -> None:
    """Ask the kernel to end this rank when the process that started it ends."""
    ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)

"""What every launch file must hold of a rank map and a command, and which host names a format can carry.

Host names come from files of others: what a format cannot carry is refused, and what reaches a shell is quoted.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import islice

from spanfit.topology.model import RankMap

_SLURM_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")
_ADDRESS = re.compile(r"(?:[0-9]+\.)+[0-9]+|.*:.*")
_SHOWN_CHARACTERS, _SHOWN_NAMES = 60, 10


def is_slurm_name(name: str) -> bool:
    """Return whether a name can be a line of Slurm's host file, a part of its hostlists and a job's name."""
    return bool(_SLURM_NAME.fullmatch(name))


def check_slurm_job_name(name: str) -> None:
    """Raise ValueError for a job's name that Slurm, or a line of ``#SBATCH``, would read otherwise."""
    if not is_slurm_name(name):
        raise ValueError(f"job name is {listed((name,))}; expected letters, digits, dots, dashes and underscores")


def check_rank_map(rank_map: RankMap) -> None:
    """Raise ValueError where there are no ranks, or a node has two node ranks."""
    names = rank_map.node_names
    if not names or rank_map.ngpus_per_node < 1:
        raise ValueError(f"{len(names)} nodes with {rank_map.ngpus_per_node} GPUs; expected at least one of each")
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise ValueError(f"nodes {listed(twice)} have two node ranks; expected one each")


def check_command(command: tuple[str, ...]) -> None:
    """Raise ValueError where there is nothing to start, or it holds what no command line can."""
    if not command or any("\0" in argument for argument in command):
        raise ValueError(f"command is {command!r}; expected a script and its arguments, none holding NUL")


def check_names(names: Iterable[str], is_carried: Callable[[str], bool], format_name: str) -> None:
    """Raise ValueError, which names the format, for host names that it cannot carry."""
    if bad := [name for name in names if not is_carried(name)]:
        raise ValueError(
            f"{format_name} cannot carry the host name {listed(bad)}; expected letters, digits, dots, "
            "dashes and underscores, starting with a letter or digit, and no word of the format"
        )


def short_names(rank_map: RankMap) -> tuple[str, ...]:
    """Return what each node calls itself: its name up to the first dot; ValueError where that is nothing or two's."""
    shorts = [name.partition(".")[0] for name in rank_map.node_names]
    bad = [
        name
        for name, short in zip(rank_map.node_names, shorts, strict=True)
        if not short or _ADDRESS.fullmatch(name) or not name.isprintable()
    ]
    if bad:
        raise ValueError(f"no short host name in {listed(bad)}; expected host names, not addresses")
    if same := [short for short, count in Counter(shorts).items() if count > 1]:
        raise ValueError(f"several hosts are called {listed(same)} up to the first dot; expected different ones")
    return tuple(shorts)


def natural(name: str) -> list[tuple[int, str, int]]:
    """Return a sort key that puts node10 after node9, so that ranges fold."""
    return [(1, "", int(part)) if part.isdigit() else (0, part, 0) for part in re.split(r"([0-9]+)", name) if part]


def listed(names: Sequence[str]) -> str:
    """Return some of the names as a message may hold them: quoted, cut, without control characters."""
    cut = (name if len(name) <= _SHOWN_CHARACTERS else f"{name[: _SHOWN_CHARACTERS - 3]}..." for name in names)
    more = [f"{len(names) - _SHOWN_NAMES} more"] if len(names) > _SHOWN_NAMES else []
    return ", ".join([*map(repr, islice(cut, _SHOWN_NAMES)), *more])

"""What every launch file must hold of a rank map and a command, and which host names a format can carry.

Host names come from files of others: what a format cannot carry is refused, and what reaches a shell is quoted.
"""

import re
from collections.abc import Callable, Iterable

from spanfit.topology.model import RankMap

_SLURM_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")
_ADDRESS = re.compile(r"(?:[0-9]+\.)+[0-9]+|.*:.*")
_SHOWN = 60


def is_slurm_name(name: str) -> bool:
    """Return whether a name can be a line of Slurm's host file, a part of its hostlists and a job's name."""
    return bool(_SLURM_NAME.fullmatch(name))


def check_rank_map(rank_map: RankMap) -> None:
    """Raise ValueError where there are no ranks, or a node has two node ranks."""
    names = rank_map.node_names
    if not names or rank_map.ngpus_per_node < 1:
        raise ValueError(f"{len(names)} nodes with {rank_map.ngpus_per_node} GPUs; expected at least one of each")
    twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    if twice:
        raise ValueError(f"nodes {', '.join(twice)} have two node ranks; expected one each")


def check_command(command: tuple[str, ...]) -> None:
    """Raise ValueError where there is nothing to start, or it holds what no command line can."""
    if not command or any("\0" in argument for argument in command):
        raise ValueError(f"command is {command!r}; expected a script and its arguments, none holding NUL")


def check_names(names: Iterable[str], is_carried: Callable[[str], bool], format_name: str) -> None:
    """Raise ValueError, which names the format, for host names that it cannot carry."""
    if bad := [name for name in names if not is_carried(name)]:
        raise ValueError(
            f"{format_name} cannot carry the host name {', '.join(map(_shown, bad))}; expected letters, digits, dots, "
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
        raise ValueError(f"no short host name in {', '.join(map(_shown, bad))}; expected host names, not addresses")
    if len(set(shorts)) < len(shorts):
        same = sorted({short for short in shorts if shorts.count(short) > 1})
        raise ValueError(f"several hosts are called {', '.join(same)} up to the first dot; expected different ones")
    return tuple(shorts)


def natural(name: str) -> list[tuple[int, str, int]]:
    """Return a sort key that puts node10 after node9, so that ranges fold."""
    return [(1, "", int(part)) if part.isdigit() else (0, part, 0) for part in re.split(r"([0-9]+)", name) if part]


def _shown(name: str) -> str:
    return repr(name if len(name) <= _SHOWN else name[: _SHOWN - 3] + "...")

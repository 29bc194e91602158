"""Lines of ``Key=value`` fields, as Slurm's ``topology.conf`` and ``scontrol show topology`` write them."""

import re
from collections.abc import Collection, Iterator, Mapping

from spanfit.errors import ConfigError
from spanfit.topology.hostlist import expand_hostlist, is_plain_name
from spanfit.topology.reading import printable

Fault = tuple[int, str]
"""Where in the file, as a line number or index, and what is wrong."""

NONE = "(null)"
"""What Slurm prints where a field is empty."""

_FIELD = re.compile(r"\s*([A-Za-z0-9_.]+)\s*=(?:\s*\"([^\"]*)\"|\s*([^\s\"=]+)|)(?=\s|$)")


def records(text: str) -> Iterator[Fault]:
    """Yield each record with the line where it starts; comments go before continuations are joined, as in Slurm."""
    start, pending = 0, ""
    for number, raw in enumerate([*text.split("\n"), ""], 1):
        line = raw.partition("#")[0].rstrip()
        start = start or number
        pending += line.removesuffix("\\")
        if line.endswith("\\"):
            continue
        if pending.strip():
            yield start, pending
        start, pending = 0, ""


def fields(record: str, known: Collection[str], expected: str) -> tuple[dict[str, str], list[str]]:
    """Return the fields of a record by lower-case key, and what is wrong: unknown keys, repeated keys, loose words."""
    found: dict[str, str] = {}
    faults = []
    position = 0
    while record[position:].strip():
        match = _FIELD.match(record, position)
        if not match:
            faults.append(f"found {record[position:].strip()[:40]!r}; expected Key=value")
            break
        key = match[1].lower()
        if key in found:
            faults.append(f"{match[1]} is given twice; expected it once")
        elif key not in known:
            faults.append(f"found key {match[1]}; expected {expected}")
        found[key] = match[2] or match[3] or ""
        position = match.end()
    return found, faults


def hostlist_field(found: Mapping[str, str], key: str, faults: list[str]) -> tuple[str, ...]:
    """Return the names of a field that holds a hostlist, none where it is absent or wrong; wrong ones add a fault."""
    text = found.get(key.lower(), "")
    try:
        return () if text == NONE else expand_hostlist(text)
    except ValueError as error:
        faults.append(f"{key}: {error}")
        return ()


def name_field(found: Mapping[str, str], key: str, needed: str, faults: list[str]) -> str:
    """Return the name that a record defines, "" where it has none or a wrong one, which adds a fault."""
    name = found.get(key.lower(), "")
    if not name:
        faults.append(f"no {key}; expected {key}=NAME{needed}")
    elif not is_plain_name(name):
        faults.append(f"{key}: found {name!r}; expected one name without ranges")
        return ""
    return name


def refuse(faults: Collection[Fault], origin: str, place: str) -> None:
    """Raise ConfigError with all faults, in the order of the file, if there are any; ``place`` names where one is."""
    if faults:
        raise ConfigError(
            "\n".join(f"{origin}: {place.format(order)}: {printable(fault)}" for order, fault in sorted(set(faults)))
        )

"""Reservations as ``scontrol show reservation`` prints them: text of all generations, and JSON."""

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from spanfit.errors import ConfigError
from spanfit.topology.hostlist import expand_hostlist
from spanfit.topology.readers.documents import Place
from spanfit.topology.readers.slurm_records import NONE
from spanfit.topology.reading import Reading, Reservation

_FIELD = re.compile(r"(?:^|\s)([A-Za-z]+)=(\S*)")


def parse_show_reservation(text: str, origin: str, now_s: float) -> Reading:
    """Return the reservations that ``scontrol show reservation`` prints, with or without ``-o``.

    Lines wrap differently by version, so a reservation ends where the next ``ReservationName`` begins. Where there is
    no State, the times, which are local, say whether it is active at ``now_s`` (seconds since 1970).
    """
    found = []
    for record in re.split(r"^(?=ReservationName=)", text, flags=re.MULTILINE)[1:]:
        fields: dict[str, str] = {}
        for key, value in _FIELD.findall(record):
            fields.setdefault(key, "" if value == NONE else value)
        found.append(_reservation(fields, origin, now_s))
    return Reading(origin=origin, kind="scontrol-show-reservation", reservations=tuple(found))


def _reservation(fields: Mapping[str, str], origin: str, now_s: float) -> Reservation:
    start, end, state = (fields.get(key, "") for key in ("StartTime", "EndTime", "State"))
    start_s, end_s = _local_time_s(start), _local_time_s(end)
    return Reservation(
        name=fields["ReservationName"],
        nodes=_nodes(fields.get("Nodes", ""), origin, fields["ReservationName"]),
        start=start,
        end=end,
        start_s=start_s,
        is_active=state == "ACTIVE" if state else _is_between(start_s, end_s, now_s),
        is_over=end_s is not None and end_s <= now_s,
        duration=fields.get("Duration", ""),
        users=_words(fields.get("Users", "")),
        flags=_words(fields.get("Flags", "")),
    )


def _words(text: str) -> tuple[str, ...]:
    return tuple(filter(None, text.split(",")))


def _nodes(text: str, origin: str, name: str) -> tuple[str, ...]:
    try:
        return expand_hostlist(text)
    except ValueError as error:
        raise ConfigError(f"{origin}: reservation {name[:80]!r}: Nodes: {error}") from None


def _local_time_s(text: str) -> float | None:
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        return None


def _is_between(start_s: float | None, end_s: float | None, now_s: float) -> bool | None:
    return None if start_s is None or end_s is None else start_s <= now_s < end_s


def parse_reservations_json(document: object, origin: str, now_s: float) -> Reading:
    """Return the reservations of ``scontrol show reservation --json``, active where ``now_s`` lies within."""
    found = tuple(_json_reservations(Place(origin, "", document).get("reservations"), now_s))
    return Reading(origin=origin, kind="scontrol-show-reservation", reservations=found)


def _json_reservations(listed: Place, now_s: float) -> Iterator[Reservation]:
    for item in listed.items():
        start_s, end_s = (_time_s(item.get(key)) for key in ("start_time", "end_time"))
        flags = item.get("flags")
        yield Reservation(
            name=item.get("name").name(),
            nodes=_nodes(item.get("node_list").text(), listed.origin, item.get("name").name()),
            start=_iso(start_s),
            end=_iso(end_s),
            start_s=start_s,
            is_active=_is_between(start_s, end_s, now_s),
            is_over=end_s is not None and end_s <= now_s,
            users=_words(item.get("users").text()),
            flags=_words(flags.text()) if isinstance(flags.value, str) else flags.texts(),
        )


def _time_s(place: Place) -> float | None:
    """Return seconds since 1970 of a number, or of ``{set, infinite, number}``; None where unset."""
    value = place.value
    if isinstance(value, dict):
        if value.get("infinite"):
            return float("inf")
        value = value.get("number") if value.get("set") else None
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _iso(time_s: float | None) -> str:
    if time_s is None or not abs(time_s) < 1e11:
        return ""
    return datetime.fromtimestamp(time_s, UTC).isoformat(timespec="seconds")

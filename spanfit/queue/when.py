"""Moments as people type and read them: ``22:00``, ``now+4h``, ISO 8601."""

import re
from datetime import UTC, datetime, timedelta, tzinfo

from spanfit.units import parse_duration

LONGEST_S = 10 * 365 * 86400.0
"""Nobody means a longer duration, or a moment further away [s]."""

_TIME_OF_DAY = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)")
_EXAMPLES = "22:00, now+4h or 2026-12-01T22:00"


def parse_moment(text: str, now_s: float, zone: tzinfo | None = None) -> float:
    """Return the Unix time of a moment.

    Parameters
    ----------
    text : str
        ``now``, ``now+4h``, a time of day (the next one), or ISO 8601; without an offset it is in ``zone``.
    now_s : float
        The present, Unix time [s].
    zone : datetime.tzinfo or None
        None for this machine's own zone, with its changes of the clock.

    Raises
    ------
    ValueError
        If the text is no moment, or a time of day that a change of the clock skips.
    """
    written = text.strip()
    if written.startswith("now"):
        rest = written.removeprefix("now").strip()
        if rest and rest[0] != "+":
            raise ValueError(f"found {text!r}, expected a moment such as {_EXAMPLES}")
        return now_s + (parse_duration(rest[1:]) if rest else 0.0)
    if match := _TIME_OF_DAY.fullmatch(written):
        return _next_time_of_day(int(match[1]), int(match[2]), now_s, zone)
    try:
        moment = datetime.fromisoformat(written)
        return (moment if moment.tzinfo else moment.replace(tzinfo=zone)).timestamp()
    except (ValueError, OverflowError):
        raise ValueError(f"found {text!r}, expected a moment such as {_EXAMPLES}") from None


def _next_time_of_day(hour: int, minute: int, now_s: float, zone: tzinfo | None) -> float:
    moment = datetime.fromtimestamp(now_s, zone).replace(hour=hour, minute=minute, second=0, microsecond=0)
    if moment.timestamp() <= now_s:
        moment += timedelta(days=1)
    back = datetime.fromtimestamp(moment.timestamp(), zone)
    if (back.hour, back.minute) != (hour, minute):
        raise ValueError(f"{hour:02d}:{minute:02d} does not exist on {moment:%Y-%m-%d}: the clock skips it")
    return moment.timestamp()


def format_moment(time_s: float | None, zone: tzinfo | None = None) -> str:
    """Return a moment with its offset, in this machine's own zone unless another is given; "" where it is not known.

    Examples
    --------
    >>> format_moment(0.0, UTC)
    '1970-01-01 00:00:00+00:00'
    """
    if time_s is None:
        return ""
    return datetime.fromtimestamp(time_s, UTC).astimezone(zone).isoformat(sep=" ", timespec="seconds")

"""Sizes, rates and times: parsed from what people type, printed as what people read.

Stored values are bytes, seconds, bytes per second, and bits per second for link rates as sold.
Message sizes are powers of 1024, as in nccl-tests; bandwidths and link rates are powers of 1000.
"""

import re

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(?:([KMGT])(?:i?B)?|B)?", re.IGNORECASE)
_RATE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)bit(?:/s)?", re.IGNORECASE)
_TIME = re.compile(r"(\d+(?:\.\d+)?)\s*(us|ms|s)", re.IGNORECASE)
_PARTS = re.compile(r"(?:(\d+(?:\.\d+)?)d)?(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?")
_CLOCK = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d{1,2}):(\d{2})")
_PART_S = (86400.0, 3600.0, 60.0, 1.0)
_BINARY = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


def parse_size(text: str) -> int:
    """Return the bytes of a size such as ``8M`` or ``1GiB`` (powers of 1024).

    Raises
    ------
    ValueError
        If the text is no size or no whole number of bytes.

    Examples
    --------
    >>> parse_size("8M")
    8388608
    """
    match = _SIZE.fullmatch(text.strip())
    if not match:
        raise ValueError(f"{text!r} is not a size; expected a number with K, M, G or T, such as 4M")
    # Whole numbers throughout: a float holds no odd number of bytes beyond 2**53.
    whole, _, decimals = match[1].partition(".")
    unit = 1 << 10 * _BINARY[(match[2] or "").upper()]
    size, rest = divmod(int(whole + decimals) * unit, int("1" + "0" * len(decimals)))
    if rest:
        raise ValueError(f"{text!r} is no whole number of bytes; expected one, such as 4M")
    return size


def parse_link_rate(text: str) -> float:
    """Return the bits per second of a link rate such as ``400mbit`` or ``1.6Gbit/s`` (powers of 1000)."""
    match = _RATE.fullmatch(text.strip())
    if not match or float(match[1]) <= 0:
        raise ValueError(
            f"{text!r} is not a link rate; expected a positive number with kbit, mbit or gbit, such as 400mbit"
        )
    return float(match[1]) * 1000.0 ** _BINARY[match[2].upper()]


def parse_time(text: str) -> float:
    """Return the seconds of a time such as ``6ms``."""
    match = _TIME.fullmatch(text.strip())
    if not match:
        raise ValueError(f"{text!r} is not a time; expected a number with us, ms or s, such as 6ms")
    return float(match[1]) * _SECONDS[match[2].lower()]


def parse_duration(text: str) -> float:
    """Return the seconds of a duration: ``2h``, ``1d12h``, ``90m``, ``45s``, or as Slurm writes it, ``1-12:00:00``.

    Raises
    ------
    ValueError
        If the text is no duration.

    Examples
    --------
    >>> parse_duration("1d12h"), parse_duration("1-12:00:00"), parse_duration("02:30")
    (129600.0, 129600.0, 150.0)
    """
    written = text.strip().lower()
    if written and (match := _PARTS.fullmatch(written)):
        return sum(float(number) * scale for number, scale in zip(match.groups(), _PART_S, strict=True) if number)
    if match := _CLOCK.fullmatch(written):
        days, hours, minutes, seconds = (int(number or 0) for number in match.groups())
        return days * 86400.0 + hours * 3600.0 + minutes * 60.0 + seconds
    raise ValueError(f"found {text!r}, expected a duration such as 45s, 90m, 2h, 1d12h or 1-12:00:00")


def format_size(size_bytes: int) -> str:
    """Return a size as people read it, in powers of 1024.

    Examples
    --------
    >>> format_size(4194304)
    '4 MiB'
    """
    value, unit = float(size_bytes), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.4g} {unit}"


def format_bandwidth(bytes_per_s: float) -> str:
    """Return a bandwidth in decimal units, as nccl-tests does (GB/s = 1e9 bytes per second)."""
    for scale, unit in ((1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s")):
        if bytes_per_s >= scale:
            return f"{_three_digits(bytes_per_s / scale)} {unit}"
    return f"{_three_digits(bytes_per_s)} B/s"


def format_link_rate(bits_per_s: float) -> str:
    """Return a link rate as it is sold, in decimal bits per second."""
    for scale, unit in ((1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s")):
        if bits_per_s >= scale:
            return f"{bits_per_s / scale:g} {unit}"
    return f"{bits_per_s:g} bit/s"


def format_time(time_s: float) -> str:
    """Return a time with three digits, or as minutes and hours where it is long."""
    if time_s >= 5400:
        return f"{int(time_s // 3600)} h {int(time_s % 3600 // 60):02d} min"
    if time_s >= 90:
        return f"{int(time_s // 60)} min {int(time_s % 60):02d} s"
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if abs(time_s) >= scale:
            return f"{_three_digits(time_s / scale)} {unit}"
    return f"{_three_digits(time_s / 1e-6)} us"


def _three_digits(value: float) -> str:
    """Return a number with three digits, or all those before its point; 999.7 is 1000, never 1e+03."""
    return f"{value:.3g}" if abs(value) < 999.5 else f"{value:.0f}"


def format_percent(share: float) -> str:
    """Return a share of one in percent, with its sign kept and a proper minus."""
    return f"{100 * share:.1f}%".replace("-", "−")

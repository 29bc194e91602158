"""Which versions of nccl-tests print a report as it is, for those that do not say: before 2.17.4 none did."""

from collections.abc import Iterable
from typing import Final

Span = tuple[tuple[int, ...], tuple[int, ...]]
"""The first and the last version that something fits, both included."""

FIRST: Final[tuple[int, ...]] = (1, 0)
NEWEST: Final[tuple[int, ...]] = (99,)

MILLISECONDS: Span = ((1, 0), (1, 0))
ERROR_COLUMN: Span = ((2, 0), (2, 11))
TYPE_OF_SIX: Span = ((2, 0), (2, 9))
TYPE_OF_EIGHT: Span = ((2, 10), NEWEST)
WRONG_COLUMN: Span = ((2, 13, 0), NEWEST)
NARROW_WRONG: Span = ((2, 13, 0), (2, 17, 2))
WIDE_WRONG: Span = ((2, 17, 3), NEWEST)
SPREAD_COLUMNS: Span = ((2, 19, 2), NEWEST)
PLAIN_PARAMETERS: Span = (FIRST, (2, 11))
AGGREGATED: Span = ((2, 13, 0), NEWEST)
UNALIGNED: Span = ((2, 18, 2), NEWEST)
NO_GROUPS: Span = (FIRST, (2, 13, 3))
GROUPS: Span = ((2, 13, 4), NEWEST)
SHORT_BUS_ID: Span = (FIRST, (2, 14, 0))
LONG_BUS_ID: Span = ((2, 14, 1), NEWEST)
NAMED: Span = ((2, 16, 7), (2, 17, 3))
NAMELESS: Span = (FIRST, (2, 16, 6))


def layout_version(spans: Iterable[Span]) -> str:
    """Return the versions that everything seen fits, such as ``2.13.4-2.14.0 layout``; "" where nothing narrows them.

    What contradicts the rest, as in a log that lost its first lines, is left out: later spans yield to earlier ones.
    """
    low, high = FIRST, NEWEST
    for first, last in spans:
        if max(low, first) <= min(high, last):
            low, high = max(low, first), min(high, last)
    if (low, high) == (FIRST, NEWEST):
        return ""
    if high == NEWEST:
        return f"{_text(low)}+ layout"
    return f"{_text(low)} layout" if low == high else f"{_text(low)}-{_text(high)} layout"


def _text(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))

"""Times, nodes and reasons in words for the owner of a job."""

import math
from datetime import UTC, datetime


def clock(at_s: float) -> str:
    """Return a Unix time as people read it.

    >>> clock(64800.0)
    '1970-01-01 18:00 UTC'
    """
    if not math.isfinite(at_s):
        return "a time that cannot be told"
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d %H:%M UTC")


def nodes_in_words(count: int) -> str:
    """Return a number of nodes with its noun.

    >>> nodes_in_words(1), nodes_in_words(40)
    ('1 node', '40 nodes')
    """
    return f"{count} node" if count == 1 else f"{count} nodes"

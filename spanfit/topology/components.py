"""Which things hang together: connected components, in the order of first appearance."""

from collections.abc import Hashable, Iterable
from typing import TypeVar

T = TypeVar("T", bound=Hashable)


def components(items: Iterable[T], links: Iterable[tuple[T, T]]) -> list[list[T]]:
    """Return the items in groups that links join, both in the order of the items; links name items only.

    Examples
    --------
    >>> components("abcd", [("a", "c"), ("c", "d")])
    [['a', 'c', 'd'], ['b']]
    """
    above = {item: item for item in items}
    for one, two in links:
        above[_root(above, one)] = _root(above, two)
    groups: dict[T, list[T]] = {}
    for item in above:
        groups.setdefault(_root(above, item), []).append(item)
    return list(groups.values())


def _root(above: dict[T, T], item: T) -> T:
    while above[item] != item:
        above[item] = above[above[item]]  # halves the way, so that long chains stay cheap
        item = above[item]
    return item

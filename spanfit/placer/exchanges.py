"""Items in groups of a fixed number of places, exchanged until every group has what it needs: a tabu search."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_TABU = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Items:
    """Items and the groups that need them.

    Attributes
    ----------
    worth : array of shape (nitems, ngroups)
        What an item brings to a group; the last group is for items left out.
    need : array of shape (ngroups,)
    is_blank : array of shape (nitems,)
        A blank is an empty place: a group that has one may take there what other groups have over.
    """

    worth: Ints
    need: Ints
    is_blank: Bools


class _Balance:
    """What groups have, and what they lack or have over."""

    def __init__(self, items: Items, group: Ints) -> None:
        self.items, self.group = items, group
        self.have, self.blanks = np.zeros(len(items.need), dtype=np.int64), np.zeros(len(items.need), dtype=np.int64)
        np.add.at(self.have, group, items.worth[np.arange(len(group)), group])
        np.add.at(self.blanks, group, items.is_blank)
        self.blanks[-1] = 0
        self.measure()

    def measure(self) -> None:
        """Bring up to date what is lacking where nothing can be taken, where something can, and what is over."""
        difference = self.items.need - self.have
        difference[-1] = 0
        self.lacking, self.over = np.maximum(difference, 0), np.maximum(-difference, 0)
        self.hard = np.where(self.blanks > 0, 0, self.lacking)
        self.soft = self.lacking - self.hard

    def lack(self) -> int:
        """Return the cells that are missing where an empty place takes what one group has over at most."""
        beyond = np.maximum(self.soft - self.blanks * self.over.max(), 0).sum()
        return int(self.hard.sum() + max(beyond, self.soft.sum() - self.over.sum()))

    def exchange(self, one: int, other: int) -> None:
        """Exchange two items."""
        worth, blank = self.items.worth, self.items.is_blank
        here, there = int(self.group[one]), int(self.group[other])
        self.have[here] += worth[other, here] - worth[one, here]
        self.have[there] += worth[one, there] - worth[other, there]
        moved = int(blank[other]) - int(blank[one])
        self.blanks[here] += moved
        self.blanks[there] -= moved
        self.blanks[-1] = 0
        self.group[one], self.group[other] = there, here
        self.measure()

    def lacks_after(self, here: int, mine: Ints) -> Floats:
        """Return what is lacking after each exchange of one of a group's items for any item."""
        worth, need, blank, group = self.items.worth, self.items.need, self.items.is_blank, self.group
        own = need[here] - (self.have[here] - worth[mine, here][:, None] + worth[:, here])
        theirs = (need - self.have)[group] + worth[np.arange(len(group)), group] - worth[mine][:, group]
        theirs[:, group == len(need) - 1] = 0
        moved = blank.astype(np.int64) - blank[mine][:, None]
        is_soft_here, is_soft_there = self.blanks[here] + moved > 0, self.blanks[group] - moved > 0
        own_lack, their_lack = np.maximum(own, 0), np.maximum(theirs, 0)
        over = (self.over.sum() - self.over[here] - self.over)[group] + (own_lack - own) + (their_lack - theirs)
        own_soft, their_soft = np.where(is_soft_here, own_lack, 0), np.where(is_soft_there, their_lack, 0)
        soft = (self.soft.sum() - self.soft[here] - self.soft)[group] + own_soft + their_soft
        hard = (self.hard.sum() - self.hard[here] - self.hard)[group] + own_lack - own_soft + their_lack - their_soft
        largest = np.maximum(self._largest_over(here)[group], np.maximum(own_lack - own, their_lack - theirs))
        beyond = np.maximum(own_soft - (self.blanks[here] + moved) * largest, 0)
        beyond += np.maximum(their_soft - (self.blanks[group] - moved) * largest, 0)
        for other in np.flatnonzero(self.soft):
            if other != here:
                elsewhere = np.maximum(self.soft[other] - self.blanks[other] * largest, 0)
                beyond += np.where(group == other, 0, elsewhere)
        return np.asarray(hard + np.maximum(soft - over, beyond), dtype=float)

    def _largest_over(self, here: int) -> Ints:
        """Return, for each group, the most that any group but it and ``here`` has over."""
        over = self.over.copy()
        over[here] = 0
        largest = np.full(len(over), over.max())
        top = int(over.argmax())
        over[top] = 0
        largest[top] = over.max()
        return largest


def exchange_items(items: Items, group: Ints, *, steps: int, seed: int, stop: Callable[[], bool]) -> tuple[Ints, int]:
    """Return the group of each item after exchanges, and what the groups lack in all; 0 where they have enough.

    Parameters
    ----------
    items : Items
    group : array of shape (nitems,)
        Groups to start from; an exchange keeps how many items each group has.
    steps, seed : int
    stop : callable

    Notes
    -----
    Each step takes a group that lacks something, looks at every exchange of one of its items for any other item, and
    makes the best that moves none of the items moved lately, even where that makes things worse.
    """
    rng = np.random.default_rng(seed)
    balance = _Balance(items, group.copy())
    resting = np.zeros(len(group), dtype=np.int64)
    best, best_group = balance.lack(), group.copy()
    for step in range(steps):
        if not best or (step % 32 == 0 and stop()):
            break
        is_short = balance.lack() > balance.hard.sum()
        here = int(rng.choice(np.flatnonzero(balance.lacking if is_short else balance.hard)))
        mine = np.flatnonzero(balance.group == here)
        change = balance.lacks_after(here, mine) + rng.random((len(mine), len(group)))
        change[:, (balance.group == here) | (resting > step)] = np.inf
        change[resting[mine] > step] = np.inf
        place = int(change.argmin())
        if not np.isfinite(change.flat[place]):
            continue
        one, other = int(mine[place // len(group)]), place % len(group)
        balance.exchange(one, other)
        resting[[one, other]] = step + rng.integers(2, _TABU, 2)
        if balance.lack() < best:
            best, best_group = balance.lack(), balance.group.copy()
    return best_group, best

"""Items in groups of a fixed number of places, exchanged until every group has what it needs: a tabu search."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

_TABU = 6


def exchange_items(
    worth: Ints, need: Ints, group: Ints, *, steps: int, seed: int, stop: Callable[[], bool]
) -> tuple[Ints, int]:
    """Return the group of each item after exchanges, and what the groups lack in all; 0 where they have enough.

    Parameters
    ----------
    worth : array of shape (nitems, ngroups)
        What an item brings to a group; the last group is for items left out.
    need : array of shape (ngroups,)
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
    items, group = np.arange(len(group)), group.copy()
    have = np.zeros(len(need), dtype=np.int64)
    np.add.at(have, group, worth[items, group])
    resting = np.zeros(len(group), dtype=np.int64)
    best, best_group = int(np.maximum(need - have, 0).sum()), group.copy()
    for step in range(steps):
        lacking = np.flatnonzero(have < need)
        if not len(lacking) or (step % 32 == 0 and stop()):
            break
        here = int(rng.choice(lacking))
        mine = np.flatnonzero(group == here)
        own = have[here] - worth[mine, here][:, None] + worth[:, here]
        theirs = (have[group] - worth[items, group]) + worth[mine][:, group]
        lack = np.maximum(need[here] - own, 0) + np.maximum(need[group] - theirs, 0)
        change = lack - np.maximum(need[group] - have[group], 0) + rng.random(lack.shape)
        change[:, (group == here) | (resting > step)] = np.inf
        change[resting[mine] > step] = np.inf
        place = int(change.argmin())
        if not np.isfinite(change.flat[place]):
            continue
        one, other = int(mine[place // len(group)]), place % len(group)
        there = int(group[other])
        have[here] += worth[other, here] - worth[one, here]
        have[there] += worth[one, there] - worth[other, there]
        group[one], group[other] = there, here
        resting[[one, other]] = step + rng.integers(2, _TABU, 2)
        lacks = int(np.maximum(need - have, 0).sum())
        if lacks < best:
            best, best_group = lacks, group.copy()
    return best_group, best

"""The start-up check of a job: no rank trains unless each runs on the host that the placement names: edge, asks torch.

It needs the standard library and torch only, so that a training image need hold nothing else of spanfit's. In a script,
before ``init_process_group``:

    from spanfit.launch.order import check_order
    check_order("placement.json")

or around a script that is left as it is: ``torchrun ... -m spanfit.launch.order placement.json train.py --lr 0.1``.
"""

import argparse
import json
import os
import runpy
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.distributed.distributed_c10d import Store

HOST_VARIABLE = "SPANFIT_NODE_NAME"
"""Names the node where a rank cannot ask for it: a pod's host name is its own. Manifests set it."""

MEETING_S = 600.0
"""How long ranks may take to meet."""

_PREFIX = "spanfit-order"
_VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_READING_S = 30.0
_SHOWN = 10
_UNREADABLE, _REFUSED = 2, 4

_stores: "list[Store]" = []
"""Kept to the end of the process: rank 0's may be the server that ``init_process_group`` joins next."""


class StartError(RuntimeError):
    """The order cannot be checked: the placement cannot be read, or no launcher has started this rank."""


class WrongOrderError(RuntimeError):
    """Ranks run elsewhere than the placement says; the text names ranks and hosts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """Where a placement puts ranks: rank ``i * ngpus_per_node + local_rank`` on ``node_names[i]``."""

    node_names: tuple[str, ...]
    ngpus_per_node: int

    @property
    def nranks(self) -> int:
        """Number of ranks."""
        return len(self.node_names) * self.ngpus_per_node


def read_placement(path: "str | os.PathLike[str]") -> Expected:
    """Return where the file of ``spanfit place -o`` puts ranks; StartError where it says nothing of it."""
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))["rank_map"]
        return Expected(node_names=tuple(map(str, found["node_names"])), ngpus_per_node=int(found["ngpus_per_node"]))
    except OSError as error:
        raise StartError(
            f"{path}: {error.strerror}; expected the file that 'spanfit place -o' writes, where every node sees it"
        ) from error
    except (ValueError, TypeError, KeyError) as error:
        raise StartError(f"{path}: no rank_map in it; expected the file that 'spanfit place -o' writes") from error


def order_fault(expected: Expected, hosts: Mapping[int, str], nranks: int) -> str:
    """Return what is wrong with a world of ``nranks`` whose rank i runs on ``hosts[i]``, "" where nothing is.

    Ranks that ``hosts`` lacks did not come. Of names with dots and names without, the part before the first dot counts.
    """
    if nranks != expected.nranks:
        return (
            f"the world has {nranks} ranks, the placement {expected.nranks} "
            f"({len(expected.node_names)} nodes of {expected.ngpus_per_node}); start as many as were placed"
        )
    runs = [*_wrong_runs(expected, hosts)]
    if not runs:
        return ""
    more = [f"and {len(runs) - _SHOWN} more such"] if len(runs) > _SHOWN else []
    return (
        f"ranks are not where the placement put them: {'; '.join(runs[:_SHOWN] + more)}; start them in the placed "
        "order, such as by a file of 'spanfit launch', or place the job again"
    )


def _wrong_runs(expected: Expected, hosts: Mapping[int, str]) -> Iterator[str]:
    """Yield the wrong ranks of each node together, where they share a fault."""
    per_node = expected.ngpus_per_node
    for node_rank, name in enumerate(expected.node_names):
        faults: dict[str, list[int]] = {}
        for rank in range(node_rank * per_node, (node_rank + 1) * per_node):
            found = hosts.get(rank)
            if found is None or not _same_host(found, name):
                faults.setdefault("did not come" if found is None else f"on {found}", []).append(rank)
        for fault, ranks in faults.items():
            yield f"{_ranks(ranks)} {fault}, expected on {name}"


def _ranks(ranks: Sequence[int]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if ranks[-1] - ranks[0] == len(ranks) - 1:
        return f"ranks {ranks[0]}-{ranks[-1]}"
    return f"ranks {', '.join(map(str, ranks))}"


def _same_host(one: str, other: str) -> bool:
    return one == other or one.partition(".")[0] == other or one == other.partition(".")[0]


def check_order(
    placement: "str | os.PathLike[str]", *, meeting_s: float = MEETING_S, tell: Callable[[str], object] | None = None
) -> None:
    """Return on every rank once all have met and each runs where the placement puts it.

    Host names are gathered through the store that ``init_process_group`` uses, so no backend and no GPU is needed.
    Every rank must call it, with the variables that torchrun sets.

    Parameters
    ----------
    placement : path
        What ``spanfit place -o`` wrote.
    meeting_s : float
        How long ranks may take to meet [s].
    tell : callable, optional
        Called on rank 0 with what is wrong before any rank learns of it: the first that fails has others ended.

    Raises
    ------
    StartError
        Where the placement cannot be read, or the variables are missing.
    WrongOrderError
        On every rank, with the same words.
    """
    expected = read_placement(placement)
    if missing := [name for name in _VARIABLES if name not in os.environ]:
        raise StartError(f"{', '.join(missing)} not set; start ranks by torchrun, or with its variables")
    from torch.distributed.distributed_c10d import PrefixStore

    rank, nranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    store = _join(rank, timedelta(seconds=meeting_s + _READING_S))
    _stores.append(store)
    if fault := _agree(PrefixStore(_PREFIX, store), rank, nranks, expected, meeting_s, tell):
        raise WrongOrderError(fault)


def _join(rank: int, limit: timedelta) -> "Store":
    """Return the store that ``init_process_group`` will use too: torchrun's, else one that rank 0 starts."""
    # torch documents it, but marks it as no export.
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    has_agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    store: Store = TCPStore(
        os.environ["MASTER_ADDR"],
        int(os.environ["MASTER_PORT"]),
        is_master=rank == 0 and not has_agent,
        timeout=limit,
        wait_for_workers=False,
        multi_tenant=True,
    )
    return store


def _agree(
    store: "Store",
    rank: int,
    nranks: int,
    expected: Expected,
    meeting_s: float,
    tell: Callable[[str], object] | None,
) -> str:
    """Return what is wrong, the same on every rank: rank 0 reads all names and tells the others."""
    store.set(f"host/{rank}", os.environ.get(HOST_VARIABLE) or socket.gethostname())
    if rank == 0:
        hosts = _gather(store, nranks, meeting_s)
        fault = order_fault(expected, hosts, nranks)
        if fault and tell:
            tell(fault)
        store.set("fault", fault)
        _wait_for_readers(store, len(hosts))
        return fault
    store.wait(["fault"], timedelta(seconds=meeting_s + _READING_S))
    fault = store.get("fault").decode()
    store.add("readers", 1)
    return fault


def _gather(store: "Store", nranks: int, meeting_s: float) -> dict[int, str]:
    """Return the host of each rank; those that do not come in time are left out."""
    from torch.distributed import DistStoreError

    keys = {rank: f"host/{rank}" for rank in range(nranks)}
    try:
        store.wait(list(keys.values()), timedelta(seconds=meeting_s))
    except DistStoreError:
        keys = {rank: key for rank, key in keys.items() if store.check([key])}
    return {rank: store.get(key).decode() for rank, key in keys.items()}


def _wait_for_readers(store: "Store", ncome: int) -> None:
    """Return once all have read, or some time after: the store may end with rank 0."""
    deadline = time.monotonic() + _READING_S
    while store.add("readers", 0) < ncome - 1 and time.monotonic() < deadline:
        time.sleep(0.01)


def _say(text: str) -> None:
    print(f"spanfit: {text}", file=sys.stderr, flush=True)


def main() -> None:
    """Check the order, then run the script in this process.

    A wrong order ends every rank with 4, a placement that cannot be read the rank with 2.
    """
    parser = argparse.ArgumentParser(
        prog="python -m spanfit.launch.order", description="Run a training script only where ranks are as placed."
    )
    parser.add_argument("placement", help="what 'spanfit place -o' wrote")
    parser.add_argument("-m", "--module", action="store_true", help="SCRIPT is a module")
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    given = parser.parse_args()
    try:
        check_order(given.placement, tell=_say)
    except WrongOrderError:
        sys.exit(_REFUSED)
    except StartError as error:
        _say(str(error))
        sys.exit(_UNREADABLE)
    sys.argv = [given.script, *given.arguments]
    if given.module:
        runpy.run_module(given.script, run_name="__main__", alter_sys=True)
    else:
        sys.path.insert(0, str(Path(given.script).resolve().parent))
        runpy.run_path(given.script, run_name="__main__")


if __name__ == "__main__":
    main()

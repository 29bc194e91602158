"""Let nodes of placed jobs fail and count the moves that mend them; every mended placement is verified.

Jobs of 1,200 nodes (150 x 8, 75 x 16, 300 x 4, 100 x 12) on 5 to 40 fragmented minipods that hold 1.02 to 2 times as
many free nodes, one more than the job at least, are placed at alpha 0.3, 0.5 and 0.7; five nodes of each fail, one at a
time. Twice: free nodes as the placement left them, and with none left in the minipod of the failed node. A failure
counts as mended where the largest spreads are those of before and at most five ranks get other nodes. Jobs of 12 to 32
nodes are mended too, and there HiGHS says whether the moves are the fewest. Where spreads cannot be kept, the trade
that was chosen is counted apart.
"""

import argparse
import json
import random
import statistics
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from rich.console import Console
from rich.table import Table

from spanfit.errors import InfeasibleError
from spanfit.placer.model import JobSpec, Placement
from spanfit.placer.place import place
from spanfit.placer.repair import repair
from spanfit.placer.verify import verify
from spanfit.topology.model import Cluster, Node, NodeState
from spanfit.workload.layout import ParallelLayout

LARGE = ((150, 8), (75, 16), (300, 4), (100, 12))
SMALL = ((6, 2), (13, 2), (6, 4), (8, 4))
SLACKS = (1.02, 1.05, 1.1, 1.2, 1.5, 2.0)
FEW_MOVES = 5
FAILURES_PER_JOB = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a failure.

    ``moves`` is None where nothing mended it; ``is_fewest`` says that this was proven.
    """

    moves: int | None
    is_kept: bool
    is_fewest: bool
    took_s: float


def build(shape: tuple[int, int], minipods: Sequence[int], source: random.Random) -> Cluster:
    """Return a fragmented cluster for a job of a shape, of free nodes only."""
    nnodes, count = shape[0] * shape[1], source.choice(minipods)
    weights, slack = [source.uniform(0.2, 1) for _ in range(count)], source.choice(SLACKS)
    sizes = [round(weight / sum(weights) * slack * nnodes) for weight in weights]
    sizes[0] += max(0, nnodes + 1 - sum(sizes))
    nodes = (
        Node(name=f"p{minipod}n{index}", fabric=(f"pod{minipod}", "core"), ngpus=8)
        for minipod, size in enumerate(sizes)
        for index in range(size)
    )
    return Cluster(name="fragmented", tiers=("minipod", "core"), nodes=tuple(nodes))


def after(cluster: Cluster, placement: Placement, failed: str, *, is_full: bool) -> Cluster:
    """Return the cluster once a node has failed; ``is_full`` takes what is left of its minipod too."""
    taken, home = set(placement.rank_map.node_names), cluster.minipod(cluster.select([failed])[0])

    def state(node: Node) -> NodeState:
        if node.name == failed:
            return NodeState.DOWN
        is_taken = node.name in taken or (is_full and cluster.minipod(node) == home)
        return NodeState.ALLOCATED if is_taken else NodeState.IDLE

    return replace(cluster, nodes=tuple(replace(node, state=state(node)) for node in cluster.nodes))


def failures(
    shapes: Sequence[tuple[int, int]], minipods: Sequence[int], jobs: int, source: random.Random
) -> Iterator[tuple[Cluster, Placement, str]]:
    """Yield placed jobs and a node of each that fails."""
    for number in range(jobs):
        rows, columns = shapes[number % len(shapes)]
        cluster, alpha = build((rows, columns), minipods, source), source.choice((0.3, 0.5, 0.7))
        job = JobSpec(name="job", layout=ParallelLayout(dp=rows, pp=columns, tp=8), ngpus_per_node=8)
        placement = place(job, cluster, alpha=alpha, beta=1 - alpha, time_limit_s=1)
        for failed in source.sample(placement.rank_map.node_names, FAILURES_PER_JOB):
            yield cluster, placement, failed


def mended(cluster: Cluster, placement: Placement, failed: str, *, is_full: bool, time_limit_s: float) -> Outcome:
    """Return what becomes of a failure; a repair that does not hold ends the benchmark."""
    now = after(cluster, placement, failed, is_full=is_full)
    start = time.process_time()
    try:
        found = repair(placement, now, [failed], time_limit_s=time_limit_s)
    except InfeasibleError:
        return Outcome(moves=None, is_kept=False, is_fewest=False, took_s=time.process_time() - start)
    took_s = time.process_time() - start
    verify(found.placement, now, held=placement.rank_map.node_names)
    is_kept = found.placement.objective <= placement.objective + 1e-9
    return Outcome(moves=len(found.moves), is_kept=is_kept, is_fewest=found.options[0].is_fewest, took_s=took_s)


def summary(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """Return the figures of a family."""
    kept = [each for each in outcomes if each.is_kept]
    few = sum(each.moves is not None and each.moves <= FEW_MOVES for each in kept)
    return {
        "failures": len(outcomes),
        "mended": round(few / len(outcomes), 4),
        "kept": round(len(kept) / len(outcomes), 4),
        "traded": round(sum(each.moves is not None and not each.is_kept for each in outcomes) / len(outcomes), 4),
        "one_move": round(sum(each.moves == 1 for each in kept) / len(outcomes), 4),
        "proven": round(sum(each.is_fewest for each in outcomes) / len(outcomes), 4),
        "median_ms": round(1e3 * statistics.median(each.took_s for each in outcomes), 2),
        "max_ms": round(1e3 * max(each.took_s for each in outcomes), 1),
    }


def main() -> None:
    """Run the benchmark; its last line is one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a fifth of the failures")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    jobs = 8 if options.quick else 40
    families = {
        "n1200": (LARGE, (5, 10, 20, 40), jobs, False, 0.2),
        "n1200_full": (LARGE, (5, 10, 20, 40), jobs, True, 0.2),
        "n32": (SMALL, (2, 3, 4, 5, 6), jobs // 2, False, 40.0),
        "n32_full": (SMALL, (2, 3, 4, 5, 6), jobs // 2, True, 40.0),
    }
    table = Table(
        "family", "failures", "<= 5 moves", "spreads kept", "traded", "1 move", "proven", "median ms", "max ms"
    )
    figures = {}
    moves: dict[str, Counter[int | None]] = {}
    for name, (shapes, minipods, count, is_full, limit_s) in families.items():
        source = random.Random(options.seed)
        outcomes = [
            mended(*each, is_full=is_full, time_limit_s=limit_s) for each in failures(shapes, minipods, count, source)
        ]
        figures[name] = summary(outcomes)
        moves[name] = Counter(each.moves for each in outcomes if each.is_kept)
        shares = (f"{100 * figures[name][key]:.1f}%" for key in ("mended", "kept", "traded", "one_move", "proven"))
        times = (f"{figures[name][key]:.1f}" for key in ("median_ms", "max_ms"))
        table.add_row(name, str(len(outcomes)), *shares, *times)
    console = Console(width=120)
    console.print(table)
    for name, counts in moves.items():
        text = ", ".join(f"{count} x {moved}" for moved, count in sorted(counts.items(), key=str))
        console.print(f"{name}: failures by moves where spreads are kept: {text}", soft_wrap=True)
    print(json.dumps({"benchmark": "repair", "repaired": figures["n1200"]["mended"], **figures}))


if __name__ == "__main__":
    main()

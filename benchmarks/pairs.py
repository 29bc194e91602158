"""Compare what a scan over pairs finds of every host's link and every uplink with the truth, and time its planner.

A testbed of 2 minipods, 2 leaves each and 4 hosts a leaf (2 with --quick) is brought up with rates that the seed
varies: one host at half, one leaf's uplink at a quarter, every other host up to 20% below the fastest. One campaign
scans all pairs, one way, a round at a time, and spanfit's own fit says what each link carries. The truth is the rate
that each link was shaped to, in TCP payload (1448 of 1514 bytes of a full frame).

An estimate's error is its distance from the truth as a share of it. The truth of a host is the most that any flow of
its own can show, which for the fastest host is the second fastest. Of an uplink that is known to carry at least
something only an excess over the truth is an error; of uplinks that no flow can tell apart the slowest is the truth.
The planner is timed on 1,250 nodes in 8 minipods, from the tree to the finished cases.
"""

import argparse
import json
import random
import tempfile
import time
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path

from rich.console import Console
from rich.table import Table

from spanfit.bench.campaign_file import CampaignFile, Launcher, LaunchFile, PairsFile
from spanfit.bench.groups import NodeTree
from spanfit.bench.tournament import plan_pairs
from spanfit.launch import testbed
from spanfit.launch.fabric import Fabric, LinkClass, LinkShape, hosts
from spanfit.profiler.campaign import Campaign
from spanfit.profiler.pair_scan import LinkRate, PairScan
from spanfit.profiler.pairs import fit_pairs
from spanfit.results.store import Store
from spanfit.units import format_bandwidth

PAYLOAD = 1448 / 1514 / 8
HOST_RATE, LEAF_RATE, MINIPOD_RATE = 4e8, 6e8, 8e8


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much is measured."""

    hosts_per_leaf: int
    launches: int
    repetitions: int


QUICK = Size(hosts_per_leaf=2, launches=2, repetitions=2)
FULL = Size(hosts_per_leaf=4, launches=4, repetitions=3)


def build(folder: Path, size: Size, seed: int) -> Fabric:
    """Write the cluster, testbed and campaign files into a folder and return the fabric that they describe."""
    fabric = Fabric(
        name=f"pairs-{seed}",
        minipods=2,
        leaves_per_minipod=2,
        hosts_per_leaf=size.hosts_per_leaf,
        links={
            LinkClass.HOST: LinkShape(rate_bits_per_s=HOST_RATE),
            LinkClass.LEAF: LinkShape(rate_bits_per_s=LEAF_RATE),
            LinkClass.MINIPOD: LinkShape(rate_bits_per_s=MINIPOD_RATE),
        },
    )
    (folder / "testbed.toml").write_text(
        f'name = "{fabric.name}"\nminipods = 2\nleaves_per_minipod = 2\nhosts_per_leaf = {size.hosts_per_leaf}\n'
        + "".join(f'[links.{kind}]\nrate = "{shape.rate_bits_per_s:.0f}bit"\n' for kind, shape in fabric.links.items())
    )
    (folder / "cluster.toml").write_text(
        f'name = "{fabric.name}"\ntiers = ["leaf", "minipod", "core"]\n'
        + "".join(
            f'[[nodes]]\nnames = "{host.name}"\nswitches = ["{host.leaf}", "{host.minipod}", "core"]\n'
            for host in hosts(fabric)
        )
    )
    (folder / "campaign.toml").write_text(
        f'name = "pairs"\ncluster = "cluster.toml"\nseed = {seed}\nlaunches = {size.launches}\n'
        '[launch]\nlauncher = "testbed"\ntestbed = "testbed.toml"\n'
        f'[pairs]\noperation = "send"\nsizes = ["4M"]\nrepetitions = {size.repetitions}\n'
    )
    return fabric


def shaped(fabric: Fabric, seed: int) -> dict[str, float]:
    """Return the rates [bits/s] that differ from their class: every host's, and one leaf's uplink."""
    rng = random.Random(seed)
    names = [host.name for host in hosts(fabric)]
    rates = {name: round(HOST_RATE * rng.uniform(0.8, 1.0)) for name in names}
    rates[rng.choice(names)] = round(HOST_RATE / 2)
    rates[rng.choice(sorted({host.leaf for host in hosts(fabric)}))] = round(LEAF_RATE / 4)
    return {name: float(rate) for name, rate in rates.items()}


def scan(size: Size, seed: int) -> tuple[PairScan, dict[str, float]]:
    """Return what a scan of the testbed says, and the truth [bytes/s] by ``class name`` of a link."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fabric = build(folder, size, seed)
        bed = testbed.up(fabric, attached=True)
        try:
            for link, rate in shaped(fabric, seed).items():
                bed.set_rate(link, rate)
            truth = {key.replace("/", " "): rate * PAYLOAD for key, rate in bed.truth().items()}
            campaign = Campaign(folder / "campaign.toml", folder / "runs")
            campaign.run(lambda _: None)
            info, frame = Store(folder / "runs").read(campaign.run_id)
        finally:
            bed.down()
    (found,) = fit_pairs(frame, info)
    return found, shown(fabric, truth)


def shown(fabric: Fabric, truth: dict[str, float]) -> dict[str, float]:
    """Return the truth with every host's rate lowered to the most that any flow of its own can show."""
    most = dict.fromkeys((f"host {host.name}" for host in hosts(fabric)), 0.0)
    for a, b in permutations(hosts(fabric), 2):
        path = [f"host {a.name}", f"host {b.name}"]
        path += [f"leaf {a.leaf}", f"leaf {b.leaf}"] if a.leaf != b.leaf else []
        path += [f"minipod {a.minipod}", f"minipod {b.minipod}"] if a.minipod != b.minipod else []
        most[path[0]] = max(most[path[0]], min(truth[name] for name in path))
    return truth | most


def error(link: LinkRate, truth: dict[str, float]) -> float:
    """Return how far an estimate is off, as a share of the truth."""
    is_host = link.link_class == "host"
    slowest = min(truth[name] for name in (f"{link.link_class} {link.name}", *(() if is_host else link.ties)))
    off = link.rate_bytes_per_s.value / slowest - 1
    return max(0.0, off) if link.is_bound and not is_host else abs(off)


def time_planner() -> float:
    """Return the seconds that planning a scan of 1,250 nodes takes."""
    fabric = tuple((f"leaf{node // 16}", f"minipod{node // 160}", "core") for node in range(1250))
    campaign = CampaignFile(
        name="scan",
        cluster="cluster.toml",
        launch=LaunchFile(launcher=Launcher.SSH),
        pairs=PairsFile(sizes=(1 << 26,)),
    )
    start = time.perf_counter()
    cases = list(plan_pairs(campaign, NodeTree(tiers=("leaf", "minipod", "core"), fabric=fabric)))
    wall_s = time.perf_counter() - start
    assert all(len({node for pair in case.groups for node in pair}) == 2 * len(case.groups) for case in cases)
    return wall_s


def main() -> None:
    """Measure, print the table and the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="8 hosts, 2 launches: within a minute")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    size = QUICK if arguments.quick else FULL
    start = time.perf_counter()
    found, truth = scan(size, arguments.seed)
    wall_s = time.perf_counter() - start
    table = Table(title=f"{len(found.node_names)} hosts, {found.nunits} launches, {wall_s:.0f} s", title_justify="left")
    for column in ("link", "truth", "estimate", "error", "verdict"):
        table.add_column(column)
    for link in found.links:
        if f"{link.link_class} {link.name}" in truth:
            table.add_row(
                f"{link.link_class} {link.name}",
                format_bandwidth(truth[f"{link.link_class} {link.name}"]),
                f"{'at least ' if link.is_bound else ''}{format_bandwidth(link.rate_bytes_per_s.value)}",
                f"{error(link, truth):.1%}",
                link.sentence,
            )
    Console(width=150).print(table)
    told = [link for link in found.links if not link.is_bound]
    figures = {
        "benchmark": "pairs",
        "worst_error": round(max(error(link, truth) for link in found.links), 4),
        "plan_1250_s": round(time_planner(), 3),
        "links": len(found.links),
        "told": len(told),
        "wall_s": round(wall_s, 1),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()

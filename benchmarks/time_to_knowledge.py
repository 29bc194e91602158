"""What a span curve to within 5% costs by a campaign that shares launches and stops by itself, against a fixed sweep.

Both measure the same cases on the same emulated fabric (3 minipods x 3 hosts, every link 400 Mbit/s): collectives x
spans x sizes of 1 MiB and more, groups of 3 nodes alone. The campaign runs all cases in every launch, 3 repetitions
after 1 warm-up, and later launches only what is still uncertain. The fixed sweep starts a launch for each collective
and span with all its sizes, 20 repetitions after 5 warm-ups as nccl-tests does unless told otherwise, and repeats that
launch until the intervals of all its sizes are as narrow. Units, intervals, the least number of launches and the rule
by which an interval counts as narrow are the same on both sides. Nothing is extrapolated: a sweep that is not narrow
after its last launch counts with what it has spent, and the table says so.

Fabric seconds are those of the slowest rank, summed over repetitions; each warm-up of a case and the iteration that
checks its result count at its median. Wall seconds hold everything from the start of ranks to the stored result; each
side imports torch once for all launches of a campaign file, of which the sweep has one for each collective and span.
"""

import argparse
import json
import math
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd
from rich.console import Console
from rich.table import Table

from spanfit.launch import testbed
from spanfit.launch.fabric import Fabric, LinkClass, LinkShape
from spanfit.launch.fabric import cluster as fabric_cluster
from spanfit.profiler import stopping
from spanfit.profiler.campaign import Campaign
from spanfit.profiler.stopping import History, Rule
from spanfit.topology.readers.cluster_toml import render_cluster

PRECISION = 0.05
LEAST = 6
RATE_BITS_PER_S = 4e8


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How much is measured, and how often at most."""

    minipods: int
    hosts_per_minipod: int
    collectives: tuple[str, ...]
    spans: tuple[int, ...]
    sizes: tuple[str, ...]
    most_campaign: int
    most_sweep: int

    @property
    def nodes_per_group(self) -> int:
        """Nodes of a group: the same for every span."""
        return max(self.spans)


FULL = Scale(
    minipods=3,
    hosts_per_minipod=3,
    collectives=("all_reduce", "all_gather", "broadcast"),
    spans=(1, 2, 3),
    sizes=("1M", "2M", "4M"),
    most_campaign=60,
    most_sweep=10,
)
QUICK = Scale(
    minipods=2,
    hosts_per_minipod=2,
    collectives=("all_reduce",),
    spans=(1, 2),
    sizes=("1M", "2M"),
    most_campaign=8,
    most_sweep=6,
)


@dataclass(slots=True, kw_only=True)
class Side:
    """What one side has measured and spent; ``launches`` counts worlds that were started."""

    warmup: int
    launches: int = 0
    wall_s: float = 0.0
    frames: list[pd.DataFrame] = field(default_factory=list)

    def run(self, campaign: Campaign) -> pd.DataFrame:
        """Run a campaign to its end and note what it took."""
        started_s = time.monotonic()
        campaign.run(lambda progress: None)
        self.wall_s += time.monotonic() - started_s
        _, frame = campaign.store.read(campaign.run_id)
        self.launches += int(frame["launch"].nunique())
        self.frames.append(frame)
        return frame

    @property
    def fabric_s(self) -> float:
        """Seconds that operations were on the fabric, warm-up and checks included."""
        total_s = 0.0
        for frame in self.frames:
            visits = frame.groupby(["launch", "comm_id", "case_id"])["time_s"]
            total_s += float((visits.sum() + (self.warmup + 1) * visits.median()).sum())
        return total_s


class Bench:
    """Writes campaigns for a testbed that is up."""

    def __init__(self, folder: Path, fabric: Fabric, scale: Scale, seed: int) -> None:
        self.folder = folder
        self.scale = scale
        self.seed = seed
        rates = "".join(f'[links.{kind}]\nrate = "{RATE_BITS_PER_S:.0f}bit"\n' for kind in fabric.links)
        shape = f"minipods = {fabric.minipods}\nhosts_per_leaf = {fabric.hosts_per_leaf}\n"
        (folder / "testbed.toml").write_text(f'name = "{fabric.name}"\n{shape}{rates}')
        (folder / "cluster.toml").write_text(render_cluster(fabric_cluster(fabric)))

    def campaign(
        self, name: str, collectives: tuple[str, ...], spans: tuple[int, ...], head: str, repeat: str
    ) -> Campaign:
        """Return a campaign of some collectives and spans; ``head`` says when it ends, ``repeat`` its iterations."""
        text = (
            f'name = "{name}"\ncluster = "cluster.toml"\n{head}\n'
            '[launch]\nlauncher = "testbed"\ntestbed = "testbed.toml"\n[collectives]\n'
            f"operations = {json.dumps(collectives)}\nsizes = {json.dumps(self.scale.sizes)}\n"
            f"nodes_per_group = {self.scale.nodes_per_group}\nspans = {json.dumps(spans)}\n{repeat}\n"
        )
        path = self.folder / f"{name}.toml"
        path.write_text(text)
        return Campaign(path, self.folder / "runs")


def run_campaign(bench: Bench) -> Side:
    """Return what the campaign that stops by itself took."""
    side = Side(warmup=1)
    scale = bench.scale
    head = f"seed = {bench.seed}\nlaunches = {LEAST}\nmax_launches = {scale.most_campaign}\nprecision = {PRECISION}"
    side.run(bench.campaign("campaign", scale.collectives, scale.spans, head, "warmup = 1\nrepetitions = 3"))
    return side


def run_sweep(bench: Bench) -> tuple[Side, int]:
    """Return what the fixed sweep took, and how many of its collectives and spans did not become narrow."""
    side, wide = Side(warmup=1), 0
    for collective in bench.scale.collectives:
        for span in bench.scale.spans:
            wide += not _sweep_one(bench, side, collective, span)
    return side, wide


def _sweep_one(bench: Bench, side: Side, collective: str, span: int) -> bool:
    """Repeat the launch of a collective and span until it is narrow; return whether it became so."""
    rule = Rule(least=LEAST, most=10**6, precision=PRECISION)
    launches: list[dict[str, tuple[float, ...]]] = []
    while True:
        count = LEAST if not launches else 1
        name = f"{collective}-{span}-{len(launches)}".replace("_", "-")
        head = f"seed = {bench.seed + len(launches)}\nlaunches = {count}"
        repeat = "warmup = 1\nrepetitions = 20"
        campaign = bench.campaign(name, (collective,), (span,), head, repeat)
        labels = {case.case_id: case.label() for case in campaign.cases}
        for launch in stopping.frame_units(side.run(campaign)):
            launches.append({labels[case_id]: units for case_id, units in launch.items()})
        units = History(launches=tuple(launches)).units
        if all(map(rule.is_done, units.values())):
            return True
        if len(launches) >= bench.scale.most_sweep:
            return False


def widest(frames: list[pd.DataFrame]) -> float:
    """Return the widest relative half width over the cases of runs that share none."""
    halves = []
    for frame in frames:
        for units in History(launches=stopping.frame_units(frame)).units.values():
            halves.append(stopping.log_half_width(units) or math.inf)
    return math.expm1(max(halves))


def measure(scale: Scale, seed: int) -> tuple[Side, Side, int]:
    """Return both sides, and the collectives and spans that the sweep left wide."""
    shape = LinkShape(rate_bits_per_s=RATE_BITS_PER_S)
    fabric = Fabric(
        name=f"knowledge-{seed}",
        minipods=scale.minipods,
        leaves_per_minipod=1,
        hosts_per_leaf=scale.hosts_per_minipod,
        links={LinkClass.HOST: shape, LinkClass.MINIPOD: shape},
    )
    bed = testbed.up(fabric, attached=True)
    try:
        with tempfile.TemporaryDirectory() as folder:
            bench = Bench(Path(folder), fabric, scale, seed)
            ours = run_campaign(bench)
            sweep, wide = run_sweep(bench)
    finally:
        bed.down()
    return ours, sweep, wide


def main() -> None:
    """Measure both sides and print the table and the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one collective over 2 spans and 2 sizes")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    if refusal := testbed.refusal():
        raise SystemExit(refusal)
    scale = QUICK if arguments.quick else FULL
    ours, sweep, wide = measure(scale, arguments.seed)
    ncases = len(scale.collectives) * len(scale.spans) * len(scale.sizes)
    table = Table(title=f"{ncases} cases to within ± {PRECISION:.0%}")
    for column in ("side", "launches", "fabric s", "wall s"):
        table.add_column(column, justify="left" if column == "side" else "right")
    table.add_row("campaign", str(ours.launches), f"{ours.fabric_s:.1f}", f"{ours.wall_s:.1f}")
    table.add_row("fixed sweep", str(sweep.launches), f"{sweep.fabric_s:.1f}", f"{sweep.wall_s:.1f}")
    Console().print(table)
    print(f"widest interval of the campaign: ± {widest(ours.frames):.1%}")
    if wide:
        print(f"{wide} launches of the sweep were still wider after {scale.most_sweep} repeats; it counts as if done")
    figures = {
        "benchmark": "time_to_knowledge",
        "fabric_share": round(ours.fabric_s / sweep.fabric_s, 3),
        "wall_share": round(ours.wall_s / sweep.wall_s, 3),
        "campaign_fabric_s": round(ours.fabric_s, 1),
        "sweep_fabric_s": round(sweep.fabric_s, 1),
        "widest": round(widest(ours.frames), 4),
        "sweep_wide": wide,
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()

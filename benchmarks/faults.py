"""Inject faults into a testbed, and see whether a short campaign names them, and nothing where nothing is wrong.

A testbed of 2 minipods x 2 leaves x 2 hosts, not oversubscribed, stays up; so does the process that ranks are forked
from. Each run breaks one thing, measures every pair of hosts in both directions (a tournament, disjoint pairs at once,
two blocks) and asks ``spanfit.profiler.diagnose`` what stands out. A fault is named if the answer is one finding, of
exactly the places that no traffic on this fabric could tell apart:

- a host at a quarter to half of its rate, or with 5 to 10% loss on its link: that host;
- a leaf's uplink at a quarter to half of its rate: that uplink (a pair under the leaf tells it from the leaf itself);
- a minipod's uplink at a tenth to a quarter: the uplinks of both minipods and the core between them, since whatever
  passes one of two minipods' uplinks passes all three;
- a minipod's switch, all of whose links are at a quarter to half: that switch;
- a rank that is killed or stopped during the run: its host, found dead or stuck; the campaign goes on without it.

``stuck_rank_s`` is the longest time from the limit of a stopped rank to the moment its host is named.
"""

import argparse
import contextlib
import json
import os
import random
import signal
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from rich.console import Console
from rich.table import Table

from spanfit.bench.campaign_file import Launcher
from spanfit.errors import SpanfitError
from spanfit.launch import fabric as fabrics
from spanfit.launch import testbed as beds
from spanfit.launch.fabric import Fabric, LinkClass, LinkShape
from spanfit.launch.testbed import Testbed
from spanfit.profiler.campaign import Campaign
from spanfit.profiler.diagnose import Ailment, Diagnosis, diagnose
from spanfit.profiler.following import Progress
from spanfit.profiler.ways import Way, open_worlds
from spanfit.topology.readers.cluster_toml import render_cluster

RATES = {LinkClass.HOST: 300e6, LinkClass.LEAF: 600e6, LinkClass.MINIPOD: 1200e6}
FABRIC = Fabric(
    name=f"faults-{os.getpid()}",
    minipods=2,
    leaves_per_minipod=2,
    hosts_per_leaf=2,
    links={kind: LinkShape(rate_bits_per_s=rate) for kind, rate in RATES.items()},
)
HOSTS = tuple(host.name for host in fabrics.hosts(FABRIC))
LIMIT_S = 10.0
"""Where a tenth of the packets is lost, a connection takes 7 s in one of about a hundred cases."""
CAMPAIGN = f"""name = "faults"
cluster = "cluster.toml"
seed = 1
launches = 1
blocks = 2

[launch]
launcher = "testbed"
testbed = "testbed.toml"
timeout = "{LIMIT_S}s"
exclude_sick = true

[pairs]
sizes = ["384K"]
repetitions = 4
"""


class Kind(StrEnum):
    """What is broken."""

    HOST_RATE = "host at a lower rate"
    HOST_LOSS = "host with loss"
    LEAF = "slow leaf uplink"
    MINIPOD_UPLINK = "slow minipod uplink"
    MINIPOD = "slow minipod"
    DEAD = "dead rank"
    STOPPED = "stopped rank"


SHARES = {
    Kind.HOST_RATE: (0.25, 0.5),
    Kind.HOST_LOSS: (0.05, 0.1),
    Kind.LEAF: (0.25, 0.5),
    Kind.MINIPOD_UPLINK: (0.1, 0.25),
    Kind.MINIPOD: (0.25, 0.5),
    Kind.DEAD: (0.2, 0.8),
    Kind.STOPPED: (0.2, 0.8),
}
"""The range of the rate that is left, of the loss, or of how far the run is when its rank is hit."""
SIGNALS = {Kind.DEAD: signal.SIGKILL, Kind.STOPPED: signal.SIGSTOP}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What is broken, where, and by how much."""

    kind: Kind
    place: str
    share: float

    def expected(self) -> frozenset[str]:
        """Return the places that a perfect answer names."""
        match self.kind:
            case Kind.LEAF:
                return frozenset({f"the uplink of leaf {self.place}"})
            case Kind.MINIPOD:
                return frozenset({f"minipod {self.place} (the switch with all its links)"})
            case Kind.MINIPOD_UPLINK:
                uplinks = {"the uplink of minipod m0", "the uplink of minipod m1", "all uplinks of the minipod tier"}
                return frozenset({*uplinks, "core core (the switch with all its links)"})
        return frozenset({f"host {self.place}"})


def draw_fault(kind: Kind, rng: random.Random) -> Fault:
    """Return a fault of a kind at a random place."""
    length = {Kind.LEAF: 4, Kind.MINIPOD: 2, Kind.MINIPOD_UPLINK: 2}.get(kind, 6)
    return Fault(kind=kind, place=rng.choice(HOSTS)[:length], share=rng.uniform(*SHARES[kind]))


@contextlib.contextmanager
def broken(bed: Testbed, fault: Fault | None) -> Iterator[None]:
    """Break links for the time of the block."""
    touched = []
    if fault is not None and fault.kind not in SIGNALS:
        touched = [link for link in fabrics.links(FABRIC) if _is_broken(link, fault)]
    for link in touched:
        if fault is not None and fault.kind is Kind.HOST_LOSS:
            bed.set_loss(link.name, fault.share)
        elif fault is not None:
            bed.set_rate(link.name, RATES[link.link_class] * fault.share)
    try:
        yield
    finally:
        for link in touched:
            bed.set_loss(link.name, 0.0)
            bed.set_rate(link.name, RATES[link.link_class])


def _is_broken(link: fabrics.Link, fault: Fault) -> bool:
    if fault.kind is Kind.MINIPOD:
        return link.name == fault.place or (link.link_class is LinkClass.LEAF and link.peer == fault.place)
    return link.name == fault.place


class Watch:
    """Hits a rank when the run is far enough, and notes when its host is named."""

    def __init__(self, bed: Testbed, campaign: Campaign, fault: Fault | None) -> None:
        self.bed, self.campaign = bed, campaign
        self.fault = fault if fault is not None and fault.kind in SIGNALS else None
        self.hit_s: float | None = None
        self.named_s: float | None = None

    def __call__(self, progress: Progress) -> None:
        """Look at the run; the campaign calls this several times a second."""
        if self.fault is None:
            return
        if self.hit_s is None and progress.done >= self.fault.share * progress.total:
            if hit_ranks(self.bed, self.fault.place, SIGNALS[self.fault.kind]):
                self.hit_s = time.monotonic()
        elif self.hit_s is not None and self.named_s is None and self.fault.place in self.campaign.excluded:
            self.named_s = time.monotonic()


def hit_ranks(bed: Testbed, host: str, number: signal.Signals) -> bool:
    """Send a signal to every rank on a host; return whether there was one."""
    keeper = bed.hosts[host].pid
    network = Path(f"/proc/{keeper}/ns/net").readlink()
    pids = []
    for pid in (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()):
        with contextlib.suppress(OSError):
            if pid != keeper and Path(f"/proc/{pid}/ns/net").readlink() == network:
                os.kill(pid, number)
                pids.append(pid)
    return bool(pids)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a run said of a fault, or of a healthy fabric; a campaign that ends with an error names nothing rightly."""

    fault: Fault | None
    diagnosis: Diagnosis | None
    seconds: float
    stuck_s: float | None
    error: str = ""

    @property
    def is_right(self) -> bool:
        """Whether the fault is named and nothing else, or nothing is where nothing is wrong."""
        if self.diagnosis is None:
            return False
        found = self.diagnosis.findings
        if self.fault is None:
            return not found
        ailments = {Kind.DEAD: Ailment.DEAD, Kind.STOPPED: Ailment.STUCK}
        expected = ailments.get(self.fault.kind)
        return (
            len(found) == 1
            and set(found[0].places) == self.fault.expected()
            and (expected is None or found[0].ailment is expected)
        )

    @property
    def said(self) -> str:
        """What was found, in a few words."""
        if self.diagnosis is None:
            return f"error: {self.error}"
        found = self.diagnosis.findings
        return "; ".join(f"{finding.ailment}: {' or '.join(finding.places)}" for finding in found) or "nothing"


def run_once(bed: Testbed, way: Way, folder: Path, number: int, fault: Fault | None) -> Outcome:
    """Break what a fault says, measure and diagnose."""
    began_s = time.monotonic()
    campaign = Campaign(folder / "campaign.toml", folder / f"runs-{number:03d}")
    watch = Watch(bed, campaign, fault)
    try:
        with broken(bed, fault):
            campaign.run(watch, way)
    except SpanfitError as error:
        seconds = time.monotonic() - began_s
        return Outcome(fault=fault, diagnosis=None, error=str(error)[:120], seconds=seconds, stuck_s=None)
    ended_s = time.monotonic()
    info, frame = campaign.store.read(campaign.run_id)
    stuck_s = None
    if fault is not None and fault.kind is Kind.STOPPED and watch.hit_s is not None:
        # Where every case left needs the host, the run ends as soon as it is named.
        stuck_s = (watch.named_s or ended_s) - watch.hit_s - LIMIT_S
    return Outcome(fault=fault, diagnosis=diagnose(frame, info), seconds=time.monotonic() - began_s, stuck_s=stuck_s)


def draw_runs(seed: int, quick: bool) -> list[Fault | None]:
    """Return the faults of all runs in random order; None is a healthy run."""
    rng = random.Random(seed)
    counts = {
        Kind.HOST_RATE: 8,
        Kind.HOST_LOSS: 8,
        Kind.LEAF: 7,
        Kind.MINIPOD_UPLINK: 4,
        Kind.MINIPOD: 3,
        Kind.DEAD: 5,
        Kind.STOPPED: 5,
    }
    if quick:
        chosen = [Kind.HOST_RATE, Kind.HOST_LOSS, Kind.LEAF, rng.choice([Kind.MINIPOD, Kind.MINIPOD_UPLINK])]
        counts = dict.fromkeys([*chosen, Kind.DEAD, Kind.STOPPED], 1)
    faults = [draw_fault(kind, rng) for kind, count in counts.items() for _ in range(count)]
    runs = [*faults, *[None] * (4 if quick else 40)]
    rng.shuffle(runs)
    return runs


def write_files(folder: Path) -> None:
    """Write the campaign with its testbed and cluster files."""
    tables = "".join(f'[links.{kind}]\nrate = "{rate:.0f}bit"\n' for kind, rate in RATES.items())
    shape = "minipods = 2\nleaves_per_minipod = 2\nhosts_per_leaf = 2\n"
    (folder / "testbed.toml").write_text(f'name = "{FABRIC.name}"\n{shape}{tables}')
    (folder / "cluster.toml").write_text(render_cluster(fabrics.cluster(FABRIC)))
    (folder / "campaign.toml").write_text(CAMPAIGN)


def show(outcomes: list[Outcome], console: Console) -> None:
    """Print a line for every run."""
    table = Table("what was wrong", "where", "how much", "what was found", "right", "run")
    for outcome in outcomes:
        fault = outcome.fault
        what = (fault.kind, fault.place, f"{fault.share:.2f}") if fault else ("nothing", "", "")
        table.add_row(*what, outcome.said, "yes" if outcome.is_right else "NO", f"{outcome.seconds:.1f} s")
    console.print(table)


def main() -> None:
    """Run all, print a table and, last, one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="6 faults and 4 healthy runs")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    console = Console()
    outcomes = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_files(folder)
        bed = beds.up(FABRIC, attached=True)
        try:
            with open_worlds(Launcher.TESTBED, FABRIC) as way:
                for number, fault in enumerate(draw_runs(arguments.seed, arguments.quick)):
                    outcomes.append(run_once(bed, way, folder, number, fault))
                    console.print(f"run {number}: {'right' if outcomes[-1].is_right else 'WRONG'}", end="\r")
        finally:
            bed.down()
    show(outcomes, console)
    faulty = [outcome for outcome in outcomes if outcome.fault is not None]
    healthy = [outcome for outcome in outcomes if outcome.fault is None]
    stuck = [outcome.stuck_s for outcome in faulty if outcome.stuck_s is not None]
    figures = {
        "benchmark": "faults",
        "injected": len(faulty),
        "named": sum(outcome.is_right for outcome in faulty),
        "healthy_runs": len(healthy),
        "false_alarms": sum(not outcome.is_right for outcome in healthy),
        "stuck_rank_s": round(max(stuck), 2) if stuck else None,
        "seconds": round(sum(outcome.seconds for outcome in outcomes), 1),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()

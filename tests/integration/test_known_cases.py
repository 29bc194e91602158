"""Cases that others met on real fabrics, emulated and diagnosed from a campaign file to the sentence."""

from pathlib import Path

import pandas as pd

from spanfit.launch import testbed
from spanfit.launch.fabric import Fabric, LinkClass, LinkShape
from spanfit.profiler.campaign import Campaign
from spanfit.profiler.diagnose import Ailment, Finding, diagnose
from spanfit.profiler.pairs import fit_pairs
from spanfit.results.schema import RunInfo
from tests.conftest import make_fabric
from tests.integration.factory import write_campaign

HOST_RATE = 3e8


def measure(path: Path) -> tuple[RunInfo, pd.DataFrame]:
    campaign = Campaign(path, path.parent / "runs")
    campaign.run(lambda _: None)
    info, frame = campaign.store.read(campaign.run_id)
    assert (frame["status"] == "ok").all()
    return info, frame


def only_finding(frame: pd.DataFrame, info: RunInfo) -> Finding:
    (finding,) = diagnose(frame, info).findings
    return finding


def test_pairs_that_are_fine_alone_and_groups_that_are_slow_tell_a_shared_core(
    namespaces: None, tmp_path: Path
) -> None:
    """NVIDIA/nccl#1453: every pair of nodes is fine, groups across two racks are slow."""
    # A minipod's uplink carries one flow at a host's rate, and there are three hosts in each.
    fabric = make_fabric("core", hosts_per_leaf=3, host=HOST_RATE, uplink=HOST_RATE)
    body = """launches = 3
[pairs]
sizes = ["1M"]
concurrency = ["alone", "all"]
warmup = 2
repetitions = 3
[collectives]
operations = ["all_reduce"]
sizes = ["1M"]
nodes_per_group = 6
spans = [2]
rank_orders = ["sorted", "alternating"]
warmup = 2
repetitions = 3
"""
    info, frame = measure(write_campaign(tmp_path, fabric, body))
    alone = frame[(frame["kind"] == "pairs") & (frame["concurrency"] == "alone")]
    assert diagnose(alone, info).findings == ()
    finding = only_finding(frame, info)
    assert finding.ailment is Ailment.NARROW
    assert "all uplinks of the minipod tier" in finding.places
    assert not any(place.startswith("host") for place in finding.places)
    assert "have it to themselves" in finding.sentence


def test_a_group_that_is_slower_than_its_twins_tells_a_nic(namespaces: None, tmp_path: Path) -> None:
    """NVIDIA/nccl#820: of the groups on the same hosts, one for each NIC, one is slow."""
    fabric = Fabric(
        name=make_fabric("rails").name,
        minipods=2,
        leaves_per_minipod=1,
        hosts_per_leaf=2,
        rails=2,
        links={LinkClass.HOST: LinkShape(rate_bits_per_s=HOST_RATE)},
    )
    body = """launches = 3
[collectives]
operations = ["all_reduce"]
sizes = ["1M"]
nodes_per_group = 4
spans = [2]
concurrency = ["alone", "all"]
rails = true
warmup = 2
repetitions = 3
[pairs]
sizes = ["1M"]
rails = true
warmup = 2
repetitions = 3
"""
    path = write_campaign(tmp_path, fabric, body)
    for name, old, new in (
        ("testbed.toml", "minipods = 2", "minipods = 2\nrails = 2"),
        ("campaign.toml", "[launch]", "[launch]\nranks_per_node = 2"),
    ):
        file = tmp_path / name
        file.write_text(file.read_text().replace(old, new, 1))
    bed = testbed.up(fabric, attached=True)
    try:
        bed.set_rate("m0l0h1.r1", HOST_RATE / 10)
        info, frame = measure(path)
    finally:
        bed.down()

    twins = only_finding(frame[frame["kind"] == "collective"], info)
    assert twins.ailment is Ailment.TWIN
    assert twins.sentence.startswith("the group of rail 1 on hosts m0l0h0, m0l0h1, m1l0h0, m1l0h1 takes ")
    assert twins.slowdown is not None and 7 < twins.slowdown.value < 12

    finding = only_finding(frame, info)
    assert finding.places == ("rail 1 of host m0l0h1",)
    assert "it carries" in finding.sentence and "rail 0 of that host" in finding.sentence
    assert "as long as its twins" in finding.sentence
    slowest = {scan.rail: scan.links[0] for scan in fit_pairs(frame, info)}
    assert slowest[1].place == "rail 1 of host m0l0h1"
    assert slowest[1].rate_bytes_per_s.value < 0.2 * slowest[0].rate_bytes_per_s.value

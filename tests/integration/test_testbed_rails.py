"""Hosts with several devices: each is a link of its own, and ranks keep each to their own."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from spanfit.errors import LaunchError
from spanfit.launch.fabric import Fabric
from spanfit.launch.mpi import find_mpirun
from spanfit.launch.render.mpi import Mpi
from spanfit.launch.testbed import Testbed
from spanfit.profiler.campaign import Campaign
from tests.conftest import make_fabric
from tests.integration.factory import write_campaign
from tests.integration.test_testbed import lost_share, spanfit, throughput

BringUp = Callable[[Fabric], Testbed]
PAYLOAD = 0.956
"""The share of a link's rate that TCP leaves to its payload."""
CAMPAIGN = """launches = 1
[collectives]
operations = ["broadcast"]
sizes = ["1M"]
nodes_per_group = 2
spans = [1]
rails = true
concurrency = ["alone", "all"]
repetitions = 3
"""


def two_rails(name: str) -> Fabric:
    return replace(make_fabric(name, minipods=1, hosts_per_leaf=2, host=2e8), rails=2)


def test_a_rail_is_slowed_by_itself(bring_up: BringUp) -> None:
    bed = bring_up(two_rails("rails"))
    bed.set_rate("m0l0h1.r1", 2e7)
    assert bed.truth()["host/m0l0h1.r1"] == 2e7
    assert bed.truth()["host/m0l0h1"] == bed.truth()["host/m0l0h0.r1"] == 2e8
    for source, target in (("m0l0h0", "m0l0h1"), ("m0l0h1", "m0l0h0")):
        assert throughput(bed, source, target, 4 << 20, rail=0) == pytest.approx(2e8 / 8 * PAYLOAD, rel=0.15)
        assert throughput(bed, source, target, 1 << 20, rail=1) == pytest.approx(2e7 / 8 * PAYLOAD, rel=0.25)


def test_loss_on_a_rail_spares_the_other(bring_up: BringUp) -> None:
    bed = bring_up(two_rails("rails-lose"))
    bed.set_loss("m0l0h1.r1", 0.5)
    assert lost_share(bed, "m0l0h0", "m0l0h1") == 0
    bed.set_loss("m0l0h1.r1", 0.0)
    assert throughput(bed, "m0l0h0", "m0l0h1", 1 << 20, rail=1) > 0


def test_the_file_says_how_many_and_status_shows_them(namespaces: None, tmp_path: Path) -> None:
    name = f"rails-file-{os.getpid()}"
    file = tmp_path / "testbed.toml"
    text = f'name = "{name}"\nminipods = 1\nhosts_per_leaf = 1\nrails = 2\n[links.host]\nrate = "1gbit"\n'
    file.write_text(text.replace("rails = 2", "rails = 9"))
    assert f"{file}: rails is 9; expected 1 to 8" in spanfit("testbed", "up", file).stderr
    file.write_text(text)
    assert spanfit("testbed", "up", file).returncode == 0
    try:
        shown = spanfit("testbed", "status", name).stdout
        assert "10.77.0.1, 10.78.0.1" in shown
        assert "m0l0h0.r1" in shown
        assert spanfit("testbed", "rate", name, "m0l0h0.r1", "100mbit").returncode == 0
    finally:
        spanfit("testbed", "down", name)


def rail_times(bring_up: BringUp, folder: Path, backend: str, launcher: str, setting: str) -> "pd.Series[float]":
    """Return the median time of each rail, rail 1 of one host being ten times slower; check what is stored of it."""
    fabric = two_rails("rails-ranks")
    bed = bring_up(fabric)
    bed.set_rate("m0l0h1.r1", 2e7)
    path = write_campaign(folder, fabric, f'backend = "{backend}"\n{CAMPAIGN}', launcher=launcher)
    (folder / "testbed.toml").write_text("rails = 2\n" + (folder / "testbed.toml").read_text())
    path.write_text(path.read_text().replace("[launch]", "[launch]\nranks_per_node = 2"))
    campaign = Campaign(path, folder / "runs")
    campaign.run(lambda _: None)
    info, frame = campaign.store.read(campaign.run_id)
    assert info.environment[setting] == "eth0 | eth1"
    assert set(frame["status"]) == {"ok"}
    return frame[frame["concurrency"] == "alone"].groupby("rail")["time_s"].median()


@pytest.mark.parametrize("launcher", ["testbed", "testbed-torchrun"])
def test_each_rank_measures_its_own_rail(bring_up: BringUp, tmp_path: Path, launcher: str) -> None:
    time_s = rail_times(bring_up, tmp_path, "gloo", launcher, "GLOO_SOCKET_IFNAME")
    # A broadcast goes one way; two ranks that exchange both ways share a connection and scatter.
    assert time_s[1] / time_s[0] == pytest.approx(10, rel=0.4)


def test_each_rank_measures_its_own_rail_over_open_mpi(bring_up: BringUp, tmp_path: Path) -> None:
    pytest.importorskip("mpi4py", reason="mpi4py is missing; install the extra 'mpi'")
    try:
        _, mpi = find_mpirun()
    except LaunchError as error:
        pytest.skip(str(error))
    if mpi is Mpi.MPICH:
        pytest.skip("MPICH calls its device by another name")
    time_s = rail_times(bring_up, tmp_path, "mpi", "testbed-mpirun", "OMPI_MCA_btl_tcp_if_include")
    # A broadcast goes one way; two ranks that exchange both ways share a connection and scatter.
    assert time_s[1] / time_s[0] == pytest.approx(10, rel=0.4)

"""What is measured on the testbed is what the testbed's rates make true."""

from collections.abc import Iterable
from pathlib import Path

import pytest

from spanfit.launch.fabric import Fabric
from spanfit.profiler.campaign import Campaign
from spanfit.profiler.curves import SpanCurvePoint, fit_curves
from tests.conftest import make_fabric
from tests.integration.factory import write_campaign

HOST_RATE = 4e8
QUARTER = 1 - 1 / 4


def measure(folder: Path, fabric: Fabric, body: str, launcher: str = "testbed") -> tuple[SpanCurvePoint, ...]:
    campaign = Campaign(write_campaign(folder, fabric, body, launcher=launcher), folder / "runs")
    campaign.run(lambda _: None)
    _, frame = campaign.store.read(campaign.run_id)
    assert (frame["status"] == "ok").all()
    return fit_curves(frame)


def pick(points: Iterable[SpanCurvePoint], **wanted: object) -> SpanCurvePoint:
    (found,) = [p for p in points if all(getattr(p, key) == value for key, value in wanted.items())]
    return found


def send_recv(nodes_per_group: int, launches: int) -> str:
    return f"""launches = {launches}
[collectives]
operations = ["send_recv"]
sizes = ["4M"]
nodes_per_group = {nodes_per_group}
spans = [1, 2]
repetitions = 5
"""


@pytest.mark.parametrize("launcher", ["testbed", "testbed-torchrun"])
def test_send_recv_loses_what_a_quarter_rate_uplink_takes(namespaces: None, tmp_path: Path, launcher: str) -> None:
    # Real agents import torch twice a host, so they get fewer hosts and launches.
    hosts, launches = (4, 6) if launcher == "testbed" else (3, 3)
    fabric = make_fabric("quarter", hosts_per_leaf=hosts, host=HOST_RATE, uplink=HOST_RATE / 4)
    points = measure(tmp_path, fabric, send_recv(hosts, launches), launcher)
    loss = pick(points, span=2).loss
    assert loss is not None
    assert loss.estimate.value == pytest.approx(QUARTER, abs=0.1)
    assert loss.estimate.ci_low is not None
    assert loss.estimate.ci_low > 0
    assert loss.nlaunches == launches


def test_send_recv_loses_nothing_where_the_core_is_ample(namespaces: None, tmp_path: Path) -> None:
    fabric = make_fabric("ample", host=HOST_RATE, uplink=4 * HOST_RATE)
    loss = pick(measure(tmp_path, fabric, send_recv(4, 6)), span=2).loss
    assert loss is not None
    assert loss.estimate.ci_high is not None
    assert loss.estimate.ci_high <= 0.05


def test_alternating_order_shows_the_core_that_sorted_order_hides(namespaces: None, tmp_path: Path) -> None:
    body = """launches = 6
[collectives]
operations = ["all_reduce"]
sizes = ["4M"]
nodes_per_group = 8
spans = [2]
rank_orders = ["sorted", "alternating"]
repetitions = 3
"""
    points = measure(tmp_path, make_fabric("order", host=HOST_RATE, uplink=HOST_RATE), body)
    plain, alternating = (pick(points, rank_order=order) for order in ("sorted", "alternating"))
    assert plain.busbw_bytes_per_s is not None
    assert alternating.busbw_bytes_per_s is not None
    # In sorted order one flow crosses each way; alternating, all four of each minipod do.
    assert plain.busbw_bytes_per_s.value == pytest.approx(HOST_RATE / 8 * 0.956, rel=0.1)
    ratio = plain.busbw_bytes_per_s.value / alternating.busbw_bytes_per_s.value
    assert ratio == pytest.approx(4, rel=0.1)

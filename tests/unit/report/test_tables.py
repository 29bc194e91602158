"""Tables of the report as text."""

from spanfit.placer.model import Crossing
from spanfit.report.tables import placement_tables
from tests.unit.report.factory import placed

GRID = [["m0", "m0"], ["m0", "m1"]]


def test_a_placement_tells_what_it_sends_and_what_it_kept() -> None:
    crossing = Crossing(
        rings=2, chains=1, ranked_rings=2, busiest="m1", busiest_bytes=float(3 << 30), total_bytes=float(3 << 30)
    )
    placement = placed(GRID, crossing=crossing, choice="x", spares=("n9",), ep_spreads=(2, 1), ep_weight=0.25)
    quality, _ = placement_tables(placement)
    told = {name: value for name, value, _ in quality.rows}
    assert told["ring, chain edges between minipods"] == "2, 1"
    assert told["traffic between minipods in a step"] == "3 GiB"
    assert told["busiest uplink"] == "3 GiB at m1"
    assert (told["chosen"], told["spares"], told["weight of EP groups"]) == ("x", "n9", "0.25")
    assert told["largest EP spread (minipods an EP group touches)"] == "2"


def test_a_placement_without_them_has_no_such_rows() -> None:
    quality, _ = placement_tables(placed(GRID))
    names = {name for name, *_ in quality.rows}
    assert not {name for name in names if "EP" in name or "edges" in name} | names & {"chosen", "spares"}

import re
from dataclasses import replace

import pytest

from spanfit.profiler.pair_scan import PairScan
from spanfit.profiler.pairs import fit_pairs
from spanfit.report.html import render_page
from spanfit.report.pair_map import MAX_NODES, pair_panels, pair_tables
from spanfit.results.schema import Measurement
from tests.unit.profiler.factory import MEASUREMENT, RUN, framed

PAIRS = [(a, b) for a in range(4) for b in range(4) if a != b]


def rows() -> list[Measurement]:
    """Return isolated pairs of four nodes, of which the second is at half rate."""
    return [
        replace(
            MEASUREMENT,
            kind="pairs",
            operation="send",
            concurrency="alone",
            nranks=2,
            case_id=f"pair{a}{b}",
            nodes=f"{a},{b}",
            launch=launch,
            comm_id=f"{launch}.0",
            time_s=(0.04 if 1 in (a, b) else 0.02) * (1 + 0.01 * launch),
        )
        for a, b in PAIRS
        for launch in range(3)
    ]


def scan() -> PairScan:
    (found,) = fit_pairs(framed(rows()), RUN)
    return found


def test_a_panel_has_a_cell_for_each_pair_as_shapes_and_names_every_node() -> None:
    (panel,) = pair_panels([scan()], RUN.minipods)
    assert "<image" not in panel and 'aria-label="send, 1 MiB, between pairs' in panel
    assert len(re.findall(r"<path", panel)) >= len(PAIRS)
    for name in RUN.node_names:
        assert len(re.findall(rf">{name}<", panel)) == 2


def test_a_slow_host_has_another_colour_than_the_others() -> None:
    (panel,) = pair_panels([scan()], RUN.minipods)
    half = re.findall(r"#21918c|#20928c|#218f8d|#21908d|#228d8d", panel)
    assert len(half) >= 6, "viridis in its middle: the row and the column of the host at half rate"


def test_scans_of_many_nodes_have_tables_only() -> None:
    names = tuple(f"n{index}" for index in range(MAX_NODES + 1))
    assert pair_panels([replace(scan(), node_names=names)], ("m0",) * len(names)) == ()


def test_the_table_has_slow_links_first_and_says_what_is_a_bound() -> None:
    (table,) = pair_tables([scan()])
    assert table.rows[0][0] == "host n1" and table.rows[0][2].startswith("slower than its class by 5")
    assert table.rows[0][-1] == "3 *"
    assert any(cells[1].startswith("at least ") for cells in table.rows)


def test_scans_of_single_rails_are_told_apart_and_name_the_rail_of_a_host() -> None:
    railed = [replace(row, rail=rail, case_id=f"{row.case_id} on {rail}") for row in rows() for rail in (0, 1)]
    scans = fit_pairs(framed(railed), RUN)
    titles = [table.title for table in pair_tables(scans)]
    assert titles == ["send (float32) of 1 MiB, rail 0", "send (float32) of 1 MiB, rail 1"]
    assert [table.rows[0][0] for table in pair_tables(scans)] == ["rail 0 of host n1", "rail 1 of host n1"]
    assert 'aria-label="send, 1 MiB, rail 1, between pairs' in pair_panels(scans, RUN.minipods)[1]


@pytest.mark.parametrize("kind", ["pairs", "collective"])
def test_the_page_shows_pairs_where_rows_hold_them(kind: str) -> None:
    measurements = [row if kind == "pairs" else replace(row, kind=kind) for row in rows()]
    page = render_page(RUN, framed(measurements), written_at="2026-01-03T00:00:00+00:00")
    assert ('<section id="pairs">' in page) == (kind == "pairs")
    assert "data:image" not in page

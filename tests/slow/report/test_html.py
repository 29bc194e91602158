import re
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest

from spanfit.profiler.curves import fit_curves
from spanfit.profiler.gains import fit_gains
from spanfit.report.html import misaligned_gains, origin, render_page
from spanfit.report.tables import failure_table, groups_at_once, ring_limit, truth_tables
from spanfit.results.schema import RunInfo
from spanfit.weights.io import content_hash
from tests.unit.profiler.factory import RUN, failed, framed, measured, step_cases
from tests.unit.report.factory import QUIET, entry, frame, placed, rows, span_cases, weight_set

AT = "2026-01-03T00:00:00+00:00"
GRID = [["m0", "m0"], ["m1", "m1"]]
VOID = {"meta", "br", "hr", "img", "input", "link"}


class Page(HTMLParser):
    """Reads a page: its tags with their attributes, its text, and tags that do not close."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    @property
    def sections(self) -> list[str | None]:
        return [attributes["id"] for tag, attributes in self.tags if tag == "section"]


@cache
def full_page() -> str:
    weights = weight_set()
    placement = placed(GRID, weights_hash=content_hash(weights))
    return render_page(RUN, frame(), written_at=AT, weights=weights, placement=placement, free={"m0": 4, "m1": 2})


def test_a_full_run_has_every_section_in_order() -> None:
    page = Page(full_page())
    assert page.sections == [
        *("findings", "curves", "loss", "gains", "weights", "placement", "tables", "truth", "failures", "provenance")
    ]
    assert page.open == []
    for text in (
        "emulated",
        "Known truth",
        "None: every row holds a time",
        RUN.run_id,
        "torch",
        content_hash(weight_set()),
    ):
        assert text in page.text
    assert "Stale weights:" not in page.text
    assert "not made with these weights" not in page.text and "do not come from" not in page.text


def test_the_page_loads_nothing_and_runs_nothing() -> None:
    page = Page(full_page())
    assert not {tag for tag, _ in page.tags} & {"script", "link", "img", "iframe", "object", "base"}
    for _, attributes in page.tags:
        assert not any(name.startswith("on") for name in attributes)
        target = attributes.get("href") or attributes.get("xlink:href") or attributes.get("src") or "#"
        assert target.startswith("#")
    assert not re.search(r"@import|url\((?!#)", full_page())


def test_equal_input_gives_an_equal_page() -> None:
    assert render_page(RUN, frame(), written_at=AT) == render_page(RUN, frame(), written_at=AT)


def test_a_run_of_steps_alone_has_no_curves_and_one_of_collectives_alone_no_gains() -> None:
    steps = framed([row for row in rows() if row.kind == "step"])
    info = replace(RUN, truth={}, transport="NCCL over RoCE")
    page = Page(render_page(info, steps, written_at=AT))
    assert page.sections == ["findings", "gains", "tables", "failures", "provenance"]
    assert "emulated" not in page.text.replace(RUN.gpu_model, "")
    narrow = framed(measured(np.random.default_rng(1), span_cases({1: 0.02})))
    bare = Page(render_page(info, narrow, written_at=AT))
    assert bare.sections == ["findings", "curves", "tables", "failures", "provenance"]
    assert "No case of this run allows a comparison." in bare.text


def test_gains_that_cannot_be_told_say_why() -> None:
    alone = framed(measured(np.random.default_rng(2), step_cases({"dp-aligned": 0.4}), launches=2))
    page = Page(render_page(RUN, alone, written_at=AT))
    assert "gains" in page.sections and "Gains cannot be told: job balanced: found dp-aligned" in page.text


def test_failed_cases_are_listed_with_reasons_and_counts() -> None:
    made = [
        failed(row, "rank 3 died & <left>") if row.operation == "send_recv" and row.span == 2 else row for row in rows()
    ]
    page = Page(render_page(RUN, framed(made), written_at=AT))
    assert "rank 3 died & <left>" in page.text and "12 failed" in page.text
    table = failure_table(framed(made))
    assert table is not None
    assert table.rows == (
        ("send_recv", "1 MiB", "2", "sorted", "one group alone", "failed", "rank 3 died & <left>", "12", "6"),
    )
    assert failure_table(frame()) is None


@pytest.mark.parametrize(
    ("info", "label", "said"),
    [
        (RUN, "", "emulated"),
        (replace(RUN, truth={}, transport="testbed x (emulated: namespaces)"), "", "emulated"),
        (replace(RUN, truth={}, transport="RoCE"), "", "measured"),
        (replace(RUN, truth={}, transport="RoCE"), "recorded campaign", "recorded campaign"),
    ],
)
def test_how_the_figures_came_about_is_said_first(info: RunInfo, label: str, said: str) -> None:
    found = origin(info, label)
    assert found.label == said and info.transport in found.remark
    assert found.is_real == (said == "measured") and ("not a real fabric" in found.remark) == (said == "emulated")


HOSTILE = "<script>alert('1')</script>\"><img src=x onerror=alert(1)>{{ 7 * 191 }}\x00"


def test_hostile_names_of_every_file_are_text() -> None:
    info = replace(
        RUN,
        run_id=HOSTILE,
        campaign=HOSTILE,
        cluster=HOSTILE,
        started_at=HOSTILE,
        transport=HOSTILE,
        gpu_model=HOSTILE,
        node_names=(HOSTILE,) * 4,
        environment={HOSTILE: HOSTILE},
        versions={HOSTILE: HOSTILE},
        truth={f"host/{HOSTILE}": 4e8},
        spec={"name": HOSTILE},
    )
    made = frame().assign(rank_order=HOSTILE, dtype=HOSTILE, concurrency=HOSTILE)
    made.loc[made["kind"] == "step", "operation"] = HOSTILE
    weights = weight_set(entry(job=HOSTILE, gpu_model=HOSTILE))
    placement = placed([[f"{HOSTILE}/a", f"{HOSTILE}/b"]], solver=HOSTILE, certificate=HOSTILE, cluster=HOSTILE)
    text = render_page(info, made, written_at=AT, weights=weights, placement=placement, label=f"{HOSTILE}\udcff")
    page = Page(text)
    assert not {tag for tag, _ in page.tags} & {"script", "img"} and page.open == []
    assert text.encode() and "\x00" not in text and "1337" not in text and "<script>alert('1')</script>" in page.text


def test_parts_that_do_not_belong_together_are_pointed_out() -> None:
    weights = replace(weight_set(), run_ids=("another",), accepted_stale=("expired on 2026-01-01",))
    weights = replace(weights, valid_until="2026-01-02T12:00:00+00:00")
    placement = placed(GRID, weights_hash="0" * 64, cluster="elsewhere", accepted_stale=("other GPUs",))
    page = Page(render_page(RUN, frame(), written_at=AT, weights=weights, placement=placement))
    for text in (
        "The weights come from another, not from this run.",
        "The placement was not made with these weights.",
        "The placement is on cluster elsewhere; this run measured demo.",
        "Stale weights were accepted: expired on 2026-01-01.",
        "Stale weights: valid_until: expired on 2026-01-02T12:00:00+00:00",
        "Stale weights were accepted: other GPUs.",
    ):
        assert text in page.text


def test_the_order_of_cases_is_told_as_the_rows_show_it() -> None:
    assert "same order" in Page(full_page()).text
    shuffled = frame().assign(position=lambda rows: (rows["position"] * (1 + 2 * rows["launch"])) % 7)
    assert "shuffled anew in each launch" in Page(render_page(RUN, shuffled, written_at=AT)).text
    assert "same order" not in Page(render_page(RUN, frame()[frame()["launch"] == 0], written_at=AT)).text


def test_misaligned_gains_are_the_arms_against_their_median() -> None:
    (job,) = fit_gains(frame())
    base = (0.45 * 0.55) ** 0.5
    assert misaligned_gains(frame(), job) == pytest.approx((base / 0.55 - 1, base / 0.45 - 1), rel=0.02)


def ringed(rank_order: str, concurrency: str, ngroups: int, span: int = 2) -> float | None:
    info = replace(RUN, truth={"host/a": 400e6, "host/b": 400e6, "minipod/m0": 400e6, "minipod/m1": 400e6})
    point = fit_curves(made(rank_order, concurrency, span))[-1]
    return ring_limit(info, point, ngroups)


def made(rank_order: str, concurrency: str, span: int) -> pd.DataFrame:
    cases = span_cases({span: 0.02}, rank_order=rank_order, concurrency=concurrency)
    return framed(measured(np.random.default_rng(3), cases, launches=2, noise=QUIET))


@pytest.mark.parametrize(
    ("rank_order", "concurrency", "ngroups", "span", "flows_on_a_minipod_link"),
    [
        ("sorted", "alone", 1, 1, 1),
        ("sorted", "all", 2, 1, 1),
        ("sorted", "alone", 1, 2, 1),
        ("sorted", "all", 2, 2, 2),
        ("alternating", "alone", 1, 2, 2),
        ("alternating", "all", 2, 2, 4),
    ],
)
def test_links_are_shared_by_the_hops_that_leave_a_minipod(
    rank_order: str, concurrency: str, ngroups: int, span: int, flows_on_a_minipod_link: int
) -> None:
    assert ringed(rank_order, concurrency, ngroups, span) == pytest.approx(400e6 / 8 / flows_on_a_minipod_link)


def test_links_of_mixed_rates_and_other_algorithms_allow_no_claim() -> None:
    point = fit_curves(made("sorted", "all", 2))[-1]
    plain = replace(RUN, truth={"host/a": 4e8, "minipod/m0": 4e8})
    assert ring_limit(plain, point, 2) is not None
    assert ring_limit(replace(plain, truth={**plain.truth, "host/b": 1e8}), point, 2) is None
    assert ring_limit(replace(plain, truth={**plain.truth, "leaf/b": 1e8}), point, 2) is None
    assert ring_limit(plain, replace(point, operation="broadcast"), 2) is None
    assert ring_limit(plain, replace(point, rank_order="job"), 2) is None


def test_groups_of_other_rails_that_run_at_once_share_the_uplinks() -> None:
    info = replace(RUN, truth={"host/a": 4e8, "host/a.r1": 4e8, "minipod/m0": 4e8})
    (case,) = span_cases({2: 0.02})
    twins = [(replace(case[0], rail=rail, group=rail), case[1]) for rail in (0, 1)]
    rows_of_both = [replace(row, case_id="one") for row in measured(np.random.default_rng(4), twins, noise=QUIET)]
    table = framed(rows_of_both)
    _, checks = truth_tables(info, fit_curves(table), groups_at_once(table))
    assert [(row[0], row[5]) for row in checks.rows] == [
        ("all_reduce, rail 0", "25 MB/s"),
        ("all_reduce, rail 1", "25 MB/s"),
    ]


def test_truth_stands_beside_what_was_measured() -> None:
    info = replace(RUN, truth={"host/a": 4e8, "host/b": 4e8, "minipod/m0": 4e8})
    links, checks = truth_tables(info, fit_curves(frame()), groups_at_once(frame()))
    assert links.rows == (("host", "2", "400 Mbit/s", "50 MB/s"), ("minipod", "1", "400 Mbit/s", "50 MB/s"))
    first = checks.rows[0]
    assert first[:6] == ("all_reduce", "1 MiB", "1", "sorted", "all groups at once", "50 MB/s") and first[-1].endswith(
        "%"
    )
    assert truth_tables(replace(RUN, truth={}), (), {}) == ()

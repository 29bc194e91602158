import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from xml.etree import ElementTree

import numpy as np
import pytest

from spanfit.collectives import Collective
from spanfit.profiler.curves import SpanCurvePoint, fit_curves, join_curves
from spanfit.profiler.gains import fit_gains
from spanfit.report.drawing import minipod_colour, readable, span_colour, text_colour
from spanfit.report.figures import curve_legend, curve_panels, gain_panel, loss_panels, weights_figure
from spanfit.results.schema import Estimate
from tests.unit.profiler.factory import MEASUREMENT, framed, measured, step_cases
from tests.unit.report.factory import ARMS, entry, estimate, frame, span_cases

HOSTILE = "x\"><script>&'</svg>$\\frac{1}$\x00\x1b\ud800 中"
SVG = "{http://www.w3.org/2000/svg}"


def texts(svg: str) -> list[str]:
    return ["".join(element.itertext()).strip() for element in ElementTree.fromstring(svg).iter(f"{SVG}text")]


@cache
def every_figure() -> list[str]:
    points = fit_curves(frame())
    (job,) = fit_gains(frame())
    return [*curve_panels(points), *loss_panels(points), gain_panel(job, (-0.1, 0.1)), weights_figure([entry()])]


def test_figures_are_valid_xml_of_no_fixed_size_and_load_nothing() -> None:
    for svg in every_figure():
        root = ElementTree.fromstring(svg)
        assert root.tag == f"{SVG}svg" and root.get("viewBox") and root.get("aria-label")
        assert root.get("width") is None and "<image" not in svg and "<metadata" not in svg
        links = re.findall(r"(?:href|url)[=(]\"?([^\")]*)", svg)
        assert all(link.startswith("#") for link in links)
        assert {link.removeprefix("#") for link in links} <= set(re.findall(r' id="([^"]*)"', svg))


def test_figures_are_the_same_bytes_each_time() -> None:
    assert every_figure() == every_figure.__wrapped__()


def test_ids_of_two_figures_of_a_page_never_meet() -> None:
    ids = [set(re.findall(r' id="([^"]*)"', svg)) for svg in every_figure()]
    assert sum(map(len, ids)) == len(set().union(*ids))


def test_a_panel_for_each_collective_and_concurrency_with_groups_alone_first() -> None:
    cases = [
        *span_cases({1: 0.02, 2: 0.04}, concurrency="all"),
        *span_cases({1: 0.02, 2: 0.02}, concurrency="alone"),
        *span_cases({1: 0.02, 2: 0.02}, operation="broadcast", concurrency="alone"),
    ]
    panels = curve_panels(fit_curves(framed(measured(np.random.default_rng(1), cases, launches=2))))
    titles = [texts(svg)[-2:] for svg in panels]
    assert [title for title, _ in titles] == [
        "all_reduce, one group alone",
        "all_reduce, all groups at once",
        "broadcast, one group alone",
    ]
    assert all(shown == "float32, 4 ranks on 4 nodes" for _, shown in titles)


@pytest.mark.parametrize(
    ("size_bytes", "time_s", "unit"),
    [(1 << 30, 0.01, "GB/s"), (1 << 20, 0.02, "MB/s"), (1024, 0.02, "kB/s"), (8, 1, "B/s")],
)
def test_bandwidth_has_the_unit_that_fits(size_bytes: int, time_s: float, unit: str) -> None:
    case = replace(MEASUREMENT, size_bytes=size_bytes)
    (panel,) = curve_panels(fit_curves(framed(measured(np.random.default_rng(2), [(case, time_s)], launches=2))))
    assert f"busbw [{unit}]" in texts(panel)


def test_nine_collectives_of_ten_sizes_label_at_most_six_of_them() -> None:
    cases = [
        (replace(MEASUREMENT, operation=str(operation), size_bytes=1 << exponent), 2.0 ** (exponent - 25))
        for operation in Collective
        for exponent in range(10, 30, 2)
    ]
    panels = curve_panels(fit_curves(framed(measured(np.random.default_rng(3), cases, launches=2, repetitions=1))))
    assert len(panels) == len(Collective) - 1, "a barrier has no busbw"
    sizes = [text for text in texts(panels[0]) if re.fullmatch(r"\d+ [KM]?i?B", text)]
    assert 2 <= len(sizes) <= 6 and sizes[-1] == "256 MiB"


def test_a_fit_is_a_line_of_its_own_where_it_rests_on_five_sizes() -> None:
    for nsizes, more in ((4, False), (6, True)):
        cases = [(replace(MEASUREMENT, size_bytes=1 << n), 1e-3 + 2.0 ** (n - 25)) for n in range(14, 14 + nsizes)]
        frame = framed(measured(np.random.default_rng(5), cases, launches=2))
        points = fit_curves(frame)
        assert (curve_panels(points) != curve_panels(points, join_curves(frame, points))) is more


def test_the_legend_has_an_entry_for_each_span_and_order_and_spans_keep_their_colour() -> None:
    cases = [
        *span_cases({1: 0.02, 2: 0.04}),
        *span_cases({2: 0.05, 4: 0.08}, rank_order="alternating"),
    ]
    legend = curve_legend(fit_curves(framed(measured(np.random.default_rng(4), cases, launches=2))))
    labels = ["1 minipod", "2 minipods, sorted order", "2 minipods, alternating order", "4 minipods, alternating order"]
    assert [line.label for line in legend] == labels
    assert legend[1].colour == legend[2].colour == span_colour(2) != legend[3].colour
    assert (legend[1].dash, legend[1].marker) != (legend[2].dash, legend[2].marker)


def point(size_bytes: int, value: float) -> SpanCurvePoint:
    cases = [(replace(case, size_bytes=size_bytes), t) for case, t in span_cases({1: 0.02, 2: 0.02 / (1 - value)})]
    return fit_curves(framed(measured(np.random.default_rng(5), cases)))[1]


def test_losses_are_shown_at_the_largest_size_with_their_numbers() -> None:
    (panel,) = loss_panels([point(1 << 20, 0.2), point(1 << 24, 0.5)])
    shown = texts(panel)
    assert "all_reduce, 16 MiB" in shown and not any("1 MiB" in text for text in shown)
    (numbers,) = [text for text in shown if re.match(r"[\d.]+% \[", text)]
    assert abs(float(numbers.partition("%")[0]) - 50) < 3


def test_losses_of_two_shapes_of_a_collective_are_told_apart() -> None:
    cases = span_cases({1: 0.02, 2: 0.04})
    cases += [(replace(case, nranks=8, nnodes=8), time_s) for case, time_s in cases]
    (panel,) = loss_panels(fit_curves(framed(measured(np.random.default_rng(6), cases))))
    assert {"all_reduce, 1 MiB, float32, 8 ranks on 8 nodes", "all_reduce, 1 MiB, float32, 4 ranks on 4 nodes"} < set(
        texts(panel)
    )


def test_gains_show_arms_with_intervals_and_one_launch_has_none() -> None:
    (job,) = fit_gains(frame())
    assert {"dp-aligned", "packed", "pp-aligned"} < set(texts(gain_panel(job, ())))
    (single,) = fit_gains(framed(measured(np.random.default_rng(7), step_cases(ARMS), launches=1)))
    assert sum("(no interval) *" in text for text in texts(gain_panel(single, (-0.1, 0.1)))) == 3


def test_an_interval_that_is_wild_does_not_squeeze_the_axis() -> None:
    (job,) = fit_gains(frame())
    wild = replace(job, gains=(replace(job.gains[0], gain=Estimate(value=0.1, ci_low=-0.99, ci_high=1e6)),))
    ticks = [text for text in texts(gain_panel(wild, ())) if re.fullmatch(r"[−\d.]+%", text)]
    assert all(float(tick.rstrip("%").replace("−", "-")) <= 30 for tick in ticks)


def test_weights_mark_provisional_entries_and_the_shape() -> None:
    shown = texts(
        weights_figure([entry(), entry(job="small", is_provisional=True, alpha=estimate(0.2), beta=estimate(0.8))])
    )
    assert {"balanced 2 × 2", "small 2 × 2", "0.700 [0.690, 0.710]", "0.200 [0.190, 0.210] *"} < set(shown)


HOSTILE_FIGURES: Sequence[Callable[[], str]] = (
    lambda: weights_figure([entry(job=HOSTILE)]),
    lambda: gain_panel(replace(fit_gains(frame())[0], job=HOSTILE), ()),
    lambda: curve_panels([replace(found, dtype=HOSTILE, concurrency=HOSTILE) for found in fit_curves(frame())])[0],
    lambda: loss_panels([replace(found, rank_order=HOSTILE) for found in fit_curves(frame()) if found.loss])[0],
)


@pytest.mark.parametrize("figure", HOSTILE_FIGURES)
def test_hostile_names_are_text(figure: Callable[[], str]) -> None:
    svg = figure()
    assert not list(ElementTree.fromstring(svg).iter(f"{SVG}script"))
    assert 'x">' in "".join(texts(svg)) and "<script" not in svg


def test_names_are_cut_to_their_room() -> None:
    assert readable("a" * 30, 10) == "aaaaaaaaa…" and readable("a\tb\x07", 10) == "a\ufffdb\ufffd"


def test_labels_on_minipods_contrast_with_their_fill() -> None:
    for index in range(40):
        fill = minipod_colour(index)
        light, dark = sorted((luminance(fill), luminance(text_colour(fill))), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5


def luminance(colour: str) -> float:
    parts = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue

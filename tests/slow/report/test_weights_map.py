from xml.etree import ElementTree

import pytest

from spanfit.report.weights_map import alpha_figure, ratio_map
from spanfit.results.schema import Estimate
from spanfit.weights.matching import Known, Method, match
from spanfit.weights.model import Source
from spanfit.weights.sensitivity import AlphaRange

KNOWN = [
    Known(job=name, source=Source.MEASURED, r1=r1, r2=r2, alpha=Estimate(value=alpha, ci_low=None, ci_high=None))
    for name, r1, r2, alpha in (("dense", 1.2, 40.0, 0.1), ("moe", 0.7, 15.0, 0.3))
]
RANGES = [
    AlphaRange(low=0.0, high=0.25, dp=4, pp=1, is_proven=True),
    AlphaRange(low=0.25, high=0.26, dp=3, pp=2, is_proven=False),
    AlphaRange(low=0.26, high=1.0, dp=2, pp=4, is_proven=False),
]


def texts(svg: str) -> list[str]:
    namespace = "{http://www.w3.org/2000/svg}text"
    return ["".join(element.itertext()).strip() for element in ElementTree.fromstring(svg).iter(namespace)]


@pytest.mark.parametrize(("r2", "verdict"), [(30.0, "nearest: dense"), (400.0, "far from everything known")])
def test_the_map_names_every_job_and_the_match(r2: float, verdict: str) -> None:
    found = match(KNOWN, 1.0, r2, Method.LOGS)
    svg = ratio_map(KNOWN, found, "new <job>", 1.0, r2)
    shown = texts(svg)
    title = f"by logs; {verdict}; shaded: close enough"
    for text in ("dense 0.10", "moe 0.30", "new <job>", title, "r2: DP to PP volume"):
        assert text in shown
    assert svg == ratio_map(KNOWN, found, "new <job>", 1.0, r2)


def test_the_ranges_are_drawn_from_0_to_1_and_narrow_ones_without_their_spreads() -> None:
    marked = Estimate(value=0.3, ci_low=0.2, ci_high=0.4)
    svg = alpha_figure(RANGES, marked, "job")
    shown = texts(svg)
    assert "4 × 1" in shown and "2 × 4" in shown and "3 × 2" not in shown
    assert "0.25 to 0.26: DP 3, PP 2" in svg
    assert "alpha, the weight of DP groups" in shown
    assert svg != alpha_figure(RANGES, None, "job")

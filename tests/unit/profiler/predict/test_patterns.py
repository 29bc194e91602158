from dataclasses import replace

import pytest

from spanfit.errors import FitError
from spanfit.profiler.curves_file import Curve
from spanfit.profiler.predict.collectives import Library
from spanfit.profiler.predict.fit import fit_parameters
from spanfit.profiler.predict.patterns import Pattern, patterns, simulate_pattern
from tests.unit.profiler.predict.curves import curve, document
from tests.unit.profiler.predict.factory import PLAIN, cluster

EIGHT = cluster()


def only(operation: str, nnodes: int, span: int, order: str, concurrency: str) -> Pattern:
    (found,) = patterns(document(EIGHT, (curve(operation, nnodes, span, order, concurrency, (1.0,)),)), EIGHT)
    return replace(found, size_bytes=1_000_000)


@pytest.mark.parametrize("library", list(Library))
@pytest.mark.parametrize(
    ("shape", "time_s"),
    [
        (("send", 2, 1, "sorted", "alone"), 1.0),
        (("send", 2, 2, "sorted", "all"), 4.0),
        (("send_recv", 4, 2, "sorted", "alone"), 1.0),
        (("send_recv", 4, 2, "alternating", "all"), 4.0),
        (("all_gather", 4, 2, "sorted", "all"), 1.5),
    ],
)
def test_a_pattern_takes_what_its_busiest_link_carries(
    shape: tuple[str, int, int, str, str], time_s: float, library: Library
) -> None:
    assert simulate_pattern(only(*shape), PLAIN, library, 1) == pytest.approx(time_s, rel=1e-6)


def test_patterns_know_whether_they_share_links_and_what_links_carry() -> None:
    assert not only("send", 2, 2, "sorted", "alone").shares_links
    assert only("send", 2, 2, "sorted", "all").shares_links
    assert max(only("all_reduce", 4, 2, "alternating", "alone").carried_bytes().values()) == 3e6


def test_what_tells_nothing_of_links_is_left_out() -> None:
    told = document(EIGHT, (curve("exchange", 2, 1, "sorted", "alone", (1.0,)), replace(_failed(), points=())))
    assert not list(patterns(told, EIGHT))


def _failed() -> Curve:
    return curve("send", 2, 1, "sorted", "alone", ())


def test_too_few_patterns_and_another_cluster_are_refused() -> None:
    told = document(EIGHT, (curve("send", 2, 1, "sorted", "alone", (1.0, 2.0)),))
    with pytest.raises(FitError, match="found 2 patterns, 2 of them flows alone"):
        fit_parameters([told], EIGHT, Library.GLOO)
    with pytest.raises(FitError, match="found another cluster"):
        fit_parameters([told], cluster(minipods=3), Library.GLOO)
    shapes = [(operation, nnodes, span) for operation, nnodes in (("send", 2), ("send_recv", 4)) for span in (1, 2)]
    told = document(EIGHT, tuple(curve(*shape, "sorted", "alone", (0.1, 0.3, 1.1)) for shape in shapes))
    with pytest.raises(FitError, match="found 12 patterns, too few"):
        fit_parameters([told], EIGHT, Library.GLOO)
    wide = document(EIGHT, (curve("send", 2, 3, "sorted", "alone", (1.0,)),))
    with pytest.raises(FitError, match=r"run micro.*expected curves of cluster small"):
        fit_parameters([wide], EIGHT, Library.GLOO)

import math
from dataclasses import replace

import pytest

from spanfit.errors import ConfigError
from spanfit.results.schema import Estimate
from spanfit.weights.cheapest import cheapest_campaign
from spanfit.weights.matching import (
    FAR_FACTOR,
    Known,
    Method,
    coordinates,
    distance,
    known_to,
    match,
    summed_up,
    that_count,
    why_not,
)
from spanfit.weights.model import Source
from spanfit.weights.scaling import Scaling, Shape
from tests.unit.weights.test_scaling import MEASURED, entry


def known(job: str, r1: float, r2: float, alpha: float = 0.3) -> Known:
    return Known(job=job, source=Source.MEASURED, r1=r1, r2=r2, alpha=Estimate(value=alpha, ci_low=None, ci_high=None))


def test_the_paper_s_distance_is_as_it_is_printed() -> None:
    assert distance(known("a", 1.0, 20.0), 1.3, 60.0) == pytest.approx(math.sqrt(0.3**2 + 40.0**2))


def test_on_printed_ratios_r2_decides_alone_and_on_logs_both_do() -> None:
    # r1 is of order 1 and r2 of tens: an r1 three times off counts less than 5% of r2.
    entries = [known("same compute", 1.0, 40.0, 0.2), known("same ratio", 2.9, 42.5, 0.9)]
    assert match(entries, 1.0, 42.5, Method.PAPER).nearest is entries[1]
    assert match(entries, 1.0, 42.5, Method.LOGS).nearest is entries[0]


def test_logs_are_scaled_by_what_three_entries_or_more_differ_by() -> None:
    entries = [known("a", 1.0, 1.0), known("b", math.e**2, 1.0), known("c", math.e**4, 1.0)]
    r1, r2 = coordinates(entries, math.e**2, math.e)
    assert r1 == pytest.approx(2 / math.sqrt(8 / 3))
    assert r2 == pytest.approx(1.0)
    assert coordinates(entries[:2], math.e**2, 1.0) == pytest.approx((2.0, 0.0))


@pytest.mark.parametrize("method", [Method.PAPER, Method.LOGS])
def test_far_from_everything_known_nothing_is_guessed(method: Method) -> None:
    entries = [known("a", 1.0, 10.0), known("b", 4.0, 10.0)]
    near = match(entries, 1.0, 10.0 * FAR_FACTOR * 0.99, method)
    far = match(entries, 1.0, 10.0 * FAR_FACTOR * 1.01, method)
    assert (near.is_far, near.alpha) == (False, entries[0].alpha)
    assert (far.is_far, far.nearest) == (True, entries[0])
    assert far.factor == pytest.approx(3.03)


def test_the_factor_is_that_of_the_entry_that_answers() -> None:
    # Printed r2 decides, so the entry that answers is off by 5 in r1 although another is off by 2 only.
    entries = [known("answers", 5.0, 42.0), known("closer in ratios", 2.0, 30.0)]
    found = match(entries, 1.0, 42.0, Method.PAPER)
    assert found.nearest is entries[0]
    assert found.factor == pytest.approx(5.0) and found.is_far


def test_entries_of_one_name_are_told_apart() -> None:
    entries = [known("moe", 1.0, 10.0, 0.2), known("moe", 2.0, 20.0, 0.7)]
    found = match(entries, 2.0, 20.0, Method.LOGS)
    assert found.nearest is entries[1] and found.alpha == entries[1].alpha


def test_only_entries_of_the_gpu_model_count_and_the_others_are_told() -> None:
    moe = entry()
    flat = replace(moe, job="flat", is_flat=True)
    other = replace(moe, job="l20", gpu_model="L20")
    assert that_count([other, moe, flat], "NVIDIA H800", [Source.MEASURED]) == (moe,)
    assert why_not(other, "H800", [Source.MEASURED]).startswith("measured on L20")
    with pytest.raises(ConfigError, match=r"expected at least one of H800.*\nflat: flat.*\nl20: measured on L20"):
        that_count([flat, other], "H800", [Source.MEASURED])


def test_sources_do_not_mix_unless_asked_for() -> None:
    measured, predicted = entry(), replace(entry(), source=Source.PREDICTED)
    assert that_count([measured, predicted], "H800", [Source.MEASURED]) == (measured,)
    assert that_count([measured, predicted], "H800", list(Source)) == (measured, predicted)
    assert why_not(predicted, "H800", [Source.MEASURED]).startswith("predicted, not measured; --source predicted")
    assert "do not tell crossings" in why_not(replace(measured, removed=()), "H800", [Source.MEASURED])


def test_entries_are_seen_from_the_shape_of_the_job_at_hand() -> None:
    taller = replace(MEASURED, dp=60)
    (small,), (large,) = (known_to(shape, [entry()], Scaling.VOLUMES) for shape in (MEASURED, taller))
    assert large.alpha.value < small.alpha.value
    (paper,) = known_to(taller, [entry()], Scaling.PAPER)
    assert paper.alpha == entry().alpha


def test_errors_of_entries_that_are_far_count_apart() -> None:
    found = summed_up(Method.LOGS, [0.1, None, 0.3])
    assert (found.nentries, found.nfar, found.worst_error) == (3, 1, 0.3)
    assert found.mean_error == pytest.approx(0.2)
    assert summed_up(Method.LOGS, [None]).mean_error is None


def test_the_cheapest_campaign_has_the_bytes_of_the_job_s_own_nodes() -> None:
    text = cheapest_campaign("gpt", Shape(dp=150, pp=8, dp_bytes=8 << 20, pp_bytes=64 << 20), 4, 8)
    for part in ("2 minipods of 4 nodes", "6 launches", "dp = 4, pp = 2", 'activation = "1048576" (1 MiB)', "(1 MiB)"):
        assert part in text
    assert "dp = 2, pp = 2" in cheapest_campaign("gpt", Shape(dp=3, pp=8, dp_bytes=8.0, pp_bytes=64.0), 4, 8)

from dataclasses import replace

import numpy as np
import pytest

from spanfit.errors import ConfigError
from spanfit.results.schema import Estimate
from spanfit.weights.matching import Known, Method
from spanfit.weights.model import Source, WeightEntry
from spanfit.weights.regression import MIN_ENTRIES, find, leave_one_out, regress
from spanfit.weights.scaling import Scaling
from tests.unit.weights.test_scaling import entry


def surface(r1: float, r2: float) -> float:
    """Return an alpha that changes slowly with the logs of both ratios."""
    return float(0.5 + 0.15 * np.log10(r2) - 0.1 * np.log10(r1))


def known(n: int = 5) -> list[Known]:
    return [
        Known(
            job=f"{r1:.2f}-{r2:.2f}",
            source=Source.MEASURED,
            r1=float(r1),
            r2=float(r2),
            alpha=Estimate(value=surface(r1, r2), ci_low=surface(r1, r2) - 0.02, ci_high=surface(r1, r2) + 0.02),
        )
        for r1 in np.geomspace(0.3, 3, n)
        for r2 in np.geomspace(0.1, 10, n)
    ]


def test_between_entries_alpha_is_told_with_an_interval_that_holds_it() -> None:
    found = regress(known(), 0.8, 2.0)
    assert found.alpha is not None and found.alpha.ci_low is not None and found.alpha.ci_high is not None
    assert found.alpha.value == pytest.approx(surface(0.8, 2.0), abs=0.02)
    assert found.alpha.ci_low <= surface(0.8, 2.0) <= found.alpha.ci_high
    assert found.alpha.ci_high - found.alpha.ci_low < 0.2


def test_the_interval_widens_away_from_what_is_known_and_far_away_nothing_is_told() -> None:
    inside, edge = regress(known(), 1.0, 1.0).alpha, regress(known(), 7.0, 20.0).alpha
    assert inside is not None and edge is not None
    assert (
        edge.ci_high is not None
        and edge.ci_low is not None
        and inside.ci_high is not None
        and inside.ci_low is not None
    )
    assert edge.ci_high - edge.ci_low > inside.ci_high - inside.ci_low
    assert regress(known(), 1.0, 40.0).is_far


def test_too_few_entries_are_refused_with_the_cure() -> None:
    with pytest.raises(ConfigError, match=f"found 4 that count, expected at least {MIN_ENTRIES}"):
        find(known(2), 1.0, 1.0, Method.REGRESSION)


def characterised(index: int) -> WeightEntry:
    alpha = 0.2 + 0.06 * index
    one = entry(dp_bytes=1e8 * 1.5**index)
    assert one.volumes is not None
    return replace(
        one,
        job=f"job-{index}",
        alpha=Estimate(value=alpha, ci_low=alpha - 0.02, ci_high=alpha + 0.02),
        beta=Estimate(value=1 - alpha, ci_low=0.98 - alpha, ci_high=1.02 - alpha),
    )


def test_each_entry_is_told_by_the_others() -> None:
    entries = [characterised(index) for index in range(10)]
    found = {each.method: each for each in leave_one_out(entries, Scaling.PAPER)}
    assert set(found) == set(Method)
    # Neighbours on a line of alphas 0.06 apart.
    for method in (Method.PAPER, Method.LOGS):
        assert found[method].mean_error == pytest.approx(0.06)
        assert found[method].nfar == 0
    mean_error = found[Method.REGRESSION].mean_error
    assert mean_error is not None and mean_error < 0.03


def test_methods_that_need_more_entries_are_left_out() -> None:
    two = [characterised(index) for index in range(2)]
    assert [each.method for each in leave_one_out(two, Scaling.VOLUMES)] == [Method.PAPER, Method.LOGS]
    assert leave_one_out(two[:1], Scaling.VOLUMES) == ()


def test_entries_of_the_same_job_do_not_tell_one_another() -> None:
    first, second = (characterised(index) for index in range(2))
    taller = replace(first, dp=12)
    assert leave_one_out([first, taller], Scaling.PAPER) == ()
    found = leave_one_out([first, taller, second], Scaling.PAPER)
    assert [each.mean_error for each in found] == pytest.approx([0.06, 0.06])

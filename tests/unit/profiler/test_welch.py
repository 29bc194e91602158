import math

import numpy as np
import pytest
from scipy import stats

from spanfit.profiler import welch
from spanfit.profiler.statistics import WIDENING

A, B = np.array([1.0, 1.2, 0.9, 1.3]), np.array([1.5, 1.9, 1.6, 1.55])


def test_the_test_and_the_interval_are_welchs() -> None:
    found = welch.difference(A, B)
    other = stats.ttest_ind(B, A, equal_var=False)
    bounds = other.confidence_interval(0.95)
    assert found.value == pytest.approx(B.mean() - A.mean())
    assert found.freedom == pytest.approx(other.df)
    assert found.p_value == pytest.approx(other.pvalue)
    assert (found.estimate().ci_low, found.estimate().ci_high) == pytest.approx((bounds.low, bounds.high))


def test_a_run_of_many_launches_lends_no_freedom_to_one_of_few() -> None:
    few, many = np.array([0.0, 0.001]), np.tile([0.0, 1.0], 3)
    assert stats.ttest_ind(many, few, equal_var=False).df > 4.9
    assert welch.difference(few, many).freedom == 2
    assert welch.difference(many, many + few.mean()).freedom == pytest.approx(10)


def test_a_side_of_many_launches_is_widened_for_having_been_stopped_at_a_good_look() -> None:
    many = np.tile([0.0, 1.0], 5)
    plain = math.sqrt(A.var(ddof=1) / 4 + many.var(ddof=1) / 10)
    widened = math.sqrt(A.var(ddof=1) / 4 + WIDENING**2 * many.var(ddof=1) / 10)
    assert welch.difference(A, many).error == pytest.approx(widened) != pytest.approx(plain)


def test_what_the_digits_leave_open_widens_the_interval_and_is_no_difference() -> None:
    plain, printed = welch.difference(A, B), welch.difference(A, B, 0.03, 0.05)
    slack = math.log(1.03) + math.log(1.05)
    before, after = plain.estimate(), printed.estimate()
    assert before.ci_low is not None and after.ci_low is not None
    assert after.ci_low == pytest.approx(before.ci_low - slack)
    assert printed.p_value > plain.p_value
    assert welch.difference(A, A + 0.07, 0.03, 0.05).p_value == 1.0
    assert welch.difference(A, A - 0.07, 0.03, 0.05).p_value == 1.0


def test_equal_digits_are_no_certainty() -> None:
    same = np.zeros(2)
    assert welch.difference(same, same + 0.1).p_value == 0.0
    assert 0.01 < welch.difference(same, same + 0.1, 0.03, 0.03).p_value < 0.9
    assert welch.difference(same, same).p_value == 1.0


@pytest.mark.parametrize(("sd", "target"), [(0.05, 0.03), (0.2, 0.03), (0.1, 0.05)])
def test_as_many_launches_as_wanted_reach_the_target_and_one_less_does_not(sd: float, target: float) -> None:
    wanted = welch.launches_wanted(sd, target)
    half = [WIDENING * sd / math.sqrt(n) * stats.t.ppf(0.975, 2 * n - 2) for n in (wanted - 1, wanted)]
    assert half[1] <= target < half[0]
    assert welch.launches_wanted(sd, target, 0.999) > wanted


def test_a_final_claim_takes_six_launches_however_quiet_they_are() -> None:
    assert welch.launches_wanted(1e-6, 0.03) == 6

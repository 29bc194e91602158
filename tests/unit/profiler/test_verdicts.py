import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanfit.profiler import statistics, verdicts
from spanfit.profiler.statistics import Verdict

SCATTER = np.array([-1.0, -0.6, -0.2, 0.2, 0.6, 1.0])


@pytest.mark.parametrize(
    ("time_s", "text"),
    [
        (0.2, "about 1 more second"),
        (89, "about 89 more seconds"),
        (90, "about 2 more minutes"),
        (840, "about 14 more minutes"),
        (5399, "about 90 more minutes"),
        (5400, "about 2 more hours"),
        (400_000, "about 111 more hours"),
    ],
)
def test_time_to_come_is_said_in_round_words(time_s: float, text: str) -> None:
    assert verdicts.about(time_s) == text


def test_what_is_not_told_apart_says_what_would_tell_the_effect() -> None:
    logs = 0.004 + 0.0112 * SCATTER
    assert verdicts.verdicts([logs], 0.01) == [Verdict.CANNOT_TELL]
    sentence = verdicts.sentence(Verdict.CANNOT_TELL, logs, 0.01, 60.0)
    more = statistics.units_needed(float(logs.std(ddof=1)), 0.005) - 6
    assert sentence == f"not told apart: 0.4% ± 0.9%; about {more} more minutes ({more} launches) would tell 1%"


@given(st.floats(-0.05, 0.05), st.floats(1e-4, 0.00475))
def test_an_interval_as_narrow_as_the_sentence_asks_for_always_gives_a_verdict(mean: float, half: float) -> None:
    sd = half / statistics.t_quantile(6) * np.sqrt(6)
    logs = mean + sd * SCATTER / SCATTER.std(ddof=1)
    assert verdicts.verdicts([logs], 0.01) != [Verdict.CANNOT_TELL]


def test_one_launch_names_what_would_give_an_interval() -> None:
    sentence = verdicts.sentence(Verdict.CANNOT_TELL, np.array([0.1]), 0.01, 30.0)
    assert (
        sentence
        == "cannot tell: 10.5% (one unit: no interval); about 2 more minutes (5 launches) would give an interval"
    )

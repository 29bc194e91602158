import math
from itertools import pairwise
from statistics import NormalDist

import numpy as np
import pytest

from spanfit.errors import FitError, InfeasibleError
from spanfit.queue.advise.costs import PredictedCosts, costs_by_weights
from spanfit.queue.advise.ends import RuntimeLaw, drawn_end_s, law_of
from spanfit.queue.advise.options import LEAST_DRAWS, MOST_LOOKS, MOST_OPTIONS, Advice, advise
from spanfit.queue.model.jobs import Forecast, QueueJob, Reservation, Running
from spanfit.queue.model.nodes import Ground, NodeSet, indices
from spanfit.queue.model.state import QueueState
from spanfit.queue.policy.choosing import choose
from spanfit.results.schema import Estimate
from spanfit.weights.model import Source, WeightEntry
from tests.unit.queue.factory import ground, job
from tests.unit.report.factory import entry as measured_entry

GRID = job("llm", 4, nrows=2, ncolumns=2, alpha=0.5)
SIZES = (4, 4, 4)


def known(value: float) -> Forecast:
    return Forecast(mean_s=value, upper_s=value)


def running(job_id: str, nodes: int, forecast: Forecast, started_s: float = 0.0, **values: float) -> Running:
    order = tuple(node for node in range(nodes.bit_length()) if nodes >> node & 1)
    return Running(
        job=job(job_id, len(order), **values), forecast=forecast, nodes=nodes, order=order, started_s=started_s
    )


def entry(gain_dp: float, gain_pp: float, half: float = 0.0) -> WeightEntry:
    """Return weights whose gains have intervals of these half widths."""
    gains = [Estimate(value=gain, ci_low=gain - half, ci_high=gain + half) for gain in (gain_dp, gain_pp)]
    return measured_entry(gain_dp=gains[0], gain_pp=gains[1])


def told(
    runs: list[Running],
    weights: WeightEntry,
    *,
    forecast: Forecast | None = None,
    wanted: QueueJob = GRID,
    ndraws: int = 200,
    sizes: tuple[int, ...] = SIZES,
    reservations: dict[str, Reservation] | None = None,
    seed: int = 1,
) -> Advice:
    place = ground(*sizes)
    state = QueueState(
        ground=place,
        now_s=0.0,
        up=place.everything,
        running={run.job.job_id: run for run in runs},
        reservations=reservations or {},
    )
    costs = costs_by_weights(weights, wanted, place.minipods, ndraws=ndraws, seed=seed)
    return advise(wanted, forecast or known(36_000), state, costs, choose, quantile=0.9, ndraws=ndraws, seed=seed)


# Each minipod of 4 has 3 nodes taken but the last two of them, in which one and two are.
BUSY = [
    running("a", 0b1110, known(2400.0)),
    running("b", 0b1110_0000, known(50_000.0)),
    running("c", 0b11 << 8, known(90_000.0)),
]


def test_waiting_pays_by_hand() -> None:
    # Now: 1, 1 and 2 free nodes; a 2 x 2 grid on 1 + 1 + 2 nodes has a column or a row over two minipods and a group of
    # the other kind, too. In 40 minutes the first minipod is free.
    advice = told(BUSY, entry(0.25, 0.25))
    now, later = advice.options
    # s = 0.25 / 1.25 = 0.2 each: the tightest takes 1 - 0.4 of the base.
    base = 1 + 0.2 * (now.dp_spread - 2) + 0.2 * (now.pp_spread - 2)
    assert now.step.value == pytest.approx(base / 0.6)
    assert (later.minipods, later.dp_spread, later.pp_spread, later.step.value) == (1, 1, 1, 1.0)
    assert (now.wait_s.value, later.wait_s.value) == (0.0, 2400.0)
    assert now.finish_s.value == pytest.approx(36_000 * base / 0.6)
    assert later.finish_s.value == pytest.approx(2400 + 36_000)
    assert later.saves_s is not None
    assert later.saves_s.value == pytest.approx(36_000 * base / 0.6 - 38_400)
    assert (now.saves_s, advice.best, later.wins, advice.remarks) == (None, 1, 1.0, ())


def test_a_short_job_starts_now() -> None:
    advice = told(BUSY, entry(0.25, 0.25), forecast=known(600.0))
    assert (advice.best, advice.options[0].wins) == (0, 1.0)


def test_gains_that_may_be_none_cannot_tell() -> None:
    # Gains of 3% ± 4%: the step may be shortened by more than the 40 minutes of 10 hours, or not at all.
    advice = told(BUSY, entry(0.03, 0.03, half=0.04))
    assert advice.best is None
    later = advice.options[1]
    assert later.saves_s is not None and later.saves_s.ci_low is not None and later.saves_s.ci_high is not None
    assert later.saves_s.ci_low < 0 < later.saves_s.ci_high
    assert 0 < later.wins < 1


def test_a_wait_that_may_be_long_cannot_tell() -> None:
    # The mean is 40 minutes, but one of ten such jobs runs for eight hours and more.
    unsure = [running("a", 0b1110, Forecast(mean_s=2400.0, upper_s=5400.0)), *BUSY[1:]]
    advice = told(unsure, entry(0.04, 0.04))
    assert advice.best is None
    assert advice.options[1].wait_s.ci_high is not None and advice.options[1].wait_s.ci_high > 5400


def test_the_length_of_the_job_hides_nothing_that_both_options_share() -> None:
    # The finishes overlap widely, since the job may run for hours more or less; waiting still wins in every draw.
    unsure = Forecast(mean_s=36_000.0, upper_s=60_000.0)
    now, later = (advice := told(BUSY, entry(0.25, 0.25), forecast=unsure)).options
    assert now.finish_s.ci_low is not None and later.finish_s.ci_high is not None
    assert now.finish_s.ci_low < later.finish_s.ci_high
    assert advice.best == 1


def test_the_best_placement_now_is_the_only_option() -> None:
    advice = told([], entry(0.25, 0.25))
    assert (len(advice.options), advice.best) == (1, 0)
    assert advice.options[0].wait_s.value == 0.0


def test_a_job_without_nodes_now_starts_when_there_are_enough() -> None:
    full = [running("a", 0b1111_1111, known(100.0)), running("b", 0b1111 << 8, known(50.0))]
    advice = told(full, entry(0.25, 0.25))
    assert [(each.wait_s.value, each.minipods) for each in advice.options] == [(50.0, 1)]


def test_nodes_reserved_for_others_are_not_counted_on() -> None:
    held = Reservation(job_id="lpj", nodes=0b1111, order=(0, 1, 2, 3), start_s=600.0, end_s=9e9)
    options = told(BUSY, entry(0.25, 0.25), reservations={"lpj": held}).options
    assert options[-1].wait_s.value == 50_000.0
    own = Reservation(job_id="llm", nodes=0b1111, order=(0, 1, 2, 3), start_s=600.0, end_s=9e9)
    assert told(BUSY, entry(0.25, 0.25), reservations={"llm": own}).options[-1].wait_s.value == 2400.0


def test_too_few_nodes_for_ever_are_infeasible() -> None:
    with pytest.raises(InfeasibleError, match="job llm asks for 4 nodes; 3 are in service"):
        told([], entry(0.2, 0.2), sizes=(2, 1))


def test_the_same_seed_gives_the_same_advice() -> None:
    unsure = [running("a", 0b1110, Forecast(mean_s=2400.0, upper_s=5400.0)), *BUSY[1:]]
    first, again, other = (told(unsure, entry(0.04, 0.04, half=0.01), seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_weights_say_nothing_of_a_job_without_a_grid_nor_without_gains() -> None:
    with pytest.raises(FitError, match="no grid of rows and columns"):
        costs_by_weights(entry(0.1, 0.1), job("x", 4), (0, 0, 0, 0), ndraws=2, seed=1)
    by_hand = measured_entry(source=Source.HAND, gain_dp=None, gain_pp=None)
    with pytest.raises(FitError, match="found no gains"):
        costs_by_weights(by_hand, GRID, (0, 0, 0, 0), ndraws=2, seed=1)


def test_draws_of_gains_have_the_width_of_their_intervals() -> None:
    costs = costs_by_weights(entry(0.25, 0.0, half=0.098), GRID, (0, 0, 1, 1), ndraws=20_000, seed=1)
    # Rows along minipods: columns (DP) cross, dp spread 2, pp spread 1 or the other way about by the order.
    draws = costs.draws((0, 1, 2, 3))
    assert draws.shape == (20_000,)
    assert float(np.median(draws)) == pytest.approx(costs.best_guess((0, 1, 2, 3)), rel=0.01)
    shares = [gain / (1 + gain) for gain in (0.25 - 0.098, 0.25 + 0.098)]
    assert costs.normals.std() == pytest.approx(1, rel=0.02)
    assert costs.saved[0].ci_low == pytest.approx(shares[0]) and costs.saved[0].ci_high == pytest.approx(shares[1])


def test_predicted_steps_have_errors_of_their_own() -> None:
    costs = PredictedCosts(step_time_s=lambda order: 1.0 + len(order), tightest_s=2.0, error=0.05, ndraws=9000, seed=3)
    assert costs.best_guess((0, 1, 2)) == 2.0
    one, two = costs.draws((0, 1, 2)), costs.draws((0, 1, 3))
    assert np.log(one / 2.0).std() == pytest.approx(0.05, rel=0.05)
    assert (one == costs.draws((0, 1, 2))).all() and abs(float(np.corrcoef(one, two)[0, 1])) < 0.05
    assert "± 9.8%" in costs.remarks([])[0]


def test_a_forecast_is_a_lognormal_with_its_mean_and_quantile() -> None:
    law = law_of(Forecast(mean_s=1000.0, upper_s=1800.0), 0.9)
    assert law.median_s * math.exp(law.log_sd**2 / 2) == pytest.approx(1000)
    assert law.draw_s(0.9) == pytest.approx(1800)
    assert law_of(known(500.0), 0.9) == RuntimeLaw(median_s=500.0, log_sd=0.0)
    # No log-normal has an upper quantile so far above its mean; the widest that can be is taken.
    z = NormalDist().inv_cdf(0.9)
    assert law_of(Forecast(mean_s=1.0, upper_s=100.0), 0.9).log_sd == pytest.approx(z)


def test_what_is_left_depends_on_what_has_run() -> None:
    law = RuntimeLaw(median_s=1000.0, log_sd=0.5)
    assert law.left_s(0.0, 0.5) == pytest.approx(1000)
    # After the median, the median of what is left is the 75% quantile less what has run.
    assert law.left_s(1000.0, 0.5) == pytest.approx(law.draw_s(0.75) - 1000)
    assert RuntimeLaw(median_s=100.0, log_sd=0.0).left_s(30.0, 0.9) == 70.0
    assert RuntimeLaw(median_s=100.0, log_sd=0.0).left_s(150.0, 0.9) == 150.0


def test_a_job_ends_at_its_time_limit_at_the_latest() -> None:
    run = running("a", 0b1, known(1000.0), started_s=100.0, time_limit_s=600.0)
    assert drawn_end_s(run, 200.0, 0.9, 0.5) == 700.0
    assert drawn_end_s(run, 900.0, 0.9, 0.5) == 900.0


def test_spreads_beyond_those_measured_are_remarked_upon() -> None:
    # One row of three stages over three minipods with a free node each: a spread of 3, which no arm had.
    wide = job("wide", 3, nrows=1, ncolumns=3, alpha=0.5)
    runs = [running(name, 0b1110 << shift, known(500.0)) for name, shift in (("a", 0), ("b", 4), ("c", 8))]
    advice = told(runs, entry(0.1, 0.1), wanted=wide)
    assert advice.options[0].pp_spread == 3
    assert "in a straight line" in advice.remarks[0]


def test_a_large_queue_is_asked_about_a_bounded_number_of_placements() -> None:
    # 60 jobs of one node, whose ends are drawn: nearly every draw meets other sets of free nodes.
    place = ground(*(6,) * 10)
    asked: list[NodeSet] = []

    def densest_first(wanted: QueueJob, where: Ground, allowed: NodeSet) -> tuple[int, ...]:
        asked.append(allowed)
        parts = sorted((where.masks[minipod] & allowed for minipod in range(10)), key=lambda part: -part.bit_count())
        return tuple(node for part in parts for node in indices(part))[: wanted.nnodes]

    runs = [
        running(f"r{node}", 1 << node, Forecast(mean_s=100.0 * (1 + node * 37 % 60), upper_s=200.0 * (1 + node)))
        for node in range(60)
    ]
    state = QueueState(ground=place, now_s=0.0, up=place.everything, running={run.job.job_id: run for run in runs})
    wanted = job("wide", 12, nrows=6, ncolumns=2, alpha=0.5)
    costs = costs_by_weights(entry(0.2, 0.1), wanted, place.minipods, ndraws=400, seed=1)
    advice = advise(wanted, known(360_000), state, costs, densest_first, quantile=0.9, ndraws=400, seed=1)
    assert LEAST_DRAWS <= advice.ndraws < 400
    assert len(asked) <= MOST_LOOKS + 20 * MOST_OPTIONS
    assert len(advice.options) > 1 and advice.options[-1].step.value < advice.options[0].step.value
    for before, after in pairwise(advice.options):
        assert before.wait_s.value <= after.wait_s.value


def test_a_placement_that_is_hardly_better_is_no_option() -> None:
    # Waiting shortens the step by 0.9% at most: gains of 0.2% save too little to be told.
    advice = told(BUSY, entry(0.002, 0.002))
    assert (len(advice.options), advice.best) == (1, 0)


def test_the_first_good_moment_is_found_though_a_later_one_is_worse() -> None:
    """A chooser that does worse with more nodes: the wait is to the first placement that is good enough."""
    place = ground(4, 4, 4)

    def moody(wanted: QueueJob, where: Ground, allowed: NodeSet) -> tuple[int, ...]:
        free = [node for node in range(12) if allowed >> node & 1]
        if len(free) < 4:
            return ()
        return (0, 1, 2, 3) if len(free) == 7 else (free[0], free[1], free[-1], free[-2])

    busy = [running(f"r{node}", 1 << node, known(100.0 * (node + 1))) for node in range(12)]
    state = QueueState(ground=place, now_s=0.0, up=place.everything, running={run.job.job_id: run for run in busy})
    costs = costs_by_weights(entry(0.25, 0.25), GRID, place.minipods, ndraws=20, seed=1)
    advice = advise(GRID, known(36_000), state, costs, moody, quantile=0.9, ndraws=20, seed=1)
    assert advice.options[-1].minipods == 1
    assert advice.options[-1].wait_s.value == (400.0 if len(advice.options) == 1 else 700.0)

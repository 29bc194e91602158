"""The acceptance checks 1 and 3 to 5 that arXiv 2509.15940's numbers allow (even capacities, empty cluster)."""

import pytest

from spanfit.placer.baselines import best_fit
from spanfit.placer.model import objective
from spanfit.placer.paper import GroupUnit, PaperMethod, solve_paper
from spanfit.placer.solve import solve
from spanfit.workload.layout import ParallelLayout
from tests.unit.placer.factories import even, problem

SETTINGS = {"i": (6, 2, even(18, 3)), "ii": (12, 8, even(438, 5)), "iii": (46, 8, even(1019, 11))}


@pytest.mark.parametrize(
    ("dp", "tp", "pp", "grid"), [(12, 4, 2, (6, 2)), (24, 4, 8, (12, 8)), (46, 8, 8, (46, 8)), (6, 8, 2, (6, 2))]
)
def test_acceptance_1_equation_1_on_table_1(dp: int, tp: int, pp: int, grid: tuple[int, int]) -> None:
    assert ParallelLayout(dp=dp, tp=tp, pp=pp).grid(8) == grid


@pytest.mark.parametrize(
    ("setting", "alpha", "used", "split", "value"),
    [
        ("i", 0.2, 2, 1, 1.2),
        ("i", 0.5, 2, 1, 1.5),
        ("i", 0.8, 2, 1, 1.8),
        ("ii", 0.2, 2, 1, 1.2),
        ("ii", 0.5, 2, 1, 1.5),
        ("ii", 0.8, 2, 1, 1.8),
        ("iii", 0.2, 5, 1, 1.8),
        ("iii", 0.5, 4, 2, 3.0),
        ("iii", 0.8, 4, 2, 3.6),
    ],
)
def test_acceptance_3_optimum_of_the_settings(setting: str, alpha: float, used: int, split: int, value: float) -> None:
    given_problem = problem(*SETTINGS[setting], alpha)
    answer = solve_paper(given_problem, unit=GroupUnit.PP)
    assert (answer.minipods_used, answer.largest_split) == (used, split)
    assert answer.objective == pytest.approx(value)
    assert solve(given_problem).objective <= answer.counted + 1e-9


@pytest.mark.parametrize(
    ("setting", "alpha", "ratio"),
    [("i", 0.2, 1.0), ("i", 0.8, 1.0), ("ii", 0.2, 5 / 3), ("ii", 0.5, 4 / 3), ("iii", 0.2, 4 / 3), ("iii", 0.5, 1.0)],
)
def test_acceptance_3_best_fit_over_the_optimum(setting: str, alpha: float, ratio: float) -> None:
    given_problem = problem(*SETTINGS[setting], alpha)
    answer = solve_paper(given_problem, unit=GroupUnit.PP)
    assert objective(best_fit(given_problem), given_problem) / answer.objective == pytest.approx(ratio)


@pytest.mark.parametrize("by", list(PaperMethod))
def test_acceptance_3_verbatim_and_closed_form_agree_on_setting_i(by: PaperMethod) -> None:
    answer = solve_paper(problem(*SETTINGS["i"], 0.2), by=by, unit=GroupUnit.PP)
    assert (answer.minipods_used, answer.largest_split, answer.is_optimal) == (2, 1, by is PaperMethod.MIP)


@pytest.mark.parametrize("by", list(PaperMethod))
def test_acceptance_4_alpha_1_uses_the_fewest_minipods_and_alpha_0_splits_no_group(by: PaperMethod) -> None:
    free = (7, 7, 7, 6, 6)
    fewest = solve_paper(problem(5, 4, free, 1.0), by=by, unit=GroupUnit.PP)
    assert (fewest.minipods_used, fewest.objective) == (3, 3.0)
    whole = solve_paper(problem(5, 4, free, 0.0), by=by, unit=GroupUnit.PP)
    assert (whole.largest_split, whole.minipods_used, whole.objective) == (1, 5, 1.0)


@pytest.mark.parametrize("by", list(PaperMethod))
def test_acceptance_5_the_job_of_figure_12_needs_the_dp_unit(by: PaperMethod) -> None:
    figure_12 = problem(6, 2, (6, 6), 0.8)
    assert solve_paper(figure_12, by=by, unit=GroupUnit.PP).objective == pytest.approx(1.8)
    chosen = solve_paper(figure_12, by=by)
    assert chosen.unit is GroupUnit.DP
    assert chosen.counted == pytest.approx(1.2)
    assert solve(figure_12).objective == pytest.approx(1.2)


def test_near_one_half_both_units_are_tried() -> None:
    # The dominant unit at 0.48 is the PP group, but one of the rows of 4 must split; columns of 2 all fit.
    given_problem = problem(2, 4, (2, 6), 0.48)
    both = solve_paper(given_problem)
    alone = solve_paper(given_problem, unit=GroupUnit.PP)
    assert both.unit is GroupUnit.DP
    assert both.counted < alone.counted

from dataclasses import replace

import pytest
from hypothesis import given, settings

from spanfit.placer.choose import GOALS, Preference, preferred
from spanfit.placer.model import PlacementStatus, Problem, Reading, column_spreads, objective, row_spreads
from spanfit.placer.place import place
from spanfit.placer.repair import repair
from spanfit.placer.solve import Solver, solve
from spanfit.placer.verify import verify
from spanfit.workload.layout import ParallelLayout
from tests.unit.placer.factories import problem, reachable, small_problems
from tests.unit.placer.test_place import cluster, job


def test_a_group_in_one_minipod_counts_one_or_as_printed_nothing() -> None:
    assert [Reading.COUNTED.of(spread) for spread in (1, 2, 3)] == [1, 2, 3]
    assert [Reading.LITERAL.of(spread) for spread in (1, 2, 3)] == [0, 2, 3]


@settings(max_examples=25, deadline=None)
@given(small_problems())
def test_the_literal_objective_is_that_of_brute_force(drawn: Problem) -> None:
    given_problem = replace(drawn, reading=Reading.LITERAL)
    found = solve(given_problem)
    lowest = min(given_problem.value(a, b) for a, b in reachable(given_problem))
    assert found.objective == pytest.approx(lowest)
    assert found.status is PlacementStatus.OPTIMAL
    assert found.gap == 0
    assert objective(preferred(found.grid, given_problem, Preference(goals=GOALS), seed=0), given_problem) == (
        pytest.approx(lowest)
    )


@pytest.mark.parametrize("solver", [Solver.FAST, Solver.PAPER_CLOSED_FORM])
def test_readings_may_choose_other_spreads(solver: Solver) -> None:
    """Tiles of two by two cost 2, three whole slabs 2 counted as well; as printed 2 and 1.5."""
    counted = problem(6, 6, (12, 12, 12))
    literal = replace(counted, reading=Reading.LITERAL)
    assert solve(counted, solver=solver).objective == 2.0
    found = solve(literal, solver=solver)
    assert (found.objective, found.bound) == (1.5, 1.5)
    assert sorted((max(column_spreads(found.grid)), max(row_spreads(found.grid)))) == [1, 3]


def test_a_job_in_one_minipod_costs_nothing_as_printed() -> None:
    found = solve(replace(problem(3, 2, (9, 2)), reading=Reading.LITERAL))
    assert (found.objective, found.bound, found.gap) == (0, 0, 0)


def test_placements_keep_the_reading_through_verification_and_repair() -> None:
    given_cluster = cluster(8, 8, 8)
    spec = job(6, 2, layout=ParallelLayout(dp=6, pp=2, tp=8, ep=3))
    found = place(spec, given_cluster, alpha=0.3, beta=0.5, ep_weight=0.2, reading=Reading.LITERAL)
    verify(found, given_cluster)
    assert found.reading is Reading.LITERAL
    mended = repair(found, given_cluster, [found.rank_map.node_names[0]]).placement
    assert mended.reading is Reading.LITERAL
    assert mended.objective == pytest.approx(found.objective)
    with pytest.raises(ValueError, match="objective is"):
        verify(replace(found, reading=Reading.COUNTED), given_cluster)

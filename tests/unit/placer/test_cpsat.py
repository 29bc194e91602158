import pytest

from spanfit.placer.construct import reaches
from spanfit.placer.highs import Engine, MipStatus, best_engine
from spanfit.placer.mip import read_types, type_model
from tests.unit.placer.factories import medium_problem, problem


def test_the_best_engine_is_one_that_is_installed() -> None:
    assert best_engine() in Engine


def test_cp_sat_settles_pairs_as_highs_does() -> None:
    pytest.importorskip("ortools", reason="the extra exact is not installed")
    from spanfit.placer import cpsat, highs

    for seed in range(4):
        medium = medium_problem(seed)
        for a, b in ((2, 2), (3, 2)):
            model = type_model(medium, a, b)
            peers = [each(model.mip, time_limit_s=20, seed=0) for each in (cpsat.solve_here, highs.solve_here)]
            assert peers[0].status is peers[1].status
            if peers[0].values is not None:
                assert reaches(read_types(model, peers[0].values.tolist()), medium, a, b)


def test_cp_sat_says_what_has_no_grid() -> None:
    pytest.importorskip("ortools", reason="the extra exact is not installed")
    from spanfit.placer import cpsat

    model = type_model(problem(6, 2, (4, 4, 0, 1, 0, 3)), 2, 2)
    assert cpsat.solve_here(model.mip, time_limit_s=20, seed=0).status is MipStatus.INFEASIBLE

import subprocess
import sys
import time

import numpy as np
import pytest

from spanfit.placer.highs import MipStatus, run_mip, silent_stdout
from spanfit.placer.mip import paper_model
from spanfit.placer.model import PlacementStatus, check_capacity
from spanfit.placer.solve import solve
from tests.unit.placer.factories import even, problem


def test_highs_prints_a_banner_and_it_does_not_reach_stdout() -> None:
    bare = "import highspy; highspy.Highs()"
    ours = (
        "from spanfit.placer.highs import solve_here; from spanfit.placer.mip import paper_model\n"
        "solve_here(paper_model(2, 2, (2, 2), 0.5, 0.5).mip, time_limit_s=5, seed=0); print('after')"
    )
    heard = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        for code in (bare, ours)
    ]
    assert "HiGHS" in heard[0]
    assert heard[1] == "after\n"


def test_stdout_comes_back_after_an_error(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyError), silent_stdout():
        subprocess.run(["echo", "hidden"], check=True)
        raise KeyError
    subprocess.run(["echo", "shown"], check=True)
    assert capfd.readouterr().out == "shown\n"


def test_a_child_process_answers_as_asked(capfd: pytest.CaptureFixture[str]) -> None:
    model = paper_model(3, 2, (4, 2), 0.3, 0.7).mip
    answer = run_mip(model, time_limit_s=20)
    assert answer.status is MipStatus.OPTIMAL
    assert answer.values is not None
    assert float(model.cost @ answer.values) == pytest.approx(0.3 * 2 + 0.7)
    assert np.all(answer.values >= model.lower - 1e-6)
    assert capfd.readouterr().out == ""


def test_an_infeasible_model_is_told_apart_from_a_stopped_one() -> None:
    answer = run_mip(paper_model(3, 2, (2, 2), 0.3, 0.7).mip, time_limit_s=20)
    assert (answer.status, answer.values) == (MipStatus.INFEASIBLE, None)


def test_the_time_limit_holds_on_a_model_that_takes_far_longer() -> None:
    setting_iii = paper_model(46, 8, even(1019, 11), 0.2, 0.8).mip
    start = time.monotonic()
    answer = run_mip(setting_iii, time_limit_s=1.2)
    assert time.monotonic() - start < 2.0
    assert answer.status is MipStatus.STOPPED


def test_an_engine_that_ends_badly_is_told_and_costs_no_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    answer = run_mip(paper_model(3, 2, (4, 2), 0.3, 0.7).mip, time_limit_s=5)
    assert (answer.status, answer.reason) == (MipStatus.FAILED, "HiGHS ended with code 1: it said nothing")
    only_by_model = problem(10, 6, (7, 29, 18, 6))
    solution = solve(only_by_model, time_limit_s=1)
    check_capacity(solution.grid, only_by_model)
    assert solution.status is PlacementStatus.FEASIBLE
    assert solution.certificate.endswith("HiGHS ended with code 1: it said nothing")

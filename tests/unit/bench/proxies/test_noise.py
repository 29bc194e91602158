"""What is told of the jobs beside a step; real ones run in the integration tests."""

from dataclasses import replace

import pytest

from spanfit.bench.proxies.noise import silent_jobs
from tests.unit.bench.test_case import CASE, STEP


@pytest.mark.parametrize(
    ("nsteps", "told"),
    [
        ([3.0, 1.0], ""),
        ([3.0, 0.0], "noise busy-01 ran no step"),
        ([0.0, 0.0], "noise busy-00 ran no step; noise busy-01 ran no step"),
    ],
)
def test_jobs_that_ran_no_step_are_told(nsteps: list[float], told: str) -> None:
    noise = (replace(STEP, name="busy-00"), replace(STEP, name="busy-01"))
    assert silent_jobs(replace(CASE, noise=noise), nsteps) == told

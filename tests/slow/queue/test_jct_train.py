"""Trained predictors: their trees, their files, and what they are worth out of time on synthetic traces."""

import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from click.testing import CliRunner
from sklearn.ensemble import HistGradientBoostingRegressor
from threadpoolctl import threadpool_limits

from spanfit.cli.jct import jct
from spanfit.errors import FitError
from spanfit.queue.jct import features
from spanfit.queue.jct.compare import Comparison, compare
from spanfit.queue.jct.gbm import exported, verify
from spanfit.queue.jct.model import Model, read_model, write_model
from spanfit.queue.jct.train import LEVELS, study, train
from spanfit.queue.model.jobs import QueueJob
from spanfit.queue.traces.reading import Trace
from spanfit.queue.traces.synthetic import SyntheticShape, synthetic_trace

Floats = npt.NDArray[np.float64]

SEED = 2212
"""Its draws have few trees, which is what fitting takes time for."""


@pytest.fixture(scope="module")
def trace() -> Trace:
    return synthetic_trace(SyntheticShape.SHARED, njobs=2000, days=25, seed=5)


@pytest.fixture(scope="module")
def early(trace: Trace) -> Trace:
    """The jobs that ended in the first three quarters of the trace's time."""
    until_s = trace.jobs[1500].submit_s
    return replace(trace, jobs=tuple(job for job in trace.jobs if job.end_s < until_s))


@pytest.fixture(scope="module")
def model(early: Trace) -> Model:
    return train(early, ndraws=3, seed=SEED)


def made(nrows: int, seed: int) -> tuple[Floats, Floats]:
    rng = np.random.default_rng(seed)
    codes = rng.choice([0, 1, 2, 7, 40, 180], (nrows, 3)).astype(float)
    numbers = rng.normal(size=(nrows, 3))
    table = np.hstack([codes, numbers])
    table[rng.uniform(size=table.shape) < 0.15] = np.nan
    return table, np.nan_to_num(numbers[:, 0]) ** 2 + np.sin(np.nan_to_num(codes[:, 0])) + rng.normal(size=nrows) / 5


@pytest.mark.parametrize("loss", ["squared_error", "quantile", "poisson"])
def test_arrays_give_what_the_estimator_gives(loss: str) -> None:
    table, values = made(400, seed=1)
    estimator = HistGradientBoostingRegressor(
        loss=loss,
        quantile=0.9 if loss == "quantile" else None,
        categorical_features=[0, 1, 2],
        max_iter=15,
        min_samples_leaf=5,
        early_stopping=False,
    )
    with threadpool_limits(1):
        estimator.fit(table, values - values.min() + 0.1)
    fresh, _ = made(300, seed=2)
    fresh[::7, 0] = 99.0  # a code that was never seen
    with threadpool_limits(1):
        theirs = estimator.predict(fresh)
    ours = exported(estimator, 6).predict(fresh)
    np.testing.assert_allclose(np.exp(ours) if loss == "poisson" else ours, theirs, rtol=1e-10)


def test_an_export_that_differs_is_an_error_and_no_forecast() -> None:
    table, values = made(200, seed=3)
    with threadpool_limits(1):
        estimator = HistGradientBoostingRegressor(categorical_features=[0, 1, 2], max_iter=3).fit(table, values)
    forest = exported(estimator, 6)
    wrong = replace(forest, value=forest.value + 0.1)
    with pytest.raises(FitError, match="differ from the estimator"):
        verify(wrong, estimator, table, "squared_error")
    verify(forest, estimator, table, "squared_error")


def test_the_same_trace_and_seed_give_the_same_model(early: Trace, model: Model) -> None:
    again = train(early, ndraws=3, seed=SEED)
    assert again.info == model.info
    np.testing.assert_array_equal(again.scores, model.scores)


def test_no_job_that_calibrates_was_fitted_to(trace: Trace) -> None:
    known = study(trace.jobs)
    nfitted = len(known.fitted)
    assert max(job.end_s for job in known.jobs[:nfitted]) <= min(job.end_s for job in known.jobs[nfitted:])
    assert not any(job.is_cut_short for job in known.jobs)
    assert known.nleft_out == sum(job.is_cut_short for job in trace.jobs)


def test_a_written_model_forecasts_the_same_and_needs_no_scikit_learn(tmp_path: Path, model: Model) -> None:
    path = tmp_path / "model.npz"
    write_model(path, model)
    asked = [
        QueueJob(job_id=str(n), nnodes=1, submitted_s=model.info.last_end_s, owner=user, ngpus=8)
        for n, user in enumerate([*model.info.codes["user"], "stranger"])
    ]
    assert read_model(path).forecast(asked, 0.9) == model.forecast(asked, 0.9)
    code = (
        "import sys; from pathlib import Path; from spanfit.queue.jct.model import read_model; "
        f"read_model(Path({str(path)!r})); print(sorted({{'sklearn', 'scipy', 'pandas'}} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_bounds_cover_later_jobs_while_calibration_moves_on(trace: Trace, model: Model) -> None:
    """As a queue uses it: calibrated anew every 60 jobs on all that had ended by then, the trees as they were."""
    late = [job for job in trace.jobs if job.submit_s >= model.info.last_end_s and not job.is_cut_short]
    covered, current = [], model
    for start in range(0, len(late), 60):
        part = late[start : start + 60]
        current = model.recalibrated([job for job in trace.jobs if job.end_s <= part[0].submit_s])
        forecasts = current.forecast_requests([features.request_of(job) for job in part], 0.9)
        covered += [job.runtime_s <= found.upper_s for job, found in zip(part, forecasts, strict=True)]
    assert len(covered) > 300
    assert 0.85 <= np.mean(covered) <= 0.95
    assert model.info.levels == LEVELS
    assert len(current.scores) > len(model.scores)


@pytest.fixture(scope="module")
def compared(trace: Trace) -> Comparison:
    return compare(trace, ndraws=3, seed=SEED, clock=time.perf_counter, test_share=0.25)


def test_out_of_time_both_predictors_are_scored_alike(trace: Trace, compared: Comparison) -> None:
    found = compared
    assert [score.name for score in found.scores] == ["gradient boosting", "neural net", "the owner's past alone"]
    for score in found.scores:
        assert score.rmse_bins.ci_low is not None
        assert 0 < score.rmse_bins.ci_low <= score.rmse_bins.value
        assert 0.8 <= score.coverage.value <= 0.98
    assert found.ntrain + found.ntest < len(trace.jobs)


def test_a_predictor_beats_one_that_knows_nothing(trace: Trace, compared: Comparison) -> None:
    """The trees learn from habits: their loss is well below that of the same trees on shuffled runtimes."""
    found = compared.scores[0]
    rng = np.random.default_rng(0)
    times = rng.permutation([job.runtime_s for job in trace.jobs])
    shuffled = [
        replace(job, end_s=job.start_s + runtime_s, state=job.state)
        for job, runtime_s in zip(trace.jobs, times.tolist(), strict=True)
    ]
    mixed = replace(trace, jobs=tuple(shuffled))
    blind = compare(mixed, ndraws=3, seed=SEED, clock=time.perf_counter, test_share=0.25).scores[0]
    assert found.pinball_log < 0.93 * blind.pinball_log


def test_a_short_trace_is_refused(trace: Trace) -> None:
    with pytest.raises(FitError, match="expected at least 200"):
        train(replace(trace, jobs=trace.jobs[:50]))
    with pytest.raises(FitError, match="expected at least 3 days"):
        compare(trace, ndraws=3, seed=0, clock=time.perf_counter, test_share=0.01)


def test_the_commands_do_what_their_examples_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    runner = CliRunner()
    for arguments in (
        "trace --jobs 600 --days 20 -o synthetic.txt",
        f"train synthetic.txt -o model.npz --draws 3 --seed {SEED} --withhold name",
        "recalibrate model.npz synthetic.txt -o model.npz",
        "predict model.npz --user synthetic-user-0001 --gpus 8 --time-limit 12h --json",
        f"score synthetic.txt --draws 3 --seed {SEED} --test-share 0.3 --json",
    ):
        done = runner.invoke(jct, arguments.split(), catch_exceptions=False)
        assert done.exit_code == 0, done.output
    assert '"rmse_ratio"' in done.stdout
    assert read_model(tmp_path / "model.npz").info.withheld == ("name",)

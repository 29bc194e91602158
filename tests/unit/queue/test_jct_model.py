"""A model's file and its forecasts; the model is a stump whose answers are known."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from spanfit.errors import ConfigError, FitError
from spanfit.queue.jct import features
from spanfit.queue.jct.model import SCHEMA_VERSION, WINDOW, Model, ModelInfo, past_of, read_model, write_model
from spanfit.queue.jct.targets import LIMIT_GRACE_S, Target
from spanfit.queue.jct.trees import CATEGORY_WORDS, Forest
from spanfit.queue.model.jobs import QueueJob
from spanfit.queue.traces.reading import JobState, TraceJob

COLUMNS = (*features.CATEGORICAL, *features.NUMERIC)
LAST = COLUMNS.index("user_gpus_last")


def follower(shift: float) -> Forest:
    """Trees that answer log(60) + shift, or log(6000) + shift for owners whose last run took over 1,000 s."""
    low, high = float(np.log1p(60)), float(np.log1p(6000))
    return Forest(
        baseline=np.array([shift]),
        roots=np.array([0], dtype=np.int32),
        feature=np.array([LAST, 0, 0], dtype=np.int32),
        threshold=np.array([np.log1p(1000), 0, 0]),
        left=np.array([1, -1, -1], dtype=np.int32),
        right=np.array([2, -1, -1], dtype=np.int32),
        missing_left=np.array([True, False, False]),
        value=np.array([0, low, high]),
        categories=np.array([-1, -1, -1], dtype=np.int32),
        bits=np.zeros((1, CATEGORY_WORDS), dtype=np.uint32),
        known=np.zeros((len(COLUMNS), CATEGORY_WORDS), dtype=np.uint32),
    )


def ended(job_id: str, runtime_s: float, **changes: object) -> TraceJob:
    known = TraceJob(
        job_id=job_id,
        submit_s=1000.0,
        start_s=1000.0,
        end_s=1000.0 + runtime_s,
        nnodes=1,
        state=JobState.COMPLETED,
        ngpus=8,
        user="ada",
        name="bert",
    )
    return replace(known, **changes)  # type: ignore[arg-type]


INFO = ModelInfo(
    schema_version=SCHEMA_VERSION,
    library="none",
    origin="test",
    kind="synthetic",
    njobs=10,
    ncalibration=9,
    nleft_out=1,
    fitted_until_s=1.0,
    first_submit_s=0.0,
    last_end_s=1.0,
    features=COLUMNS,
    codes={"user": {"ada": 0}, "department": {}, "partition": {}},
    withheld=(),
    target=Target.LOG,
    smear=1.0,
    levels=(0.5, 0.9),
    parameters={"mean": {"max_iter": 1.0}},
    validation_deviance=0.5,
)
MODEL = Model(
    info=INFO,
    mean=follower(0.0),
    quantiles=(follower(0.0), follower(1.0)),
    history=features.history_of([ended("1", 2000.0)], {}),
    scores=np.tile(np.arange(-4.0, 5.0)[:, None] / 10, 2),
)
SLOW = QueueJob(job_id="q", nnodes=1, submitted_s=9000.0, owner="ada", ngpus=8)
STRANGER = replace(SLOW, owner="bob")


def test_forecasts_follow_the_past_of_the_owner() -> None:
    slow, quick = MODEL.forecast([SLOW, STRANGER], 0.9)
    assert slow.mean_s == pytest.approx(6000)
    assert quick.mean_s == pytest.approx(60)
    # the trees of the 90% level say log(6001) + 1; of nine scores the largest, 0.4, is added
    assert slow.upper_s == pytest.approx(6001 * np.exp(1.4) - 1)


def test_another_quantile_is_calibrated_from_the_nearest_level() -> None:
    assert MODEL.level_for(0.6) == 0
    assert MODEL.level_for(0.99) == 1
    (forecast,) = MODEL.forecast([STRANGER], 0.6)
    assert forecast.upper_s == pytest.approx(61 * np.exp(0.1) - 1)  # ceil(10 * 0.6) = 6th of nine scores


def test_no_forecast_goes_beyond_a_limit_and_no_bound_below_the_mean() -> None:
    (forecast,) = MODEL.forecast([replace(SLOW, time_limit_s=100.0)], 0.9)
    assert (forecast.mean_s, forecast.upper_s) == (100.0 + LIMIT_GRACE_S, 100.0 + LIMIT_GRACE_S)
    (low,) = MODEL.forecast([SLOW], 0.05)
    assert low.upper_s == low.mean_s


def test_no_jobs_have_no_forecasts_and_odd_quantiles_are_refused() -> None:
    assert MODEL.forecast([], 0.9) == ()
    with pytest.raises(ValueError, match="between 0 and 1"):
        MODEL.forecast([SLOW], 1.0)


def run(number: int, submit_s: float, runtime_s: float, **changes: object) -> TraceJob:
    return ended(str(number), runtime_s, submit_s=submit_s, start_s=submit_s, end_s=submit_s + runtime_s, **changes)


QUICK = [run(n, 9000.0 + 100 * n, 10.0) for n in range(40)]


def test_a_newer_trace_moves_the_past_and_the_calibration() -> None:
    later = MODEL.recalibrated([ended("1", 2000.0), *QUICK])
    assert later.forecast([replace(SLOW, submitted_s=99_000.0)], 0.9)[0].mean_s == pytest.approx(60)
    assert MODEL.forecast([replace(SLOW, submitted_s=99_000.0)], 0.9)[0].mean_s == pytest.approx(6000)
    assert (later.info.ncalibration, later.info.last_end_s) == (41, QUICK[-1].end_s)
    assert later.info.fitted_until_s == INFO.fitted_until_s
    # the first quick job was submitted when only the slow one had ended, the next when a quick one had
    expected = [np.log1p(10) - np.log1p(6000), np.log1p(10) - np.log1p(60)]
    assert later.scores[1:3, 0] == pytest.approx(expected)
    assert later.recalibrated([ended("1", 2000.0), *QUICK]).info == later.info


def test_a_job_that_calibrates_knows_only_what_had_ended_at_its_submission() -> None:
    """A job of a day, submitted before the quick ones: the past it is forecast from has none of them."""
    day = run(99, 8000.0, 86400.0)
    later = MODEL.recalibrated([run(98, 1000.0, 3000.0), *QUICK, day])
    assert later.info.last_end_s == day.end_s
    assert later.scores[-1, 0] == pytest.approx(np.log1p(86400) - np.log1p(6000))


def test_too_few_jobs_calibrate_nothing() -> None:
    cut_short = [replace(each, state=JobState.CANCELLED) for each in QUICK[:20]]
    fitted_to = replace(MODEL, info=replace(INFO, fitted_until_s=QUICK[19].end_s))
    for model, jobs in ((MODEL, [*cut_short, *QUICK[20:]]), (fitted_to, QUICK)):
        with pytest.raises(FitError, match=r"found 20 jobs .* expected at least 30"):
            model.recalibrated(jobs)


def test_the_window_forgets() -> None:
    many = [run(n, 8950.0 + n, 50.0, user="bob") for n in range(WINDOW + 5)]
    assert len(MODEL.recalibrated(many).scores) == WINDOW


def test_a_past_keeps_the_groups_that_ran_last() -> None:
    kept = past_of([run(1, 0.0, 5.0, user="eve"), run(2, 10.0, 5.0)], (), most=3)
    twice = past_of([run(1, 0.0, 5.0, name="a"), run(2, 10.0, 5.0, name="b"), run(3, 20.0, 5.0, name="c")], (), most=3)
    assert set(twice) == {"user\tada", "user_gpus\tada\t8", "user_name\tada\tc"}
    assert set(kept) == {"user\tada", "user_name\tada\tbert", "user_gpus\tada\t8"}


def test_what_is_withheld_is_not_looked_at() -> None:
    blind = replace(MODEL, info=replace(INFO, withheld=("user",)))
    assert blind.forecast([SLOW], 0.9)[0].mean_s == pytest.approx(60)


def test_a_file_gives_the_same_forecasts(tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    write_model(path, MODEL)
    again = read_model(path)
    assert again.info == INFO
    assert again.history == MODEL.history
    assert again.forecast([SLOW, STRANGER], 0.9) == MODEL.forecast([SLOW, STRANGER], 0.9)


def rewritten(path: Path, **arrays: object) -> None:
    write_model(path, MODEL)
    with np.load(path, allow_pickle=False) as archive:
        known = {name: archive[name] for name in archive.files}
    kept = {name: value for name, value in (known | arrays).items() if value is not None}
    with path.open("wb") as stream:
        np.savez(stream, **kept)


def header(**changes: object) -> "np.ndarray[tuple[int], np.dtype[np.uint8]]":
    info = {"schema_version": SCHEMA_VERSION} | changes
    return np.frombuffer(json.dumps({"info": info, "keys": []}).encode(), dtype=np.uint8)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"header": None}, "found no header"),
        ({"header": header(schema_version=99)}, "schema_version: found 99, expected 1"),
        ({"header": header()}, "info.library: missing"),
        ({"scores": np.zeros(3)}, "scores: found no table"),
        ({"scores": np.full((3, 2), np.nan)}, "scores: found no table"),
        ({"history.logs": np.zeros((9, 9))}, "history: found arrays of other shapes"),
        ({"mean.left": None}, r"found no array mean\.left"),
        ({"mean.left": np.array([0, -1, -1], dtype=np.int32)}, "child is not behind it"),
        ({"quantile1.roots": np.array([7], dtype=np.int32)}, "quantile1: found a root"),
    ],
)
def test_broken_files_are_refused_in_words(tmp_path: Path, arrays: dict[str, object], message: str) -> None:
    path = tmp_path / "model.npz"
    rewritten(path, **arrays)
    with pytest.raises(ConfigError, match=message) as failure:
        read_model(path)
    assert str(path) in str(failure.value)


def test_a_file_with_broken_bytes_is_refused_in_words_or_read(tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    write_model(path, MODEL)
    whole, rng, nrefused = path.read_bytes(), np.random.default_rng(1), 0
    for _ in range(60):
        broken = bytearray(whole)
        for place in rng.integers(0, len(whole), 3).tolist():
            broken[place] = int(rng.integers(256))
        path.write_bytes(broken)
        try:
            read_model(path).forecast([SLOW], 0.9)
        except ConfigError as error:
            assert str(path) in str(error)
            nrefused += 1
    assert nrefused > 20


def test_pickles_and_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    rewritten(path, extra=np.array([{"a": 1}], dtype=object))
    with pytest.raises(ConfigError, match="found no npz archive"):
        read_model(path)
    path.write_text("no archive")
    with pytest.raises(ConfigError, match="found no npz archive"):
        read_model(path)
    np.save(path.with_suffix(".npy"), np.zeros(3))
    with pytest.raises(ConfigError, match="found no npz archive"):
        read_model(path.with_suffix(".npy"))
    with pytest.raises(ConfigError, match="cannot be read"):
        read_model(tmp_path / "absent.npz")

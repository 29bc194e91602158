"""Whether equal arms are told to be equal, in whole simulated campaigns of six launches.

Noise is on the log scale: what a launch adds to all its arms, to each of them, and to each step; a ramp over the random
order of arms in a launch, and a drift from launch to launch. Each campaign is a job of one frame.
"""

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from spanfit.profiler.gains import ArmPair, fit_gains
from spanfit.profiler.statistics import FloatArray, Verdict

ARMS = ("dp-aligned", "misaligned-00", "misaligned-01", "packed")
NODES = {"misaligned-00": "0,2,1,3", "misaligned-01": "0,3,1,2"}
CAMPAIGNS, LAUNCHES, REPETITIONS = 250, 6, 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """Standard deviations of a launch, an arm in it and a step; how steps scatter, drift and stall."""

    launch: float = 0.1
    arm: float = 0.02
    step: float = 0.04
    is_heavy: bool = False
    ramp: float = 0.0
    drift: float = 0.0
    stalls: float = 0.0

    def draw(self, rng: np.random.Generator, sd: float, shape: tuple[int, ...]) -> FloatArray:
        if self.is_heavy:
            return np.asarray(rng.standard_t(3, shape) * sd / math.sqrt(3))
        return rng.normal(0, sd, shape)


MODELS = {
    "normal": Model(),
    "heavy tails": Model(is_heavy=True),
    "drift": Model(ramp=0.05, drift=0.02),
    "stalls": Model(stalls=0.02),
    "steps scatter most": Model(arm=0.0, step=0.1),
}


@cache
def campaigns(name: str, truth: float = 1.0) -> tuple[ArmPair, ...]:
    """Return the pair of arms of each campaign; the second's steps take ``truth`` times as long."""
    model, rng = MODELS[name], np.random.default_rng([*map(ord, name)])
    shape = (CAMPAIGNS, LAUNCHES, len(ARMS), REPETITIONS)
    place = rng.random(shape[:3]).argsort(axis=-1) / (len(ARMS) - 1)
    shared = model.draw(rng, model.launch, (*shape[:2], 1)) + model.drift * np.arange(LAUNCHES)[:, None]
    logs = shared + model.draw(rng, model.arm, shape[:3]) + model.ramp * place
    times_s = 0.4 * np.exp(logs[..., None] + model.draw(rng, model.step, shape))
    times_s[:, :, ARMS.index("packed")] *= truth
    times_s += 0.1 * (rng.random(shape) < model.stalls)
    campaign, launch, arm, repetition = (index.ravel() for index in np.indices(shape))
    names = np.array(ARMS)[arm]
    frame = pd.DataFrame(
        {"operation": [f"campaign-{number:03d}" for number in campaign], "launch": launch, "arm": names}
    )
    frame = frame.assign(case_id=names, repetition=repetition, time_s=times_s.ravel(), status="ok", kind="step")
    frame = frame.assign(compute="wait", nranks=4, comm_id=frame["launch"].astype(str))
    frame["nodes"] = frame["arm"].map(NODES).fillna("0,1,2,3")
    pairs = tuple(pair for job in fit_gains(frame) for pair in job.pairs)
    assert len(pairs) == CAMPAIGNS
    return pairs


def limits(count: int, total: int) -> tuple[float, float]:
    """Return the 99% confidence limits of a share (Clopper and Pearson)."""
    return float(stats.beta.ppf(0.005, count, total - count + 1)), float(
        stats.beta.ppf(0.995, count + 1, total - count)
    )


def holds(pair: ArmPair, truth: float) -> bool:
    assert pair.gain.ci_low is not None and pair.gain.ci_high is not None
    return pair.gain.ci_low <= truth <= pair.gain.ci_high


@pytest.mark.parametrize("name", MODELS)
def test_intervals_of_equal_arms_hold_0_in_93_to_97_of_100(name: str) -> None:
    count = sum(holds(pair, 0.0) for pair in campaigns(name))
    low, high = limits(count, CAMPAIGNS)
    assert low <= 0.97 and high >= 0.93, f"{count} of {CAMPAIGNS}"


@pytest.mark.parametrize("name", MODELS)
def test_hardly_any_equal_arms_are_told_apart_in_a_family(name: str) -> None:
    told = [pair for pair in campaigns(name) if pair.verdict in (Verdict.FASTER, Verdict.SLOWER)]
    assert len(told) <= 2, "corrected over all campaigns, as if they were one"


def test_a_difference_is_covered_and_found() -> None:
    pairs = campaigns("normal", truth=1.15)
    count = sum(holds(pair, 1 / 1.15 - 1) for pair in pairs)
    low, high = limits(count, CAMPAIGNS)
    assert low <= 0.97 and high >= 0.93, f"{count} of {CAMPAIGNS}"
    assert np.mean([not holds(pair, 0.0) for pair in pairs]) > 0.9

"""How often 95% intervals cover the truth in campaigns that stop by themselves, and how wide they are.

Each run simulates one case: rows of repetitions by a noise model, launch after launch, until spanfit's own rule
(spanfit.profiler.stopping) says that the case is done; then spanfit's own interval over the units is looked at. All
noise is on the log scale.

The truth is the median time of a repetition in a fresh communicator of a fresh launch, found from a million draws of
the model; under drift the average of its log over the launches that the run made. The oracle is the interval of an
analyst who knows the variances of launches and units and has the same units: 1.96 standard errors.
"""

import argparse
import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

from spanfit.profiler.statistics import unit_interval
from spanfit.profiler.stopping import Rule, Units

Array = npt.NDArray[np.float64]
RULE = Rule(least=6, most=60, precision=0.05)
REPETITIONS = 5
NORMAL_QUANTILE = 1.959964
DRAWS = 1_000_000
Draw = Callable[[np.random.Generator, tuple[int, ...]], Array]


def normal(sd: float) -> Draw:
    """Return a draw of normal effects."""
    return lambda rng, shape: rng.normal(0, sd, shape)


def heavy(sd: float) -> Draw:
    """Return a draw of Student's t with 3 degrees of freedom, scaled to a standard deviation."""
    return lambda rng, shape: rng.standard_t(3, shape) * sd / math.sqrt(3)


def stalled(sd: float, share: float, factor: float) -> Draw:
    """Return a draw of normal effects of which a share is slower by a factor."""
    return lambda rng, shape: rng.normal(0, sd, shape) + math.log(factor) * (rng.random(shape) < share)


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """What a launch, a communicator and a repetition add to a log time, and how it drifts.

    Attributes
    ----------
    blocks : int
        Communicators a launch.
    drift_per_launch : float
        What each launch adds to the one before.
    ramp : float
        What the last place of a launch's order adds to the first; a case's place is drawn anew in each launch.
    """

    name: str
    launch: Draw
    communicator: Draw
    repetition: Draw
    blocks: int = 1
    drift_per_launch: float = 0.0
    ramp: float = 0.0

    def rows(self, rng: np.random.Generator, nruns: int, nlaunches: int) -> Array:
        """Return log times, of shape (nruns, nlaunches, blocks, repetitions)."""
        shape = (nruns, nlaunches, self.blocks, REPETITIONS)
        place = rng.random((nruns, nlaunches, self.blocks, 1))
        return (
            self.launch(rng, (nruns, nlaunches, 1, 1))
            + self.communicator(rng, (nruns, nlaunches, self.blocks, 1))
            + self.repetition(rng, shape)
            + self.ramp * place
            + self.drift_per_launch * np.arange(nlaunches).reshape(1, -1, 1, 1)
        )


MODELS = (
    Model(name="lognormal", launch=normal(0.07), communicator=normal(0.0), repetition=normal(0.07)),
    Model(name="heavy tails (t3)", launch=heavy(0.07), communicator=heavy(0.04), repetition=heavy(0.1)),
    Model(
        name="10% of repetitions stall (x 2)",
        launch=normal(0.07),
        communicator=normal(0.0),
        repetition=stalled(0.04, 0.1, 2.0),
    ),
    Model(name="launches differ", launch=normal(0.08), communicator=normal(0.0), repetition=normal(0.02)),
    Model(
        name="communicators in launches",
        launch=normal(0.06),
        communicator=normal(0.06),
        repetition=normal(0.05),
        blocks=2,
    ),
    Model(
        name="drift",
        launch=normal(0.06),
        communicator=normal(0.0),
        repetition=normal(0.05),
        drift_per_launch=0.004,
        ramp=0.08,
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """What an analyst who knows the model knows: the median log time, and the variances of launches and units."""

    median: float
    launch_variance: float
    unit_variance: float

    def oracle(self, units: Units) -> float:
        """Return the half width of the oracle's interval for the same launches and units."""
        nunits = sum(map(len, units))
        return NORMAL_QUANTILE * math.sqrt(self.launch_variance / len(units) + self.unit_variance / nunits)


def truth_of(model: Model, rng: np.random.Generator) -> Truth:
    """Return the truth of a model without its drift over launches, from many draws."""
    shape = (DRAWS, 1, 1, 1)
    launch = model.launch(rng, shape)
    place = model.ramp * rng.random(shape)
    communicator = model.communicator(rng, shape)
    row = launch + communicator + place + model.repetition(rng, shape)
    noise = np.median(model.repetition(rng, (DRAWS // REPETITIONS, REPETITIONS)), axis=1)
    unit_variance = float(communicator.var() + place.var() + noise.var())
    return Truth(median=float(np.median(row)), launch_variance=float(launch.var()), unit_variance=unit_variance)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How the runs of a model ended."""

    covered: float
    width_ratio: float
    launches: float
    within: float


def simulate(model: Model, nruns: int, rng: np.random.Generator) -> Outcome:
    """Return what the intervals of many campaigns are worth."""
    truth = truth_of(model, rng)
    covered, ratios, launches, within = [], [], [], []
    for rows in model.rows(rng, nruns, RULE.most):
        units = until_done(np.median(rows, axis=-1))
        estimate = unit_interval(np.ravel(units), np.repeat(np.arange(len(units)), model.blocks))
        assert estimate.ci_low is not None and estimate.ci_high is not None
        target = truth.median + model.drift_per_launch * (len(units) - 1) / 2
        half = (estimate.ci_high - estimate.ci_low) / 2
        covered.append(estimate.ci_low <= target <= estimate.ci_high)
        ratios.append(half / truth.oracle(units))
        launches.append(len(units))
        within.append(half <= math.log1p(RULE.precision or 0))
    return Outcome(
        covered=float(np.mean(covered)),
        width_ratio=float(np.median(ratios)),
        launches=float(np.median(launches)),
        within=float(np.mean(within)),
    )


def until_done(medians: Array) -> Units:
    """Return the units, of shape (launches, blocks), of the launches after which the rule is content."""
    units: Units = ()
    for launch in medians:
        units = (*units, tuple(launch.tolist()))
        if len(units) >= RULE.least and RULE.is_done(units):
            break
    return units


def main() -> None:
    """Simulate every model and print the table and the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="100 runs a model instead of 2,000")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    nruns = 100 if arguments.quick else 2000
    table = Table(title=f"95% intervals after stopping at ±{RULE.precision:.0%}: {nruns} runs a model")
    for column in ("noise", "coverage", "width / oracle's", "median launches", "as narrow as asked", "seconds"):
        table.add_column(column, justify="left" if column == "noise" else "right")
    outcomes = []
    for number, model in enumerate(MODELS):
        started_s = time.monotonic()
        outcome = simulate(model, nruns, np.random.default_rng([arguments.seed, number]))
        outcomes.append(outcome)
        shares = (f"{outcome.covered:.1%}", f"{outcome.width_ratio:.2f}", f"{outcome.launches:.0f}")
        table.add_row(model.name, *shares, f"{outcome.within:.0%}", f"{time.monotonic() - started_s:.1f}")
    Console().print(table)
    figures = {
        "benchmark": "coverage",
        "runs": nruns,
        "low": round(min(outcome.covered for outcome in outcomes), 4),
        "high": round(max(outcome.covered for outcome in outcomes), 4),
        "width_ratio": round(max(outcome.width_ratio for outcome in outcomes), 3),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()

from itertools import pairwise

import numpy as np
import pytest

from spanfit.queue.jct.search import Family, Parameters, Raw, Sample, rolling_splits, search
from spanfit.queue.jct.targets import Target, encoded


def sample(njobs: int = 100) -> Sample:
    """Jobs whose only feature is their place in time; they run ten minutes and more and more."""
    place = np.arange(njobs, dtype=np.float64)
    return Sample(table=place[:, None], runtime_s=600 + 6 * place, limits_s=np.full(njobs, np.nan))


def test_splits_roll_and_never_look_ahead() -> None:
    splits = rolling_splits(sample())
    assert len(splits) == 3
    for split in splits:
        parts = (split.fitted.table, split.smearing.table, split.choosing.table)
        assert all(first.max() < second.min() for first, second in pairwise(parts))
    ends = [split.choosing.table.max() for split in splits]
    assert ends == sorted(ends)
    assert ends[-1] == 99


def constant(seen: list[tuple[Target, float]]) -> Family:
    """An estimator that gives the mean of what it was fitted to, plus a drawn error; it notes what it was asked."""

    def draw(rng: np.random.Generator) -> Parameters:
        return {"error": float(rng.uniform(0, 3))}

    def fit(target: Target, parameters: Parameters, fitted: Sample, seed: int) -> Raw:
        seen.append((target, parameters["error"]))
        values = encoded(target, fitted.runtime_s)
        level = np.log(values.mean()) if target is Target.POISSON else values.mean()
        return lambda table: np.full(len(table), level + parameters["error"])

    return Family(name="constant", draw=draw, fit=fit)


def test_the_draw_with_the_least_error_out_of_time_is_chosen() -> None:
    seen: list[tuple[Target, float]] = []
    chosen = search(constant(seen), rolling_splits(sample()), ndraws=12, seed=1)
    assert len(seen) == 12 * 3
    assert {target for target, _ in seen} == set(Target)
    # smearing undoes any error of a logarithm; elsewhere only small errors can be chosen
    errors = sorted(error for target, error in seen if target is not Target.LOG)
    assert chosen.target is Target.LOG or chosen.parameters["error"] == pytest.approx(errors[0], abs=0.5)


def test_every_target_gets_its_turn_and_the_seed_decides() -> None:
    seen: list[tuple[Target, float]] = []
    first = search(constant(seen), rolling_splits(sample()), ndraws=1, seed=4)
    assert {target for target, _ in seen} == set(Target)
    assert first == search(constant([]), rolling_splits(sample()), ndraws=1, seed=4)

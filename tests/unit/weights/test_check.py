from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache

import numpy as np
import pytest

from spanfit.results.schema import Measurement, RunInfo
from spanfit.weights.check import (
    Aspect,
    Finding,
    State,
    ToMeasure,
    check_against_nodes,
    check_against_run,
    to_measure_again,
)
from spanfit.weights.fit import fit_weights
from spanfit.weights.model import WeightSet
from tests.unit.profiler.factory import MEASUREMENT, RUN, Noise, framed, measured, step_cases
from tests.unit.weights.factory import BY_HAND

NOW = datetime(2026, 1, 20, tzinfo=UTC)
ARMS = {"dp-aligned": 0.486, "pp-aligned": 0.390, "misaligned-00": 0.500, "misaligned-01": 0.550}
RATES = {1: 0.010, 2: 0.012}
QUIET = Noise(launch=0.05, unit=0.002, row=0.002)
LATER = replace(RUN, run_id="20260115-later")


def rows(
    seed: int, arms: dict[str, float] = ARMS, rates: dict[int, float] = RATES, noise: Noise = QUIET
) -> list[Measurement]:
    rng = np.random.default_rng(seed)
    steps = measured(rng, step_cases(arms), noise=noise)
    cases = [(replace(MEASUREMENT, span=span, concurrency="all"), time_s) for span, time_s in rates.items()]
    return steps + measured(rng, cases, noise=replace(noise, launch=noise.unit))


@cache
def weights() -> WeightSet:
    return fit_weights(RUN, framed(rows(1)), created_at="2026-01-03T00:00:00+00:00")


def states(findings: tuple[Finding, ...]) -> dict[tuple[Aspect, str], list[State]]:
    found: dict[tuple[Aspect, str], list[State]] = {}
    for finding in findings:
        found.setdefault((finding.aspect, finding.subject), []).append(finding.state)
    return found


def checked(info: RunInfo, measurements: list[Measurement], now: datetime = NOW) -> tuple[Finding, ...]:
    return check_against_run(weights(), info, framed(measurements), now=now)


def test_what_a_quiet_run_measures_again_holds() -> None:
    findings = checked(LATER, rows(2))
    assert states(findings) == {
        (Aspect.VALIDITY, "time"): [State.HOLDS],
        (Aspect.FABRIC, "kind"): [State.HOLDS],
        (Aspect.LIBRARY, "version"): [State.HOLDS],
        (Aspect.GAIN, "balanced"): [State.HOLDS] * 2,
        (Aspect.RATE, "all_reduce"): [State.HOLDS] * 2,
    }
    assert to_measure_again(weights(), findings).jobs == frozenset()


def test_a_slower_pipeline_is_drift_of_its_gain_alone() -> None:
    findings = checked(LATER, rows(3, {**ARMS, "pp-aligned": 0.43}))
    drifted = [finding for finding in findings if finding.state is State.DRIFTED]
    assert [(finding.aspect, finding.subject) for finding in drifted] == [(Aspect.GAIN, "balanced")]
    assert drifted[0].sentence.startswith("time of pp-aligned over the base: slower: 1")
    wanted = to_measure_again(weights(), findings)
    assert wanted == ToMeasure(jobs=frozenset({("balanced", "wait")}), operations=frozenset())


def test_a_slower_core_is_drift_of_the_collective_across_minipods() -> None:
    findings = checked(LATER, rows(4, rates={1: 0.010, 2: 0.0132}))
    assert states(findings)[Aspect.RATE, "all_reduce"] in ([State.DRIFTED, State.HOLDS], [State.HOLDS, State.DRIFTED])
    assert to_measure_again(weights(), findings).operations == {"all_reduce"}


def test_rates_far_apart_are_of_another_kind_of_fabric() -> None:
    findings = checked(LATER, rows(5, rates={1: 0.010, 2: 0.024}))
    (kind,) = [finding for finding in findings if finding.aspect is Aspect.FABRIC]
    assert (kind.subject, kind.state) == ("all_reduce 1 MiB over 2 minipod", State.DRIFTED)
    assert kind.sentence.startswith("was ") and ", is " in kind.sentence
    assert to_measure_again(weights(), findings).jobs == {("balanced", "wait")}


@pytest.mark.parametrize(
    ("info", "aspect", "sentence"),
    [
        (replace(LATER, gpu_model="H100"), Aspect.FABRIC, "was emulated, is H100"),
        (replace(LATER, truth={}), Aspect.FABRIC, "was emulated, is network"),
        (replace(LATER, backend="nccl", versions={"nccl": "2.21.5"}), Aspect.FABRIC, "was gloo, is nccl"),
        (replace(LATER, versions={"torch": "2.7"}), Aspect.LIBRARY, "was gloo of torch 2.6, is gloo of torch 2.7"),
    ],
)
def test_other_hardware_and_libraries_are_named(info: RunInfo, aspect: Aspect, sentence: str) -> None:
    findings = checked(info, rows(2))
    drifted = [finding for finding in findings if finding.aspect is aspect and finding.state is State.DRIFTED]
    assert [finding.sentence for finding in drifted] == [sentence]
    assert to_measure_again(weights(), findings).operations == {"all_reduce"}


def test_a_library_without_its_version_cannot_be_told() -> None:
    fabric = weights().fabric
    assert fabric is not None
    untold = replace(weights(), fabric=replace(fabric, library="gloo"))
    findings = check_against_run(untold, LATER, framed(rows(2)), now=NOW)
    (library,) = [each for each in findings if each.aspect is Aspect.LIBRARY]
    assert library.state is State.CANNOT_TELL
    assert library.sentence == "was gloo, is gloo of torch 2.6; a version is not told of both"


def test_a_job_that_lost_one_kind_of_groups_is_another_one() -> None:
    described = RUN.spec["jobs"]
    assert isinstance(described, list)
    other = replace(LATER, spec={"jobs": [{**described[0], "activation_bytes": 0}]})
    (finding,) = [each for each in checked(other, rows(2)) if each.aspect is Aspect.GAIN]
    assert finding.state is State.NOT_MEASURED and "sends no activations" in finding.sentence


def test_weights_whose_time_is_over_are_to_be_measured_again_whole() -> None:
    findings = checked(LATER, rows(2), datetime(2026, 6, 1, tzinfo=UTC))
    assert states(findings)[Aspect.VALIDITY, "time"] == [State.DRIFTED]
    wanted = to_measure_again(weights(), findings)
    assert wanted == ToMeasure(jobs=frozenset({("balanced", "wait")}), operations=frozenset({"all_reduce"}))


def test_what_a_run_did_not_measure_is_said_and_wanted() -> None:
    only_steps = [row for row in rows(2) if row.kind == "step" and row.arm != "pp-aligned"]
    findings = checked(LATER, only_steps)
    found = states(findings)
    assert found[Aspect.GAIN, "balanced"] == [State.NOT_MEASURED]
    assert found[Aspect.RATE, "all_reduce"] == [State.NOT_MEASURED] * 2
    assert to_measure_again(weights(), findings).jobs == {("balanced", "wait")}


def test_another_job_of_the_same_name_is_not_compared() -> None:
    described = RUN.spec["jobs"]
    assert isinstance(described, list)
    other = replace(LATER, spec={"jobs": [{**described[0], "gradient_bytes": 1}]})
    (finding,) = [each for each in checked(other, rows(2)) if each.aspect is Aspect.GAIN]
    assert finding.state is State.NOT_MEASURED and "another job of this name" in finding.sentence


def test_too_few_launches_cannot_tell() -> None:
    few = [row for row in rows(2) if row.launch < 1]
    assert Counter(each.state for each in checked(LATER, few) if each.aspect is Aspect.GAIN) == {State.CANNOT_TELL: 2}


def test_weights_by_hand_hold_no_measurements() -> None:
    findings = check_against_run(BY_HAND, LATER, framed(rows(2)), now=NOW)
    assert states(findings) == {
        (Aspect.VALIDITY, "time"): [State.HOLDS],
        (Aspect.FABRIC, "kind"): [State.CANNOT_TELL],
        (Aspect.GAIN, "balanced"): [State.NOT_MEASURED],
    }
    assert to_measure_again(BY_HAND, findings).jobs == frozenset()


@pytest.mark.parametrize(
    ("models", "state"), [({"emulated"}, State.HOLDS), ({"H100"}, State.DRIFTED), ((), State.CANNOT_TELL)]
)
def test_of_nodes_only_their_gpus_are_known(models: set[str], state: State) -> None:
    findings = check_against_nodes(weights(), models, now=NOW)
    assert states(findings) == {
        (Aspect.VALIDITY, "time"): [State.HOLDS],
        (Aspect.FABRIC, "GPU model"): [state],
        (Aspect.GAIN, "all jobs"): [State.CANNOT_TELL],
    }

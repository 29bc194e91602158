import re
from dataclasses import replace

import numpy as np
import pytest

from spanfit.profiler.cases import CaseKey, CaseTimes, case_times
from spanfit.report.prometheus import render_prometheus
from tests.unit.profiler.factory import MEASUREMENT, RUN, failed, framed, measured
from tests.unit.profiler.test_cases import KEY

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\["\\n])*"'
_SAMPLE = re.compile(rf"({_NAME})\{{({_LABEL}(?:,{_LABEL})*)\}} (\S+)")
Labels = frozenset[tuple[str, str]]


def parsed(text: str) -> dict[str, dict[Labels, float]]:
    """Return the samples of each metric; a strict reader of the text format, without timestamps, as node_exporter asks.

    Every metric has its HELP and then its TYPE, once and before its samples, which stand together and are distinct.
    """
    assert text.endswith("\n")
    found: dict[str, dict[Labels, float]] = {}
    lines = iter(text.splitlines())
    name = ""
    for line in lines:
        if line.startswith("#"):
            _, word, name, explanation = line.split(" ", 3)
            assert word == "HELP" and explanation and re.fullmatch(_NAME, name) and name not in found
            assert next(lines) == f"# TYPE {name} gauge"
            found[name] = {}
            continue
        sample = _SAMPLE.fullmatch(line)
        assert sample and sample[1] == name, line
        labels = frozenset(
            (key, unescaped(value)) for key, value in re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', sample[2])
        )
        assert labels not in found[name]
        found[name][labels] = float(sample[3])
    assert all(found.values())
    return found


def unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda match: "\n" if match[1] == "n" else match[1], text)


def case(*logs: float, nfailed: int = 0) -> CaseTimes:
    launches = tuple(range(len(logs)))
    return CaseTimes(unit_logs=np.array(logs), launches=launches, nfailed=nfailed, reason="", resolution=0.0)


def only(samples: dict[Labels, float]) -> tuple[dict[str, str], float]:
    ((labels, value),) = samples.items()
    return dict(labels), value


def test_a_case_has_its_time_and_busbw_in_base_units_with_bounds() -> None:
    metrics = parsed(render_prometheus(RUN, {KEY: case(np.log(0.01), np.log(0.02), np.log(0.04))}))
    labels, time_s = only(metrics["spanfit_time_seconds"])
    assert time_s == pytest.approx(0.02)
    assert labels | {"campaign": "demo", "cluster": "demo", "operation": "all_reduce"} == labels
    assert (labels["size_bytes"], labels["span"], labels["in_place"], labels["rail"]) == ("1048576", "1", "false", "-1")
    _, busbw = only(metrics["spanfit_busbw_bytes_per_second"])
    assert busbw == pytest.approx((1 << 20) / 0.02 * 1.5)
    for stem, unit in (("spanfit_time", "seconds"), ("spanfit_busbw", "bytes_per_second")):
        low, value, high = (only(metrics[f"{stem}{end}_{unit}"])[1] for end in ("_lower", "", "_upper"))
        assert 0 < low < value < high
    assert only(metrics["spanfit_launches"])[1] == 3


def test_a_run_says_which_it_was_and_when_it_ended() -> None:
    metrics = parsed(render_prometheus(RUN, {KEY: case(0.0)}))
    about, value = only(metrics["spanfit_run_info"])
    assert value == 1 and (about["run_id"], about["backend"], about["engine"]) == (RUN.run_id, "gloo", "spanfit")
    assert only(metrics["spanfit_run_end_timestamp_seconds"]) == ({"campaign": "demo", "cluster": "demo"}, 1767323645.0)
    assert "run_id" not in only(metrics["spanfit_time_seconds"])[0]


def test_an_engine_that_no_imported_log_names_is_unknown() -> None:
    about, _ = only(parsed(render_prometheus(replace(RUN, engine=""), {KEY: case(0.0)}))["spanfit_run_info"])
    assert about["engine"] == "unknown"


def test_one_launch_has_no_bounds_and_a_failed_case_no_time_but_both_are_counted() -> None:
    lost = replace(KEY, span=2)
    metrics = parsed(render_prometheus(RUN, {KEY: case(0.0), lost: case(nfailed=7)}))
    assert not [name for name in metrics if "lower" in name or "upper" in name]
    assert len(metrics["spanfit_time_seconds"]) == 1
    by_span = {dict(labels)["span"]: value for labels, value in metrics["spanfit_failed_rows"].items()}
    assert by_span == {"1": 0, "2": 7}
    assert sorted(metrics["spanfit_launches"].values()) == [0, 1]


@pytest.mark.parametrize(
    "key",
    [replace(KEY, operation="barrier"), replace(KEY, kind="step", operation="all_reduce"), replace(KEY, operation="x")],
)
def test_what_moves_nothing_or_is_no_collective_has_no_busbw(key: CaseKey) -> None:
    metrics = parsed(render_prometheus(RUN, {key: case(0.0, 1.0)}))
    assert "spanfit_time_seconds" in metrics and "spanfit_busbw_bytes_per_second" not in metrics


@pytest.mark.parametrize("name", ['quo"te', "back\\slash", "new\nline", "\\n", 'all\\"of\n them\\'])
def test_labels_are_escaped(name: str) -> None:
    metrics = parsed(
        render_prometheus(replace(RUN, campaign=name), {replace(KEY, kind="step", operation=name): case(0.0)})
    )
    labels, _ = only(metrics["spanfit_time_seconds"])
    assert (labels["campaign"], labels["operation"]) == (name, name)


def test_a_whole_run_gives_a_sample_for_each_of_its_cases() -> None:
    wide = replace(MEASUREMENT, span=2)
    rows = [*measured(np.random.default_rng(1), [(MEASUREMENT, 0.02), (wide, 0.04)]), failed(wide)]
    metrics = parsed(render_prometheus(RUN, case_times(framed(rows))))
    assert len(metrics["spanfit_time_lower_seconds"]) == len(metrics["spanfit_busbw_upper_bytes_per_second"]) == 2
    assert sum(metrics["spanfit_failed_rows"].values()) == 1

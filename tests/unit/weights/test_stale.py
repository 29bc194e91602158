from dataclasses import replace
from datetime import UTC, datetime

import pytest

from spanfit.errors import ConfigError
from spanfit.weights.stale import accept, reasons, same_gpu, valid_until
from tests.unit.weights.factory import BY_HAND, WEIGHTS

IN_TIME = datetime(2026, 4, 2, tzinfo=UTC)
TOO_LATE = datetime(2026, 4, 4, tzinfo=UTC)


def test_weights_hold_in_their_time_on_their_gpus() -> None:
    assert reasons(WEIGHTS, now=IN_TIME) == reasons(WEIGHTS, now=IN_TIME, gpu_models={"H100", "h100"}) == ()
    assert reasons(BY_HAND, now=TOO_LATE, gpu_models={"A100"}) == ()


def test_expired_weights_and_those_of_other_gpus_are_stale_each_with_its_reason() -> None:
    (expired,) = reasons(WEIGHTS, now=TOO_LATE)
    assert "valid_until: expired on 2026-04-03" in expired and "weights check" in expired
    (other,) = reasons(WEIGHTS, now=IN_TIME, gpu_models={"H800", "A100"})
    assert "fabric.gpu_model: found NVIDIA H100 80GB HBM3, expected A100, H800" in other
    (mixed,) = reasons(WEIGHTS, now=IN_TIME, gpu_models={"H100", "A100"})
    assert "found NVIDIA H100 80GB HBM3, expected A100, as the nodes have" in mixed and "gpu_model in the job" in mixed
    assert reasons(WEIGHTS, now=TOO_LATE, gpu_models={"A100"}) == (expired, other.replace("A100, H800", "A100"))


def test_an_entry_of_another_gpu_model_is_stale_too() -> None:
    other = replace(WEIGHTS.entries[0], gpu_model="L20")
    (found,) = reasons(WEIGHTS, now=IN_TIME, gpu_models={"H100"}, entry=other)
    assert found.startswith("entry balanced: gpu_model: found L20, expected H100, as the nodes have")
    assert len(reasons(WEIGHTS, now=IN_TIME, gpu_models={"A100"}, entry=WEIGHTS.entries[0])) == 1
    assert len(reasons(BY_HAND, now=IN_TIME, gpu_models={"A100"}, entry=BY_HAND.entries[0])) == 1
    silent = replace(other, gpu_model="")
    assert reasons(BY_HAND, now=IN_TIME, gpu_models={"A100"}, entry=silent) == ()


def test_a_time_without_a_zone_is_utc() -> None:
    assert reasons(replace(WEIGHTS, valid_until="2026-04-03"), now=IN_TIME) == ()
    assert len(reasons(replace(WEIGHTS, valid_until="2026-04-03"), now=TOO_LATE)) == 1


def test_stale_weights_are_refused_unless_accepted() -> None:
    found = reasons(WEIGHTS, now=TOO_LATE, gpu_models={"A100"})
    with pytest.raises(ConfigError) as refused:
        accept("w.json", found, accept_stale=False)
    lines = str(refused.value).splitlines()
    assert [line.partition(": ")[0] for line in lines] == ["w.json", "w.json"]
    assert all("--accept-stale" in line for line in lines)
    assert accept("w.json", found, accept_stale=True) == found
    assert accept("w.json", (), accept_stale=False) == ()


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        ("NVIDIA H100 80GB HBM3", "h100", True),
        ("NVIDIA-H100-80GB-HBM3", "NVIDIA H100 80GB HBM3", True),
        ("H100", "H100 NVL", True),
        ("H100", "H800", False),
        ("NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB", False),
        ("GH200", "H200", False),
        ("cpu", "cpu", True),
    ],
)
def test_names_of_one_gpu_model_are_told_from_those_of_another(a: str, b: str, same: bool) -> None:
    assert same_gpu(a, b) is same_gpu(b, a) is same


def test_weights_hold_for_days_counted_from_a_time() -> None:
    assert valid_until("2026-01-02T03:14:05+00:00", 90) == "2026-04-02T03:14:05+00:00"

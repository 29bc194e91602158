"""The GPU check, as a machine without a registry would run it: this Python, torch and the checkout."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]
GUARD = """import sys

class Absent:
    names = {"click", "rich", "pydantic", "numpy", "pandas", "pyarrow", "scipy", "highspy", "mpi4py", "seaborn"}

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
"""


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> "subprocess.CompletedProcess[str]":
    """Give the check's end where nothing but torch can be imported, in the processes that it starts too."""
    folder = tmp_path_factory.mktemp("guard")
    (folder / "sitecustomize.py").write_text(GUARD)
    return subprocess.run(
        ["make", "-s", "gpu-check", f"PYTHON={sys.executable}"],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(folder), "PYTHONSAFEPATH": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_check_ends_well_with_torch_alone(checked: "subprocess.CompletedProcess[str]") -> None:
    assert checked.returncode == 0, checked.stdout + checked.stderr
    figures = json.loads(checked.stdout.splitlines()[-1])
    assert figures["faults"] == []
    assert figures["cases"] >= 20
    assert figures["seconds"] < 300
    assert list(figures["start_s"]) == ["import_torch", "device_context", "process_group", "first_operation"]
    assert all(rate > 0 for rate in figures["matrix_flop_per_s"].values())
    assert (figures["gpu"] is None) == (not torch.cuda.is_available())


def test_without_a_gpu_the_check_says_so(checked: "subprocess.CompletedProcess[str]") -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    assert checked.stdout.startswith("No GPU here, so nothing of one is checked")
    assert "A world of one on gloo" in checked.stdout


@pytest.mark.gpu
def test_a_gpu_is_timed_by_events_in_batches(checked: "subprocess.CompletedProcess[str]") -> None:
    if not torch.cuda.is_available():
        pytest.skip("no GPU here")
    assert "A world of one on nccl" in checked.stdout
    assert "at once" in checked.stdout
    assert abs(json.loads(checked.stdout.splitlines()[-1])["event_ratio"] - 1) < 0.1

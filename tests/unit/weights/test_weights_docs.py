"""The examples of docs/weights.md that read the file without spanfit, and the weights by hand that it shows."""

import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from spanfit.weights.io import read_weights, sealed, write_weights
from spanfit.weights.model import WeightSet
from tests.unit.weights.factory import BY_HAND, ENTRY, WEIGHTS

PAGE = (Path(__file__).parents[3] / "docs" / "weights.md").read_text()
MINE = replace(ENTRY, job="moe")
VALID = replace(WEIGHTS, entries=(ENTRY, MINE), valid_until="2999-01-01T00:00:00+00:00")


def block(language: str) -> str:
    (text,) = re.findall(rf"```{language}\n(.*?)```", PAGE, re.S)
    assert isinstance(text, str)
    return text


def ran(argv: list[str], weights: WeightSet, folder: Path, change: str = "") -> subprocess.CompletedProcess[str]:
    path = folder / "weights.json"
    write_weights(path, weights)
    if change:
        path.write_text(path.read_text().replace(change, change[::-1]))
    return subprocess.run([*argv, str(path), "moe"], capture_output=True, text=True, check=False)


def check_reader(argv: list[str], folder: Path) -> None:
    """Let an example read good weights, and weights that it must refuse."""
    good = ran(argv, VALID, folder)
    assert (good.returncode, good.stdout) == (0, "0.186 0.814\n")
    by_hand = replace(BY_HAND, entries=(replace(BY_HAND.entries[0], job="moe"),))
    assert ran(argv, by_hand, folder).stdout == good.stdout
    for weights, change, message in (
        (VALID, "0.186", "the file was changed"),
        (replace(VALID, valid_until="2026-01-04T00:00:00+00:00"), "", "expired on 2026-01-04"),
        (replace(VALID, schema_version=3), "", "schema_version 3 is not known"),
    ):
        refused = ran(argv, weights, folder, change)
        assert refused.returncode != 0 and message in refused.stderr


def test_the_example_in_python_reads_weights_and_refuses_what_it_must(tmp_path: Path) -> None:
    (tmp_path / "read.py").write_text(block("python"))
    check_reader([sys.executable, str(tmp_path / "read.py")], tmp_path)


def test_the_lines_for_a_shell_give_alpha_and_the_hash(tmp_path: Path) -> None:
    if missing := [name for name in ("jq", "sed", "sha256sum") if shutil.which(name) is None]:
        pytest.skip(f"no {', '.join(missing)} on PATH to run the lines of docs/weights.md with")
    write_weights(tmp_path / "weights.json", VALID)
    shown = subprocess.run(["sh", "-c", block("sh")], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert shown.stdout.split() == ["0.186", "0.814", "false", sealed(VALID).content_hash, "-"]


def test_the_weights_by_hand_of_the_page_are_read(tmp_path: Path) -> None:
    (tmp_path / "weights.json").write_text(block("json"))
    (entry,) = read_weights(tmp_path / "weights.json").entries
    assert (entry.job, entry.dp, entry.pp, entry.alpha.value) == ("moe", 46, 8, 0.3)

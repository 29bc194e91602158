import shutil
import subprocess
from pathlib import Path

import pytest

from tests.unit.weights.test_weights_docs import block, check_reader


def test_the_example_in_go_reads_weights_and_refuses_what_it_must(tmp_path: Path) -> None:
    if shutil.which("go") is None:
        pytest.skip("no go on PATH to build the example of docs/weights.md with")
    (tmp_path / "read.go").write_text(block("go"))
    subprocess.run(["go", "build", "-o", "read", "read.go"], cwd=tmp_path, check=True)
    check_reader([str(tmp_path / "read")], tmp_path)

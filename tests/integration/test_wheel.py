"""The built wheel works outside the checkout, from files that are in the wheel alone."""

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the bin folder of a new environment that holds the wheel and borrows this one's other libraries."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(CHECKOUT)]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = folder.glob("spanfit-*.whl")
    environment = folder / "venv"
    venv.create(environment, with_pip=False, symlinks=True)
    python = environment / "bin" / "python"
    libraries = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    # A line of a .pth file adds a folder without reading that folder's own .pth files, so not the editable checkout.
    Path(libraries, "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "--no-deps", "--no-index", str(wheel)]
    subprocess.run(pip, check=True, capture_output=True)
    return environment / "bin"


def run(installed: Path, cwd: Path, *argv: str) -> "subprocess.CompletedProcess[str]":
    clean = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    return subprocess.run(
        [str(installed / argv[0]), *argv[1:]], capture_output=True, text=True, cwd=cwd, env=clean, check=False
    )


def test_it_is_imported_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    done = run(installed, tmp_path, "python", "-c", "import spanfit; print(spanfit.__file__)")
    assert Path(done.stdout.strip()).is_relative_to(installed.parent), done.stdout + done.stderr


def test_a_module_of_the_working_folder_does_not_get_in_the_way(installed: Path, tmp_path: Path) -> None:
    for name in ("launch", "results", "weights", "bench", "queue", "units"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('shadowed')")
    done = run(installed, tmp_path, "spanfit", "--version")
    assert (done.returncode, done.stdout) == (0, "spanfit 0.1.0\n")


def test_the_demo_of_the_recorded_campaign_runs_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    done = run(installed, tmp_path, "spanfit", "demo", "--recorded", "--out", "demo")
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "demo" / "report.html").read_text()
    assert "recorded" in page
    assert (tmp_path / "demo" / "weights.json").exists()
    assert (tmp_path / "demo" / "placement.json").exists()

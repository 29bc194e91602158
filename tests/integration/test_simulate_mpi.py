"""Sweeps over MPI processes, in this machine and over hosts, give what one process gives; the commands that show it."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spanfit.errors import ConfigError, ExitCode, LaunchError
from spanfit.launch.fabric import Fabric
from spanfit.launch.mpi import MpirunWorlds, find_mpirun
from spanfit.launch.render.mpi import Mpi
from spanfit.launch.testbed import Testbed
from spanfit.launch.worlds import WorldRequest
from spanfit.topology.model import RankMap
from tests.conftest import make_fabric
from tests.integration.typed import typed

SCENARIO = """
name = "small"
[cluster]
minipods = 3
nodes = 24
[jobs.steady]
shares = { 1 = 0.5, 2 = 0.3, 4 = 0.2 }
median = "20m"
log_sd = 0.8
span = "6h"
load = 0.8
[[announced]]
name = "lpj"
nodes = 12
rows = 4
columns = 3
announced = "2h"
arrives = "3h"
runtime = "30m"
[faults]
between = "100h"
repair = "1h"
"""
SWEEP = ("simulate", "sweep", "--way", "spanfit", "--way", "packing/limit", "--seeds", "3", "--json")


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(SCENARIO)
    return path


@pytest.fixture(scope="module")
def mpirun() -> tuple[str, Mpi]:
    """Give mpirun; skip where there is none, or no mpi4py."""
    pytest.importorskip("mpi4py", reason="mpi4py is missing; install the extra 'mpi'")
    try:
        return find_mpirun()
    except LaunchError as error:
        pytest.skip(str(error))


def world(mpirun: tuple[str, Mpi]) -> list[str]:
    """Return the head of a command line that starts three processes here."""
    program, mpi = mpirun
    options = ["-bind-to", "none"] if mpi is Mpi.MPICH else ["--oversubscribe", "--bind-to", "none"]
    if mpi is Mpi.OPEN_MPI_5:
        options = ["--map-by", ":OVERSUBSCRIBE", "--bind-to", "none"]
    as_root = ["--allow-run-as-root"] if mpi is not Mpi.MPICH and os.geteuid() == 0 else []
    return [program, *as_root, *options, "-n", "3", sys.executable, "-m"]


def result(text: str) -> Any:
    return json.loads(text)


def test_three_ranks_here_give_what_one_process_gives(mpirun: tuple[str, Mpi], scenario: Path) -> None:
    alone = typed(*SWEEP, str(scenario))
    together = subprocess.run(
        [*world(mpirun), "mpi4py.futures", "-m", "spanfit", *SWEEP, str(scenario)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert together.returncode == 0, together.stderr
    assert result(together.stdout) == result(alone.stdout)
    assert len(re.findall(r"^\d of 6: small, ", together.stderr, flags=re.MULTILINE)) == 6


def test_ranks_on_three_hosts_give_what_one_process_gives(
    mpirun: tuple[str, Mpi], bring_up: Callable[[Fabric], Testbed], scenario: Path, tmp_path: Path
) -> None:
    bed = bring_up(make_fabric("sweep", hosts_per_leaf=2, host=1e9, uplink=1e9))
    request = WorldRequest(
        rank_map=RankMap(node_names=tuple(bed.hosts)[:3], ngpus_per_node=1),
        module="mpi4py.futures",
        argv=("-m", "spanfit", *SWEEP, str(scenario)),
        environment={},
        port=29500,
        logs=tmp_path,
    )
    out, err = tmp_path / "out", tmp_path / "err"
    with MpirunWorlds(bed) as worlds:
        code, is_stuck = worlds.execute(request, lambda: False, out, err)
    assert (code, is_stuck) == (0, False), err.read_text()
    assert result(out.read_text()) == result(typed(*SWEEP, str(scenario)).stdout)


def test_ranks_that_would_each_run_everything_are_told_how_to_start(mpirun: tuple[str, Mpi], scenario: Path) -> None:
    done = subprocess.run(
        [*world(mpirun), "spanfit", *SWEEP, str(scenario)], capture_output=True, text=True, check=False
    )
    assert done.returncode == ExitCode.BAD_INPUT
    assert "python -m mpi4py.futures -m spanfit simulate sweep" in done.stderr
    assert "{" not in done.stdout


def test_a_run_prints_both_ways_and_writes_their_figures(scenario: Path, tmp_path: Path) -> None:
    words = ("simulate", "run", str(scenario), "--way", "spanfit", "--way", "paper")
    done = typed(*words, "--figures", str(tmp_path / "figures"))
    assert re.search(r"retention:lpj +│ +[\d.]+% │ +[\d.]+% │", done.stdout)
    written = sorted(path.name for path in (tmp_path / "figures").iterdir())
    assert written == ["calendar-paper.svg", "calendar-spanfit.svg", "delays.svg", "levels-lpj.svg"]
    plain = result(typed(*words, "--json").stdout)
    assert plain["ways"]["spanfit"]["announced"][0]["start_delay_s"] == 0.0
    again = result(typed(*words, "--json").stdout)
    assert plain == again
    assert plain != result(typed(*words, "--json", "--seed", "2").stdout)


def test_a_sweep_prints_means_and_differences_and_writes_delays(scenario: Path, tmp_path: Path) -> None:
    words = ("simulate", "sweep", str(scenario), "--way", "paper", "--way", "easy", "--seeds", "2")
    done = typed(*words, "--figures", str(tmp_path))
    assert "means over 2 seeds with 95% intervals" in done.stdout
    assert "differences to paper, seed by seed" in done.stdout
    assert (tmp_path / "delays-small.svg").read_text().startswith("<svg")


def test_wrong_ways_and_files_are_told(scenario: Path, tmp_path: Path) -> None:
    assert "expected one of spanfit" in typed("simulate", "run", str(scenario), "--way", "fifo", code=2).stderr
    told = typed("simulate", "run", str(scenario), "--way", "spanfit/model", code=2).stderr
    assert "found model, but no predictor" in told
    scenario.write_text(SCENARIO.replace('"6h"', '"long"'))
    with pytest.raises(ConfigError, match=r"jobs\.steady\.span: found 'long'"):
        typed("simulate", "run", str(scenario))


def test_the_example_of_the_help_runs(tmp_path: Path) -> None:
    example = Path(__file__).parents[2] / "examples" / "simulate" / "evening.toml"
    text = example.read_text().replace('span = "20h"', 'span = "20m"').replace('"12h"', '"5m"')
    short = tmp_path / "evening.toml"
    short.write_text(text.replace('"16h"', '"10m"').replace('until = "20h"', 'until = "20m"'))
    figures = result(typed("simulate", "run", str(short), "--json").stdout)
    assert figures["ways"]["spanfit"]["delays"]["njobs"] > 10

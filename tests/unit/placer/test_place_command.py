import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from spanfit import files
from spanfit.cli.place import place
from spanfit.errors import ConfigError, ExitCode
from spanfit.placer.model import SCHEMA_VERSION, Placement
from spanfit.placer.verify import verify
from spanfit.topology.readers.cluster_file import read_cluster
from spanfit.weights import io
from tests.unit.placer.test_place import entry, weights

DATA = Path(__file__).parents[2] / "data" / "place"
ARGUMENTS = (str(DATA / "job.toml"), "--cluster", str(DATA / "cluster.toml"))


def run(*arguments: str) -> Result:
    return CliRunner().invoke(place, [*ARGUMENTS, *arguments])


def write_weights(path: Path, **changes: object) -> str:
    io.write_weights(path, weights(replace(entry("dense", "H100"), **changes)))  # type: ignore[arg-type]
    return str(path)


def test_the_drawing_shows_groups_spreads_bound_and_best_fit() -> None:
    result = run("--alpha", "0.3")
    assert result.exit_code == ExitCode.GOOD
    lines = result.stdout.splitlines()
    assert lines[2:8] == [
        "  rows 0-2  A A",
        "  rows 3-4  B B",
        "  row    5  C C",
        "  A  podA, 6 nodes",
        "  B  podB, 4 nodes",
        "  C  podC, 2 nodes",
    ]
    assert "DP groups: spread 3 (mean 3.00) over 2 groups; best-fit 3" in lines
    assert "objective 1.6 = 0.3 x 3 + 0.7 x 1; bound 1.6; best-fit 2.3" in lines
    assert any(line.startswith("optimal: the 2 pairs of spreads below 1.6 refuted") for line in lines)
    assert any(line.startswith("solved in ") for line in lines)


def test_json_and_the_file_hold_the_same_verified_placement(tmp_path: Path) -> None:
    path = tmp_path / "placement.json"
    result = run("--alpha", "0.3", "--json", "-o", str(path))
    assert json.loads(result.stdout) == json.loads(path.read_text())
    placement = files.read_json(path, Placement, SCHEMA_VERSION)
    verify(placement, read_cluster(DATA / "cluster.toml"))
    assert placement.weights_hash == ""
    assert "placement of job tiny on 12 nodes" in result.stderr


def test_weights_are_taken_with_their_hash_and_warned_about(tmp_path: Path) -> None:
    sound = run("--weights", write_weights(tmp_path / "w.json"), "--json")
    assert sound.stderr == ""
    content = json.loads(sound.stdout)
    assert (content["alpha"], content["beta"]) == (0.5, 0.5)
    assert content["weights_hash"] == io.content_hash(weights(entry("dense", "H100")))
    doubtful = run(
        "--weights",
        write_weights(tmp_path / "w.json", is_flat=True, is_provisional=True, launches=2, dp=3, gpu_model="A100"),
        "--accept-stale",
        "--json",
    )
    assert doubtful.exit_code == ExitCode.GOOD
    for text in (
        "may be anything",
        "provisional",
        "3 x 2 nodes and job tiny has 6 x 2",
        "entry dense: gpu_model: found A100, expected H100",
    ):
        assert text in doubtful.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "give one of --weights FILE and --alpha"),
        (("--alpha", "0.5", "--weights", "w.json"), "give one of --weights FILE and --alpha"),
        (("--alpha", "0.5", "--entry", "dense"), "--entry chooses from --weights"),
        (("--alpha", "0.5", "--json", "--emit", "slurm"), "--json and --emit both print on stdout"),
        (("--alpha", "0.5", "--profile", "site.toml"), "--profile belongs to --emit"),
        (("--alpha", "1.5"), "1.5 is not in the range"),
        (("--alpha", "0.5", "--time-limit", "0"), "0.0 is not in the range"),
    ],
)
def test_wrong_options_are_explained(arguments: tuple[str, ...], message: str) -> None:
    result = run(*arguments)
    assert result.exit_code == ExitCode.BAD_INPUT
    assert message in result.stderr


def test_a_job_that_does_not_fit_ends_with_3(tmp_path: Path) -> None:
    job = tmp_path / "job.toml"
    job.write_text('name = "wide"\ndp = 20\npp = 2\ntp = 8\n')
    code = "from spanfit.cli.main import main; main()"
    command = [sys.executable, "-c", code, "place", str(job), *ARGUMENTS[1:], "--alpha", "0.5"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (ExitCode.INFEASIBLE, "")
    assert "job wide needs 40 nodes of 8 GPUs; cluster small has 16 free" in ended.stderr


def test_rules_reach_the_placement_and_its_file(tmp_path: Path) -> None:
    path = tmp_path / "placement.json"
    result = run("--alpha", "0.3", "--exclude", "a[0-1]", "--pin", "c5", "--spares", "0", "-o", str(path))
    assert result.exit_code == ExitCode.GOOD
    placement = files.read_json(path, Placement, SCHEMA_VERSION)
    verify(placement, read_cluster(DATA / "cluster.toml"))
    assert placement.rules.excluded == ("a0", "a1")
    assert "c5" in placement.rank_map.node_names


def test_explain_says_what_one_more_node_buys() -> None:
    result = run("--alpha", "0.3", "--explain")
    assert result.exit_code == ExitCode.GOOD
    assert "DP groups by spread: 3: 2" in result.stdout
    assert "Minipods, those that limit the objective first" in result.stdout
    assert any("podB" in line and "0.3" in line for line in result.stdout.splitlines()), (
        "six free nodes hold three rows"
    )


def test_a_failed_node_is_mended(tmp_path: Path) -> None:
    path, mended = tmp_path / "placement.json", tmp_path / "mended.json"
    run("--alpha", "0.3", "-o", str(path))
    old = files.read_json(path, Placement, SCHEMA_VERSION)
    cluster = ("--cluster", str(DATA / "cluster.toml"))
    failed = old.rank_map.node_names[0]
    arguments = ("--repair", str(path), "--failed", failed, *cluster, "-o", str(mended), "--time-limit", "1")
    result = CliRunner().invoke(place, arguments)
    assert result.exit_code == ExitCode.GOOD, result.output
    assert f"node rank 0: {failed} -> " in result.stdout
    assert "chosen: " in result.stdout
    new = files.read_json(mended, Placement, SCHEMA_VERSION)
    verify(new, read_cluster(DATA / "cluster.toml"), held=old.rank_map.node_names)
    assert failed not in new.rank_map.node_names


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--alpha", "0.3", "--failed", "a0"), "--failed and --max-moves belong to --repair"),
        (("--repair", "p.json"), "give one of JOB and --repair"),
        (("--alpha", "0.3", "--explain", "--json"), "--explain prints tables"),
        (("--alpha", "0.3", "--explain", "--emit", "slurm"), "--explain prints tables"),
    ],
)
def test_options_that_do_not_go_together_are_refused(arguments: tuple[str, ...], message: str) -> None:
    result = run(*arguments)
    assert result.exit_code == ExitCode.BAD_INPUT
    assert message in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--stage-model", "0=H100"), "found stages 0, expected 0 to 1, each once"),
        (("--stage-model", "H100"), "expected STAGES=MODEL"),
        (("--exclude", "a[0-"), "--exclude: "),
        (("--pin", "a3"), r"pinned: found a3 \(allocated\)"),
        (("--within", "rack"), "within: found rack; expected a tier of small: leaf, minipod, core"),
    ],
)
def test_wrong_rules_are_told(arguments: tuple[str, ...], message: str) -> None:
    result = run("--alpha", "0.3", *arguments)
    assert isinstance(result.exception, ConfigError)
    assert re.search(message, str(result.exception))


def test_a_repair_refuses_what_it_would_leave_aside() -> None:
    arguments = ("--repair", "p.json", "--cluster", "c.toml")
    result = CliRunner().invoke(place, arguments)
    assert (result.exit_code, "--repair needs --failed" in result.stderr) == (ExitCode.BAD_INPUT, True)
    result = CliRunner().invoke(place, (*arguments, "--failed", "a0", "--alpha", "0.5", "--pin", "a1", "--explain"))
    assert result.exit_code == ExitCode.BAD_INPUT
    assert "leave --alpha, --pin, --explain out" in " ".join(result.stderr.split())


def test_the_solver_is_the_one_that_is_asked_for() -> None:
    result = run("--alpha", "0.3", "--solver", "paper", "--json")
    assert result.exit_code == ExitCode.GOOD
    assert json.loads(result.stdout)["solver"].startswith("paper")


def test_nodes_that_a_fabric_leaves_out_are_told_before_placing(tmp_path: Path) -> None:
    tree = tmp_path / "topology.conf"
    tree.write_text(
        "SwitchName=a Nodes=n[01-12]\nSwitchName=b Nodes=n[13-14]\nSwitchName=none Nodes=n[15-16]\n"
        "SwitchName=core Switches=a,b\n"
    )
    result = CliRunner().invoke(place, [str(DATA / "job.toml"), "--cluster", str(tree), "--alpha", "0.3", "--json"])
    assert "warning: placeholder-switch: n[15-16] are under none" in result.stderr

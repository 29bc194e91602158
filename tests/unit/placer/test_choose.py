from pathlib import Path

import pytest
from click.testing import CliRunner

from spanfit import files
from spanfit.bench.job_file import read_training_job
from spanfit.cli.place import place as command
from spanfit.placer.choose import GOALS, Goal, alternatives, goal_key
from spanfit.placer.construct import reaches
from spanfit.placer.model import SCHEMA_VERSION, Placement, column_spreads, row_spreads
from spanfit.placer.solve import solve
from spanfit.placer.verify import verify
from spanfit.profiler.predict.collectives import Library
from spanfit.profiler.predict.parameters import PARAMETERS_VERSION, Parameters, ParametersFile, write_parameters
from spanfit.profiler.predict.step import StepPredictor
from spanfit.topology.readers.cluster_file import read_cluster
from spanfit.topology.readers.cluster_toml import render_cluster
from tests.unit.placer.factories import problem
from tests.unit.placer.test_place import cluster

JOB = """
name = "step"
dp = 4
pp = 3
ngpus_per_node = 1
[step]
model = "tiny"
global_batch = 8
compute = "wait"
flops_per_s = 1e12
"""
FABRIC = ParametersFile(
    schema_version=PARAMETERS_VERSION,
    run_ids=(),
    curves_hashes=(),
    cluster="made",
    cluster_hash="",
    library=Library.NCCL,
    error=0.02,
    residuals=(),
    not_fitted={},
    parameters=Parameters(rates_bytes_per_s={"host": 1e9, "leaf": 1e9, "minipod": 2e8}),
)


def test_alternatives_reach_the_same_spreads() -> None:
    given = problem(8, 4, (10, 9, 9, 8), 0.5)
    grid = solve(given).grid
    found = list(alternatives(grid, given, seed=0, stop=lambda: False))
    assert found[0] == grid
    assert len(set(found)) == len(found)
    assert all(reaches(each, given, max(column_spreads(grid)), max(row_spreads(grid))) for each in found)
    assert next(alternatives(grid, given, seed=0, stop=lambda: True)) == grid


def test_goals_count_in_their_order() -> None:
    given = problem(2, 2, (4, 2, 2), 0.5)
    whole, split = ((0, 0), (0, 0)), ((1, 1), (2, 2))
    assert goal_key(whole, given, (Goal.MINIPODS,)) < goal_key(split, given, (Goal.MINIPODS,))
    assert goal_key(split, given, (Goal.ROOM,)) == goal_key(whole, given, (Goal.ROOM,)), "four nodes stay whole in both"
    assert goal_key(whole, given, GOALS) == (1, 1, -4)


@pytest.mark.parametrize("alpha", ["0.3", "0.7"])
def test_the_predicted_step_is_never_longer_than_without_a_fabric(tmp_path: Path, alpha: str) -> None:
    job, fabric, shape = tmp_path / "job.toml", tmp_path / "fabric.json", tmp_path / "cluster.toml"
    job.write_text(JOB)
    write_parameters(fabric, FABRIC)
    shape.write_text(render_cluster(cluster(5, 5, 4)))
    placements = []
    for name, more in (("plain", ()), ("predicted", ("--fabric", str(fabric)))):
        out = tmp_path / f"{name}.json"
        arguments = [str(job), "--cluster", str(shape), "--alpha", alpha, "-o", str(out), "--time-limit", "0.5", *more]
        result = CliRunner().invoke(command, arguments)
        assert result.exit_code == 0, result.output
        placements.append(files.read_json(out, Placement, SCHEMA_VERSION))
        verify(placements[-1], read_cluster(shape))
    plain, predicted = placements
    predictor = StepPredictor(read_training_job(job), read_cluster(shape), FABRIC)
    assert predicted.objective == plain.objective
    assert predicted.step_s == predictor.step_time_s(predicted.rank_map) <= predictor.step_time_s(plain.rank_map)
    assert "predicted step" in result.stdout
    assert plain.crossing is not None and plain.crossing.total_bytes

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from spanfit import files
from spanfit.bench.job_file import read_training_job
from spanfit.cli.place import place as command
from spanfit.errors import ConfigError
from spanfit.placer.choose import GOALS, OF_BYTES, Goal, Preference, alternatives, goal_key, preferred
from spanfit.placer.construct import reaches
from spanfit.placer.model import (
    SCHEMA_VERSION,
    EdgeBytes,
    Placement,
    PlacementStatus,
    column_spreads,
    objective,
    row_spreads,
)
from spanfit.placer.place import place
from spanfit.placer.solve import solve
from spanfit.placer.traffic import least_traffic
from spanfit.placer.verify import verify
from spanfit.profiler.predict.collectives import Library
from spanfit.profiler.predict.parameters import PARAMETERS_VERSION, Parameters, ParametersFile, write_parameters
from spanfit.profiler.predict.step import StepPredictor
from spanfit.topology.model import RankMap
from spanfit.topology.readers.cluster_file import read_cluster
from spanfit.topology.readers.cluster_toml import render_cluster
from tests.unit.placer.factories import problem
from tests.unit.placer.test_place import cluster
from tests.unit.placer.test_place import job as small_job

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


def test_bytes_come_first_where_the_job_tells_them() -> None:
    given, edges = problem(2, 2, (2, 2), 0.5), EdgeBytes(ring_bytes=100, chain_bytes=1)
    by_column, by_row = ((0, 1), (0, 1)), ((0, 0), (1, 1))
    for goals in (OF_BYTES, OF_BYTES[::-1]):
        assert goal_key(by_column, given, goals, edges) == (2, 2)
        assert goal_key(by_row, given, (*goals, *GOALS), edges)[:2] == (400, 400)
    assert goal_key(by_row, given, GOALS) == goal_key(by_column, given, GOALS)


def test_a_tolerance_trades_objective_for_traffic() -> None:
    """Two rings of twelve in columns of 100: at (2, 2) all cross, at (2, 4) most stay in a minipod."""
    given = problem(100, 12, (264,) * 5, 12 * 100 / (12 * 100 + 100))
    edges = EdgeBytes(ring_bytes=100, chain_bytes=1)
    grid = solve(given).grid
    strict, lax = (
        preferred(grid, given, Preference(goals=(*OF_BYTES, *GOALS), edges=edges, tolerance=tolerance), seed=0)
        for tolerance in (0.0, 0.1)
    )
    assert objective(strict, given) == pytest.approx(objective(grid, given))
    assert objective(lax, given) <= 1.1 * objective(grid, given) + 1e-9
    few, many = (least_traffic(each, 5, edges).total_bytes for each in (lax, strict))
    assert few < 0.7 * many


def test_what_a_tolerance_gives_up_is_told_by_the_bound() -> None:
    spec = replace(small_job(8, 4), edges=EdgeBytes(ring_bytes=1000, chain_bytes=1))
    given_cluster = cluster(9, 9, 9, 9)
    strict = place(spec, given_cluster, alpha=0.2, beta=0.8)
    lax = place(spec, given_cluster, alpha=0.2, beta=0.8, tolerance=10.0)
    verify(lax, given_cluster)
    assert strict.status is PlacementStatus.OPTIMAL
    assert lax.crossing is not None and strict.crossing is not None
    few, many = lax.crossing.total_bytes, strict.crossing.total_bytes
    assert few is not None and many is not None and few < many
    assert lax.status is PlacementStatus.FEASIBLE and lax.bound == strict.objective < lax.objective


def test_the_predicted_step_may_choose_other_spreads_within_a_tolerance() -> None:
    given_cluster = cluster(9, 9, 9, 9)
    pods = {node.name: given_cluster.minipod(node) for node in given_cluster.nodes}

    def minipods(rank_map: RankMap) -> float:
        """A step that gets longer with every stage that is not alone in its minipods."""
        stages = [{pods[name] for name in rank_map.node_names[start : start + 8]} for start in range(0, 32, 8)]
        return float(sum(map(len, stages)))

    strict, lax = (
        place(small_job(8, 4), given_cluster, alpha=0.2, beta=0.8, step_time_s=minipods, tolerance=tolerance)
        for tolerance in (0.0, 2.0)
    )
    verify(lax, given_cluster)
    assert (max(lax.dp_spreads), max(lax.pp_spreads)) == (1, 4)
    assert lax.step_s == 4
    assert strict.step_s is not None and strict.step_s > 4
    assert lax.bound == strict.objective


def test_goals_of_bytes_need_bytes() -> None:
    with pytest.raises(ConfigError, match=r"traffic for job .* does not tell what a step moves"):
        place(small_job(6, 2), cluster(8, 8), alpha=0.3, beta=0.7, goals=(Goal.TRAFFIC,))
    with pytest.raises(ConfigError, match=r"tolerance is -0\.1"):
        place(small_job(6, 2), cluster(8, 8), alpha=0.3, beta=0.7, tolerance=-0.1)


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

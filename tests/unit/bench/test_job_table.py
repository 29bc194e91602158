import json
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from spanfit import files
from spanfit.bench.arms import Arm, moved
from spanfit.bench.campaign_file import CampaignFile
from spanfit.bench.case import BenchCase, CaseKind
from spanfit.bench.groups import NodeTree
from spanfit.bench.job_file import read_models
from spanfit.bench.job_inputs import PLACEMENT_VERSION, JobInputs, PlacedRanks, PlacementFile, read_job_inputs
from spanfit.bench.job_table import JobTable
from spanfit.bench.plan import plan_cases
from spanfit.errors import ConfigError
from spanfit.placer.model import SCHEMA_VERSION
from spanfit.workload.dtypes import Dtype
from spanfit.workload.job import StepJob, TrainingJob
from spanfit.workload.program import ComputeMode
from spanfit.workload.schedules import Schedule

HEAD = 'name = "c"\ncluster = "cluster.toml"\n[launch]\nlauncher = "ssh"\n'
VOLUMES = (
    '[[jobs]]\nname = "j"\ndp = 4\npp = 2\nmicrobatches = 4\nactivation = "64K"\ngradient = "2M"\n'
    'forward = "6ms"\nbackward = "12ms"\n'
)
MODEL = '[[jobs]]\nname = "m"\ndp = 4\npp = 2\nmodel = "tiny"\nglobal_batch = 16\n'
TREE = NodeTree(tiers=("minipod", "core"), fabric=(("m0", "core"),) * 4 + (("m1", "core"),) * 4)
NODES = tuple(f"n{index}" for index in range(8))


def campaign_of(text: str, head: str = HEAD) -> CampaignFile:
    return files.parse(CampaignFile, tomllib.loads(head + text), "c.toml")


def table_of(text: str) -> JobTable:
    (table,) = campaign_of(text).jobs
    return table


def steps_of(text: str, head: str = HEAD, **inputs: object) -> list[BenchCase]:
    known = JobInputs(node_names=NODES, models={"": read_models()}, **inputs)  # type: ignore[arg-type]
    cases = plan_cases(campaign_of(text, head), TREE, known)
    return [case for case in cases if case.kind is CaseKind.STEP]


def test_volumes_give_a_step_job_and_a_model_a_training_job() -> None:
    job = table_of(VOLUMES).job({})
    assert isinstance(job, StepJob)
    assert (job.activation_bytes, job.forward_s, job.schedule, job.compute) == (65536, 0.006, "gpipe", "wait")
    text = MODEL + 'tp = 2\nbuckets = 2\ndtype = "float32"\nschedule = "gpipe"\n'
    trained = table_of(text + 'compute = "none"\nmessage_divisor = 64\n').job(read_models())
    assert isinstance(trained, TrainingJob)
    assert trained.layout.tp == 2
    assert (trained.nmicrobatches, trained.dtype, trained.gradient_dtype) == (4, Dtype.FLOAT32, Dtype.FLOAT32)
    assert (trained.schedule, trained.compute, trained.message_divisor) == (Schedule.GPIPE, ComputeMode.NONE, 64)
    assert table_of(MODEL).job(read_models()).compute is ComputeMode.PRODUCTS


def test_the_torch_engine_is_stored_where_compute_is() -> None:
    job = table_of(MODEL + 'engine = "torch"\ndtype = "float32"\n').job(read_models())
    assert job.compute is ComputeMode.TORCH
    with pytest.raises(ValueError, match="tp: found 2, expected 1"):
        table_of(MODEL + 'engine = "torch"\ntp = 2\n').job(read_models())


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (
            VOLUMES.replace('gradient = "2M"\n', "") + 'tp = 2\nschedule = "interleaved"\ncompute = "products"\n',
            [
                "gradient: missing; a job needs microbatches, activation",
                "tp: found 2, which only a job with a model has",
                "schedule: found interleaved, which only a job with a model has",
                "compute: found products, whose shapes only a model gives",
            ],
        ),
        (VOLUMES + 'engine = "torch"\n', ["engine: found torch, which trains a model"]),
        (
            MODEL.replace("global_batch = 16\n", "") + 'activation = "1M"\ncompute = "torch"\nmoves = -1\n',
            [
                "activation: found 1048576 beside model",
                "global_batch: missing",
                "compute: found torch, expected products, wait or none",
                "moves: found -1",
            ],
        ),
        (
            MODEL + 'engine = "torch"\ncompute = "wait"\nmessage_divisor = 2\nctas = [8]\n',
            [
                "compute: found wait with engine torch",
                "message_divisor: found 2 with engine torch",
                "ctas: found [8] with engine torch",
            ],
        ),
    ],
)
def test_a_table_that_contradicts_itself_is_refused_with_every_reason(text: str, lines: list[str]) -> None:
    with pytest.raises(ConfigError) as refused:
        campaign_of(text)
    told = str(refused.value).splitlines()
    assert len(told) == len(lines)
    for found, line in zip(told, lines, strict=True):
        assert found.startswith(f"c.toml: jobs[0]: {line}")


def test_what_a_model_or_the_nodes_do_not_allow_is_told_for_each_job_at_once() -> None:
    text = MODEL + "fsdp = 2\n" + MODEL.replace('"m"', '"other"').replace("tiny", "huge")
    with pytest.raises(ValueError) as refused:
        steps_of(text)
    fsdp, huge = str(refused.value).splitlines()
    assert fsdp.startswith("job m: fsdp: found 2 with pp = 2")
    assert huge.startswith("job other: model: found 'huge', expected one of deepseek-v3")
    with pytest.raises(ValueError, match="job m: tp x cp is 2; expected a divisor of the 1 GPUs of a node"):
        steps_of(MODEL + "tp = 2\n")
    two_a_node = HEAD + "ranks_per_node = 2\n"
    with pytest.raises(ValueError, match="job m: order 'pp-tp-cp-ep-dp' puts cells"):
        steps_of(MODEL.replace("dp = 4", "dp = 8") + 'order = "pp-tp-cp-ep-dp"\n', two_a_node)


def test_a_job_fills_nodes_with_tp_and_replicas() -> None:
    two_a_node = HEAD + "ranks_per_node = 2\n"
    tp = steps_of(MODEL + "tp = 2\n", two_a_node)
    replicas = steps_of(MODEL.replace("dp = 4", "dp = 8"), two_a_node)
    assert [case.arm for case in tp] == [case.arm for case in replicas]
    assert [case.groups for case in tp] == [case.groups for case in replicas]
    assert {len(case.groups[0]) for case in tp} == {8}
    assert tp[0].size_bytes < replicas[0].size_bytes


def test_a_job_of_one_kind_of_groups_has_its_ring_in_every_order_and_an_aligned_arm_where_it_fits() -> None:
    cases = {case.arm: case for case in steps_of(MODEL.replace("pp = 2", "pp = 1") + "fsdp = 2\n")}
    assert list(cases) == ["dp-aligned", "packed", "misaligned-00", "misaligned-01", "misaligned-02"]
    assert cases["dp-aligned"].groups == ((0, 1, 2, 3),)
    assert {arm: case.span for arm, case in cases.items()} == {arm: 1 + (arm != "dp-aligned") for arm in cases}
    pipeline = steps_of(MODEL.replace("pp = 2", "pp = 8").replace("dp = 4", "dp = 1"))
    assert not {"dp-aligned", "pp-aligned"} & {case.arm for case in pipeline}


def test_moves_shuffle_the_nodes_of_aligned_arms_inside_minipods() -> None:
    cases = {case.arm: case.groups[0] for case in steps_of(VOLUMES + "moves = 3\n")}
    for arm in ("dp-aligned", "pp-aligned"):
        seatings = [cases[f"{arm}-moved-{index:02d}"] for index in range(3)]
        assert len({cases[arm], *seatings}) == 4
        for seats in seatings:
            assert sorted(seats) == list(range(8))
            assert [seat // 4 for seat in seats] == [seat // 4 for seat in cases[arm]]
    with pytest.raises(ValueError, match="moves: found 0 ways to move nodes of x inside minipods, not 1"):
        moved(Arm(name="x", node_ranks=(0, 1)), [(0,), (1,)], 1, 0)


PLACED = PlacementFile(
    schema_version=PLACEMENT_VERSION,
    rank_map=PlacedRanks(node_names=tuple(f"n{index}" for index in (7, 5, 3, 1, 0, 2, 4, 6))),
    cells=tuple((row, column) for column in range(2) for row in range(4)),
)


def test_a_placement_is_an_arm_called_by_its_file() -> None:
    *_, last = steps_of(VOLUMES + 'placements = ["best/mine.json"]\n', placements={"best/mine.json": PLACED})
    assert last.arm == "mine"
    # Its cells are given column by column; a case has them row by row.
    assert last.groups == ((7, 0, 5, 2, 3, 4, 1, 6),)


@pytest.mark.parametrize(
    ("placement", "name", "line"),
    [
        (replace(PLACED, cells=PLACED.cells[::-1][:7]), "a.json", "a.json is no placement of 4 x 2 nodes"),
        (
            replace(PLACED, rank_map=PlacedRanks(node_names=("x", *PLACED.rank_map.node_names[1:]))),
            "a.json",
            "a.json uses x; expected nodes of the campaign",
        ),
        (PLACED, "packed.json", "packed is the name of another arm; rename the file"),
    ],
)
def test_a_placement_of_something_else_is_refused(placement: PlacementFile, name: str, line: str) -> None:
    with pytest.raises(ValueError, match=f"job j: placements: {line}"):
        steps_of(VOLUMES + f'placements = ["{name}"]\n', placements={name: placement})


def test_files_that_jobs_name_are_read_and_every_mistake_of_them_told(tmp_path: Path) -> None:
    document = {"schema_version": SCHEMA_VERSION, "objective": 1.0, "rank_map": {"node_names": ["a"], "ngpus": 8}}
    (tmp_path / "p.json").write_text(json.dumps(document | {"cells": [[0, 0]]}))
    table = table_of(VOLUMES + 'placements = ["p.json"]\n')
    read = read_job_inputs([table], tmp_path, NODES)
    assert read.placements["p.json"].rank_map.node_names == ("a",)
    assert read.models == {}
    with pytest.raises(ValueError):
        read.arms(table, 4, 2)
    (tmp_path / "p.json").write_text(json.dumps(document))
    with pytest.raises(ConfigError) as refused:
        read_job_inputs([table, table_of(MODEL + 'models = "none.toml"\n')], tmp_path, NODES)
    told = str(refused.value)
    assert "p.json: cells: missing" in told
    assert "none.toml: cannot be read" in told

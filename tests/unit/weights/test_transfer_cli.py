import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from spanfit.bench.job_file import read_training_job
from spanfit.cli.weights import weights
from spanfit.errors import ConfigError, ExitCode, FitError
from spanfit.profiler.predict.parameters import write_parameters
from spanfit.results.schema import Measurement
from spanfit.results.store import Store
from spanfit.topology.readers.cluster_toml import render_cluster
from spanfit.weights.io import read_weights, write_weights
from spanfit.weights.model import SCHEMA_VERSION, Source, WeightEntry, WeightSet
from spanfit.weights.volumes import volumes_of
from tests.unit.profiler.factory import MEASUREMENT, RUN
from tests.unit.profiler.predict.factory import cluster, fabric
from tests.unit.weights.test_scaling import bare, entry

PLACE = Path(__file__).parents[2] / "data" / "place"
JOB = """name = "new"
dp = 8
pp = 2
tp = 2
ngpus_per_node = 2
gpu_model = "H800"
[step]
model = "gpt-2"
global_batch = 32
"""
CAMPAIGN = """name = "steps"
cluster = "cluster.toml"
[launch]
launcher = "ssh"
[[jobs]]
name = "balanced"
dp = 4
pp = 2
microbatches = 2
activation = "64K"
gradient = "256K"
forward = "6ms"
backward = "12ms"
"""


def ran(*arguments: object) -> Result:
    return CliRunner().invoke(weights, [str(argument) for argument in arguments])


def known(folder: Path, *entries: WeightEntry) -> Path:
    path = folder / "known" / "weights.json"
    write_weights(path, WeightSet(schema_version=SCHEMA_VERSION, entries=entries))
    return path


@pytest.fixture
def job(tmp_path: Path) -> Path:
    (tmp_path / "job.toml").write_text(JOB)
    return tmp_path / "job.toml"


def like(job: Path, name: str, factor: float = 1.0) -> WeightEntry:
    """Return an entry whose r2 is a multiple of the job's."""
    volumes = volumes_of(read_training_job(job), 2)
    found = entry(0.3, 0.3)
    return replace(
        found, job=name, volumes=replace(volumes, r2=factor * volumes.r2, dp_bytes=factor * volumes.dp_bytes)
    )


def test_match_takes_the_nearest_job_and_says_what_the_others_are_for(job: Path, tmp_path: Path) -> None:
    other = replace(like(job, "elsewhere"), gpu_model="L20")
    folder = known(tmp_path, like(job, "near", 1.2), like(job, "off", 2.5), other).parent
    shown = ran("match", job, "--known", folder)
    assert shown.exit_code == 0, shown.output
    assert "left out elsewhere: measured on L20" in shown.stderr
    assert "by logs (near); volumes alone give" in shown.stdout
    assert "leave one out" in shown.stdout
    document = json.loads(ran("match", job, "--known", folder, "--method", "paper", "--json").stdout)
    assert (document["match"]["nearest"]["job"], document["match"]["method"]) == ("near", "paper")
    assert (document["dp"], document["pp"], document["campaign"]) == (8, 2, None)
    assert [each["method"] for each in document["leave_one_out"]] == ["paper", "logs"]
    assert (document["sources"], document["accepted_stale"]) == (["measured"], [])


def test_match_mixes_sources_only_where_that_is_asked_for(job: Path, tmp_path: Path) -> None:
    told = replace(like(job, "told", 1.2), source=Source.PREDICTED)
    folder = known(tmp_path, told, like(job, "near", 2.0)).parent
    shown = ran("match", job, "--known", folder)
    assert "left out told: predicted, not measured" in shown.stderr and "by logs (near)" in shown.stdout
    both = ran("match", job, "--known", folder, "--source", "measured", "--source", "predicted")
    assert "by logs (told)" in both.stdout and "predicted" in both.stdout


def test_match_records_stale_weights_that_it_used(job: Path, tmp_path: Path) -> None:
    path = tmp_path / "old.json"
    over = WeightSet(schema_version=SCHEMA_VERSION, entries=(like(job, "near"),), valid_until="2026-01-01")
    write_weights(path, over)
    assert "valid_until: expired" in str(ran("match", job, "--known", path).exception)
    accepted = json.loads(ran("match", job, "--known", path, "--accept-stale", "--json").stdout)["accepted_stale"]
    assert len(accepted) == 1 and "valid_until: expired" in accepted[0]


def test_match_far_from_everything_known_names_the_campaign_that_would_tell(job: Path, tmp_path: Path) -> None:
    path = known(tmp_path, like(job, "far", 50.0))
    shown = ran("match", job, "--known", path)
    assert shown.exit_code == 0, shown.output
    assert "not told" in shown.stdout
    text = " ".join(shown.stdout.split())
    assert "new is far from everything known: r1 or r2 of the closest entry is 50.0 times off" in text
    assert "The cheapest campaign that would tell: 2 minipods of 4 nodes, 6 launches" in text


def test_match_refuses_what_it_cannot_use(job: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert "found no .json file" in str(ran("match", job, "--known", tmp_path / "empty").exception)
    path = known(tmp_path, like(job, "near"))
    few = ran("match", job, "--known", path, "--method", "regression")
    assert "found 1 that count, expected at least 8 for a regression" in str(few.exception)
    job.write_text(JOB.replace('gpu_model = "H800"\n', ""))
    assert "gpu_model: missing" in str(ran("match", job, "--known", path).exception)
    assert ran("match", job, "--known", path, "--gpu-model", "H800").exit_code == 0


def test_compare_ends_with_a_finding_where_sources_disagree(job: Path, tmp_path: Path) -> None:
    measured = known(tmp_path, entry(0.3, 0.3))
    path = tmp_path / "hand.json"
    by_hand = replace(entry(0.3, 0.3), source=Source.HAND, alpha=bare(0.9), beta=bare(0.1))
    write_weights(path, WeightSet(schema_version=SCHEMA_VERSION, entries=(by_hand,)))
    apart = ran("compare", measured, path)
    assert apart.exit_code == ExitCode.FINDING
    assert "1 of 3 disagree beyond their intervals" in apart.stdout
    same = ran("compare", measured, measured, "--json")
    assert same.exit_code == ExitCode.GOOD
    assert [each["is_apart"] for each in json.loads(same.stdout)["differences"]] == [False] * 3


def test_sensitivity_gives_exact_ranges_and_says_whether_alpha_is_known_well_enough(tmp_path: Path) -> None:
    arguments = ("sensitivity", PLACE / "job.toml", "--cluster", PLACE / "cluster.toml")
    found = json.loads(ran(*arguments, "--json").stdout)
    assert (found["ranges"][0]["low"], found["ranges"][-1]["high"]) == (0.0, 1.0)
    assert all(each["is_proven"] for each in found["ranges"])
    path = known(tmp_path, replace(entry(0.1, 0.3), gpu_model="H100"))
    shown = ran(*arguments, "--weights", path)
    assert shown.exit_code == 0, shown.output
    assert "alpha = 0.250 [0.150, 0.350]: the placement stays the same from 0 to" in shown.stdout
    assert "measuring alpha better" in " ".join(shown.stdout.split())
    document = json.loads(ran(*arguments, "--weights", path, "--json").stdout)
    assert (document["alpha"]["value"], document["accepted_stale"]) == (0.25, [])
    other = known(tmp_path, replace(entry(0.1, 0.3), gpu_model="L20"))
    assert "gpu_model: found L20, expected H100" in str(ran(*arguments, "--weights", other).exception)
    accepted = json.loads(ran(*arguments, "--weights", other, "--accept-stale", "--json").stdout)["accepted_stale"]
    assert len(accepted) == 1
    assert "--entry chooses from" in ran(*arguments, "--entry", "moe").output
    assert "give one of" in ran(*arguments, "--weights", path, "--alpha", "0.3").output


SEATS = {
    "dp-aligned": "0,2,1,3",
    "packed": "0,3,1,2",
    "pp-aligned": "0,1,2,3",
    "misaligned-00": "0,2,3,1",
    "misaligned-01": "0,3,2,1",
}


def steps(seats: dict[str, str]) -> list[Measurement]:
    step = replace(MEASUREMENT, kind="step", operation="balanced", compute="wait", span=2, rank_order="job")
    times_s = {"dp-aligned": 1.3, "packed": 1.31, "pp-aligned": 1.1}
    return [
        replace(
            step, arm=arm, nodes=nodes, launch=launch, comm_id=str(launch), time_s=times_s.get(arm, 1.4) + launch / 100
        )
        for arm, nodes in seats.items()
        for launch in range(6)
    ]


def test_kinds_weighs_what_spreads_tell_apart(tmp_path: Path) -> None:
    Store(tmp_path).write(RUN, steps(SEATS))
    arguments = ("kinds", "latest", "--store", tmp_path, "--job", "balanced", "--kind", "pp")
    shown = ran(*arguments, "--kind", "dp", "--json")
    assert shown.exit_code == 0, shown.output
    pp, dp = json.loads(shown.stdout)["fits"]["wait"]["kinds"]
    assert pp["weight"]["value"] > 0.5 > dp["weight"]["value"]
    assert pp["weight"]["value"] + dp["weight"]["value"] == pytest.approx(1)
    assert "unexplained" in ran(*arguments, "--kind", "dp").stdout
    together = ran(*arguments, "--kind", "ep").exception
    assert isinstance(together, FitError)
    assert "spreads of ep: found the same in all 5 placements" in str(together)
    unknown = ran(*arguments[:4], "--job", "other", "--kind", "pp").exception
    assert "job other: found steps of balanced; name one of these" in str(unknown)


def test_predict_writes_weights_that_compare_and_place_can_read(tmp_path: Path) -> None:
    (tmp_path / "cluster.toml").write_text(render_cluster(cluster()))
    (tmp_path / "campaign.toml").write_text(CAMPAIGN)
    write_parameters(tmp_path / "fabric.json", fabric())
    output = tmp_path / "predicted.json"
    arguments = ("predict", tmp_path / "campaign.toml", "--fabric", tmp_path / "fabric.json", "-o", output)
    shown = ran(*arguments, "--draws", "1")
    assert shown.exit_code == 0, shown.output
    (found,) = read_weights(output).entries
    assert (found.source, found.dp, found.pp) == (Source.PREDICTED, 4, 2)
    # The cluster's file does not tell its GPUs, which is any model and not one called unknown.
    assert found.gpu_model == ""
    assert [each.arm for each in found.removed] == ["dp-aligned", "pp-aligned"]
    assert "balanced" in shown.stdout and "4 x 2" in shown.stdout
    assert ran("compare", output, output).exit_code == ExitCode.GOOD
    named = ran(*arguments, "--draws", "1", "--json")
    assert json.loads(named.stdout) == json.loads(output.read_text())


def test_predict_leaves_variants_of_jobs_to_be_measured(tmp_path: Path) -> None:
    (tmp_path / "cluster.toml").write_text(render_cluster(cluster()))
    launch = CAMPAIGN.replace("[launch]", 'backend = "nccl"\n[launch]')
    (tmp_path / "campaign.toml").write_text(f"{launch}ctas = [0, 8]\n")
    write_parameters(tmp_path / "fabric.json", fabric())
    output = tmp_path / "predicted.json"
    arguments = ("predict", tmp_path / "campaign.toml", "--fabric", tmp_path / "fabric.json", "-o", output)
    shown = ran(*arguments, "--draws", "1")
    assert shown.exit_code == 0, shown.output
    assert [entry.job for entry in read_weights(output).entries] == ["balanced"]


def test_predict_needs_a_job_of_both_kinds(tmp_path: Path) -> None:
    (tmp_path / "cluster.toml").write_text(render_cluster(cluster()))
    (tmp_path / "campaign.toml").write_text(CAMPAIGN.replace("pp = 2", "pp = 1").replace("dp = 4", "dp = 8"))
    write_parameters(tmp_path / "fabric.json", fabric())
    arguments = ("predict", tmp_path / "campaign.toml", "--fabric", tmp_path / "fabric.json", "-o", tmp_path / "w.json")
    refused = ran(*arguments).exception
    assert isinstance(refused, ConfigError)
    assert "found no job with both DP and PP groups" in str(refused)

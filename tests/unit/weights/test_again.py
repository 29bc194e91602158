import json
import tomllib
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanfit import files
from spanfit.bench.campaign_file import CampaignFile
from spanfit.bench.job_file import read_models
from spanfit.bench.noise import Mix, NoiseTable, PlacementClass
from spanfit.errors import ConfigError
from spanfit.profiler.campaign import Campaign
from spanfit.results.schema import RunInfo
from spanfit.weights import again
from spanfit.weights.fit import run_jobs
from spanfit.workload.job import Job, TrainingJob
from spanfit.workload.models import Model
from tests.unit.profiler.factory import RUN
from tests.unit.workload.factory import job

CAMPAIGN = """
name = "demo"
cluster = "cluster.toml"
nodes = "n[0-3]"
seed = 7
launches = 3

[launch]
launcher = "testbed"
testbed = "testbed.toml"
environment = { GLOO_SOCKET_IFNAME = "eth0" }

[collectives]
operations = ["all_reduce", "all_gather"]
sizes = ["64K", "1M"]
nodes_per_group = 2
spans = [1, 2]
rank_orders = ["sorted", "alternating"]
repetitions = 2

[startup]
nodes_per_group = [4]
"""


def mine(tp: int = 1) -> TrainingJob:
    described = job(dp=4, pp=2, tp=tp, microbatches=4)
    return replace(described, name="other", model=replace(described.model, name="mine"))


def run_of(*jobs: Job) -> RunInfo:
    campaign = files.plain(files.parse(CampaignFile, tomllib.loads(CAMPAIGN), "campaign"))
    described = [json.loads(json.dumps(asdict(each))) for each in jobs]
    return replace(RUN, spec={**campaign, "jobs": described or RUN.spec["jobs"]})


def written(info: RunInfo, *operations: str) -> tuple[CampaignFile, again.Again]:
    found = again.campaign_again(
        info, list(run_jobs(info).values()), operations, repetitions=4, models_file="again.models.toml"
    )
    return files.parse(CampaignFile, tomllib.loads(again.render_campaign(found)), "again"), found


def test_the_campaign_holds_the_few_cases_and_is_read_back() -> None:
    info = run_of()
    campaign, found = written(info, "all_gather")
    assert campaign == found.campaign
    assert (campaign.name, campaign.launches, campaign.seed, campaign.nodes) == ("demo-again", 6, 7, "n[0-3]")
    assert campaign.launch.environment == {"GLOO_SOCKET_IFNAME": "eth0"}
    assert campaign.startup is None and campaign.collectives is not None
    sweep = campaign.collectives
    assert (sweep.operations, sweep.sizes, sweep.spans, sweep.rank_orders) == (
        *(("all_gather",), (1 << 20,), (1, 2), ("sorted",)),
    )
    (table,) = campaign.jobs
    assert table.job({}) == run_jobs(info)["balanced", "wait"]
    assert table.repetitions == 4


def test_variants_of_a_job_and_their_noise_are_not_measured_again() -> None:
    noise = NoiseTable(name="busy", mix=Mix("equal"), nodes=(2,), placement=(PlacementClass("leaf"),), utilisation=0.5)
    variants = [replace(mine(), name=name) for name in ("other", "other+busy", "other@cta-4")]
    info = run_of(*variants)
    info = replace(info, spec={**info.spec, "noise": [files.plain(noise) | {"drawn": {}, "used": 0.5}]})
    campaign, _ = written(info)
    assert campaign.noise == ()
    assert [(table.name, table.ctas) for table in campaign.jobs] == [("other", (0,))]


def test_without_collectives_only_the_jobs_are_measured() -> None:
    assert written(run_of())[0].collectives is None


def test_jobs_of_known_models_and_of_other_models_come_back_as_they_were() -> None:
    other = mine(tp=2)
    known = replace(other, name="known", model=next(iter(read_models().values())), layout=replace(other.layout, tp=1))
    campaign, found = written(run_of(other, known))
    assert list(found.models) == ["mine"]
    tables = {table.name: table for table in campaign.jobs}
    assert (tables["other"].models, tables["known"].models) == ("again.models.toml", None)
    read = tomllib.loads(again.render_models(found.models))
    models = {name: files.parse(Model, {**table, "name": name}, "models") for name, table in read.items()}
    assert models == found.models
    assert tables["other"].job(models) == other
    assert tables["known"].job(read_models()) == known


def test_an_imported_run_has_no_campaign() -> None:
    with pytest.raises(ConfigError, match=r"run 20260102-demo: spec: found no campaign, .* by docs/files.md"):
        written(RUN)


def test_a_campaign_of_another_version_says_so() -> None:
    info = run_of()
    with pytest.raises(ConfigError, match=r"(?s)spec: colour: unknown key.*another version of spanfit"):
        written(replace(info, spec={**info.spec, "colour": 1}))


scalars = st.text(st.characters(exclude_categories=["Cs"])) | st.integers(-(2**60), 2**60) | st.booleans()
numbers = st.floats(allow_nan=False, allow_infinity=False)
keys = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
values = st.recursive(
    scalars | numbers | st.lists(scalars, max_size=3),
    lambda inner: st.dictionaries(keys, inner, max_size=3) | st.lists(st.dictionaries(keys, inner), max_size=2),
    max_leaves=6,
)


@given(st.dictionaries(keys, values, max_size=4))
def test_any_tables_are_read_back_from_toml(document: dict[str, object]) -> None:
    assert tomllib.loads(again._render(document)) == document


def test_the_file_of_models_is_where_the_campaign_says(tmp_path: Path) -> None:
    other = mine()
    campaign, found = written(run_of(other))
    files.write_text(tmp_path / "again.models.toml", again.render_models(found.models))
    (table,) = campaign.jobs
    assert table.models is not None
    assert table.job(read_models(tmp_path / table.models)) == other


def test_the_campaign_of_the_demo_is_planned_beside_its_files(tmp_path: Path) -> None:
    demo = Path(__file__).parents[3] / "spanfit" / "cli" / "demo_data"
    for name in ("cluster.toml", "testbed.toml"):
        files.write_text(tmp_path / name, (demo / name).read_text())
    campaign = files.read_toml(demo / "campaign.toml", CampaignFile)
    jobs = [json.loads(json.dumps(asdict(table.job({})))) for table in campaign.jobs]
    info = replace(RUN, spec={**files.plain(campaign), "jobs": jobs})
    found = again.campaign_again(
        info, [run_jobs(info)["dp-heavy", "wait"]], {"all_gather"}, repetitions=2, models_file="again.models.toml"
    )
    files.write_text(tmp_path / "again.toml", again.render_campaign(found))
    planned = Campaign(tmp_path / "again.toml", tmp_path / "runs").cases
    assert {case.step.name for case in planned if case.step} == {"dp-heavy"}
    assert {"dp-aligned", "pp-aligned", "misaligned-00"} <= {case.arm for case in planned}
    assert {(case.operation, case.size_bytes) for case in planned if not case.step} == {("all_gather", 4 << 20)}

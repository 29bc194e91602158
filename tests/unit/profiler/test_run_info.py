"""What a finished run keeps of its noise: the nodes that were drawn, and the share that they used."""

from dataclasses import asdict, replace
from pathlib import Path

from spanfit.profiler.campaign import Campaign
from spanfit.profiler.run_info import describe_run
from spanfit.results.shards import Shard

NOISE = Path(__file__).parents[3] / "examples" / "sweeps" / "noise.toml"
WORLD = {"gpu_model": "", "environment": {}, "versions": {}}


def test_a_run_keeps_which_nodes_its_noise_used(tmp_path: Path) -> None:
    campaign = Campaign(NOISE, tmp_path)
    one, two, inside = campaign.file.noise
    cases = tuple({"case": asdict(case)} for case in campaign.cases)
    info = describe_run(
        # Three quarters of four nodes hold one job of two.
        replace(campaign.file, noise=(replace(one, utilisation=0.75), two, inside)),
        campaign.cluster,
        campaign.node_names,
        run_id="r",
        start={"started_at": "2026-01-02T03:04:05+00:00", "transport": "none", "truth": {}},
        shards=[Shard(worlds=(WORLD,), cases=cases)],
    )
    noise = info.spec["noise"]
    assert isinstance(noise, list)
    assert [(table["name"], table["utilisation"], table["used"]) for table in noise] == [
        ("one", 0.75, 0.5),
        ("two", 1.0, 1.0),
        ("inside", 1.0, 1.0),
    ]
    beside = {case.operation: case for case in campaign.cases}
    for table in noise:
        case = beside[f"step+{table['name']}"]
        nodes = [[campaign.node_names[node] for node in group] for group in case.groups[1:]]
        assert table["drawn"] == dict(zip([job.name for job in case.noise], nodes, strict=True))

"""What was true of a finished run: its settings, versions and hardware, and when and from which commit it was made."""

import os
import platform
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from spanfit import __version__, files
from spanfit.bench.campaign_file import CampaignFile
from spanfit.bench.variants import parse_variant
from spanfit.results.schema import SCHEMA_VERSION, RunInfo
from spanfit.results.shards import Shard
from spanfit.topology.model import Cluster


def describe_run(
    campaign: CampaignFile,
    cluster: Cluster,
    node_names: Sequence[str],
    *,
    run_id: str,
    start: Mapping[str, Any],
    shards: Sequence[Shard],
) -> RunInfo:
    """Return what was true of a run that ends now.

    Parameters
    ----------
    node_names : sequence of str
        By node rank.
    start : mapping
        When it began (``started_at``), what its traffic went over (``transport``) and known link rates (``truth``).
    shards : sequence of Shard
        Of all launches; the first world that told of itself stands for all.
    """
    world = next(world for shard in shards for world in shard.worlds)
    models = {node.gpu_model for node in cluster.select(node_names)} - {None}
    switches = cluster.switch_names(node_names)
    return RunInfo(
        schema_version=SCHEMA_VERSION,
        run_id=run_id,
        campaign=campaign.name,
        cluster=cluster.name,
        cluster_hash=files.digest(cluster),
        started_at=start["started_at"],
        ended_at=now(),
        engine=campaign.engine,
        backend=campaign.backend,
        transport=start["transport"],
        node_names=tuple(node_names),
        minipods=switches["minipod"],
        tiers=cluster.tiers,
        switches=switches,
        ngpus_per_node=campaign.launch.ranks_per_node,
        gpu_model=world["gpu_model"] or ", ".join(sorted(map(str, models))) or "cpu",
        launches=sum(bool(shard.cases) for shard in shards),
        truth=start["truth"],
        environment=world["environment"],
        versions=world["versions"] | {"spanfit": __version__, "machine": platform.machine()},
        git_commit=git_commit(),
        spec=files.plain(campaign) | {"jobs": _jobs(shards), "noise": _noise(campaign, shards, node_names)},
        origin={},
    )


def _jobs(shards: Sequence[Shard]) -> list[Any]:
    """Return the jobs whose steps were run, in stored units, by name."""
    steps = [line["case"]["step"] for shard in shards for line in shard.cases if line["case"]["step"]]
    return list({step["name"]: step for step in sorted(steps, key=lambda step: str(step["name"]))}.values())


def _noise(campaign: CampaignFile, shards: Sequence[Shard], node_names: Sequence[str]) -> list[Any]:
    """Return the tables of noise, each with the nodes of the jobs ``drawn`` by it and the share of nodes ``used``."""
    cases = [line["case"] for shard in shards for line in shard.cases if line["case"]["step"]]
    free = set(range(len(node_names))) - {node for case in cases for node in case["groups"][0]}
    beside = {parse_variant(case["operation"]).noise: case for case in cases}
    tables = []
    for table in campaign.noise:
        jobs = zip(beside[table.name]["noise"], beside[table.name]["groups"][1:], strict=True)
        drawn = {job["name"]: [node_names[node] for node in nodes] for job, nodes in jobs}
        used = sum(map(len, drawn.values())) / len(free)
        tables.append(files.plain(table) | {"drawn": drawn, "used": used})
    return tables


def now() -> str:
    """Return the time as ISO 8601 text in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def git_commit() -> str:
    """Return the commit of the checkout that spanfit runs from, "" where it is installed."""
    folder = Path(__file__).parent
    git = shutil.which("git")
    if git is None or not (folder.parent.parent / ".git").exists():
        return ""
    argv = [git, "-C", str(folder), "rev-parse", "HEAD"]
    return subprocess.run(argv, capture_output=True, text=True, check=False, env=os.environ).stdout.strip()

"""Running a campaign: edge; starts worlds, follows what they write, and moves finished runs into the store.

While it runs, a campaign owns the folder ``STORE/RUN_ID`` with the lines of each launch; when every case of every
launch is there, they become ``STORE/RUN_ID.parquet`` and the folder goes. A case is finished once its line is written,
so a kill costs the case in hand, and the same command measures what is missing.
"""

import contextlib
import fcntl
import json
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from spanfit import __version__, files
from spanfit.bench.campaign_file import CampaignFile, Launcher
from spanfit.bench.case import BenchCase, LaunchPlan, Visit, dump_launch
from spanfit.bench.groups import NodeTree
from spanfit.bench.plan import plan_cases, plan_visits
from spanfit.errors import ConfigError, StoreError
from spanfit.launch import testbed
from spanfit.launch.fabric import Fabric
from spanfit.launch.fabric import cluster as fabric_cluster
from spanfit.launch.testbed import Testbed
from spanfit.launch.worlds import AgentWorlds, ForkedWorlds, WorldRequest, Worlds, ssh_argv
from spanfit.profiler.failures import blame
from spanfit.results import schema
from spanfit.results.schema import RunInfo
from spanfit.results.shards import Shard, measurements, read_shard
from spanfit.results.store import Store
from spanfit.topology.hostlist import expand_hostlist
from spanfit.topology.model import Cluster, NodeState, RankMap
from spanfit.topology.readers.cluster_file import read_cluster

_WORKER = "spanfit.bench.worker"
_PORTS = 100
_ENVIRONMENT_NAME = re.compile(r"(NCCL|GLOO|TORCH|OMP|UCX|FI|CUDA|TP)_[A-Z0-9_]+")
_TESTBED_ENVIRONMENT = {"GLOO_SOCKET_IFNAME": "eth0", "TP_SOCKET_IFNAME": "eth0"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a campaign is.

    Attributes
    ----------
    launch, launches : int
        The launch that runs, counted from 0, of how many.
    done, total : int
        Cases finished over all launches, of how many.
    case : str
        The case in hand, in words.
    """

    launch: int
    launches: int
    done: int
    total: int
    case: str


class Campaign:
    """A campaign file with all that it names, ready to plan, run or ask about.

    Parameters
    ----------
    path : Path
        The campaign file; paths in it are relative to its folder.
    store : Path
        Folder of the results store.
    again : bool
        Measure anew, under a new run id, though the store holds a finished run of the same campaign.

    Raises
    ------
    ConfigError
        For every mistake of the files, all at once for each file.
    """

    def __init__(self, path: Path, store: Path, *, again: bool = False) -> None:
        self.path = path
        self.file = files.read_toml(path, CampaignFile)
        self.cluster = read_cluster(path.parent / self.file.cluster)
        self.fabric = self._fabric()
        self.node_names = self._node_names()
        self.switches = switches_by_tier(self.cluster, self.node_names)
        self.minipods = self.switches["minipod"]
        self.cases = self._cases()
        self.store = Store(store)
        self.run_id = self._run_id(store, again)
        self.folder = store / self.run_id

    def _fabric(self) -> Fabric | None:
        if self.file.launch.testbed is None:
            return None
        return testbed.read_fabric(self.path.parent / self.file.launch.testbed)

    def _node_names(self) -> tuple[str, ...]:
        """Return the nodes of the world, minipod by minipod."""
        if self.file.nodes is None:
            chosen = [node for node in self.cluster.nodes if node.state is NodeState.IDLE]
        else:
            try:
                chosen = list(self.cluster.select(expand_hostlist(self.file.nodes)))
            except ValueError as error:
                raise ConfigError(f"{self.path}: nodes: {error}") from None
        by_minipod = self.cluster.minipods(chosen)
        return tuple(node.name for nodes in by_minipod.values() for node in nodes)

    def _cases(self) -> tuple[BenchCase, ...]:
        faults = [
            f"launch.environment.{name}: found {name!r}, expected a setting of the communication library such as NCCL_*"
            for name in self.file.launch.environment
            if not _ENVIRONMENT_NAME.fullmatch(name)
        ]
        if self.fabric is not None and self.file.launch.launcher is not Launcher.SSH:
            known = {node.name for node in fabric_cluster(self.fabric).nodes}
            missing = [name for name in self.node_names if name not in known]
            if missing:
                faults.append(f"nodes: testbed {self.fabric.name} has no host {', '.join(missing)}")
        cases: tuple[BenchCase, ...] = ()
        try:
            fabric = tuple(node.fabric for node in self.cluster.select(self.node_names))
            cases = plan_cases(self.file, NodeTree(tiers=self.cluster.tiers, fabric=fabric))
        except ValueError as error:
            faults += str(error).splitlines()
        if faults:
            raise ConfigError("\n".join(f"{self.path}: {fault}" for fault in faults))
        return cases

    def _run_id(self, store: Path, again: bool) -> str:
        content = {"spec": files.plain(self.file), "nodes": self.node_names, "minipods": self.minipods}
        if self.fabric is not None:
            content["fabric"] = files.plain(self.fabric)
        base = f"{self.file.name}-{files.digest(content)[:8]}"
        names = [base, *(f"{base}-{number}" for number in range(2, 1000))]
        finished = [name for name in names if (store / f"{name}.parquet").exists()]
        if again or not finished:
            return next(name for name in names if name not in finished)
        return finished[-1]

    @property
    def is_finished(self) -> bool:
        """Whether the store holds the whole run."""
        return (self.folder.parent / f"{self.run_id}.parquet").exists()

    @cached_property
    def visits(self) -> tuple[tuple[Visit, ...], ...]:
        """The cases of each launch in its order."""
        return tuple(plan_visits(self.file, self.cases, launch) for launch in range(self.file.launches))

    def shard_path(self, launch: int) -> Path:
        """Return the file of a launch's lines."""
        return self.folder / f"launch-{launch:03d}.jsonl"

    def missing(self, launch: int) -> tuple[Visit, ...]:
        """Return the visits of a launch that are not finished, in its order."""
        finished = read_shard(self.shard_path(launch)).finished()
        return tuple(visit for visit in self.visits[launch] if (visit.block, visit.case.case_id) not in finished)

    def request(self, launch: int, attempt: int) -> WorldRequest:
        """Return the world that a launch starts."""
        environment = {"OMP_NUM_THREADS": "1", **self.file.launch.environment}
        if self.file.launch.launcher is not Launcher.SSH:
            environment = _TESTBED_ENVIRONMENT | environment
        stem = f"launch-{launch:03d}.{attempt}"
        return WorldRequest(
            rank_map=RankMap(node_names=self.node_names, ngpus_per_node=self.file.launch.ranks_per_node),
            module=_WORKER,
            argv=(str((self.folder / f"{stem}.plan.json").absolute()),),
            environment=environment,
            port=self.file.launch.port + launch % _PORTS,
            logs=(self.folder / f"{stem}.logs").absolute(),
        )

    def run(self, follow: Callable[[Progress], None]) -> Path:
        """Measure what is missing and return the run's file in the store.

        Raises
        ------
        StoreError
            If the same campaign is running already.
        LaunchError, TimedOutError
            If a rank dies or hangs; what is finished is kept, and the case in hand is a row that says so.
        """
        with self._locked(), open_worlds(self.file.launch.launcher, self.fabric) as (worlds, transport, truth):
            self._note_start(transport, truth)
            for launch in range(self.file.launches):
                if visits := self.missing(launch):
                    self._run_launch(worlds, launch, visits, follow)
            return self._finish()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise StoreError(f"{self.folder}: this campaign is running already; wait for it or end it") from None
            yield

    def _note_start(self, transport: str, truth: Mapping[str, float]) -> None:
        start = self.folder / "plan.json"
        if not start.exists():
            note = {"started_at": now(), "transport": transport, "truth": dict(truth), "spec": files.plain(self.file)}
            files.write_json(start, note)

    def _run_launch(
        self, worlds: Worlds, launch: int, visits: Sequence[Visit], follow: Callable[[Progress], None]
    ) -> None:
        shard = self.shard_path(launch)
        attempt = len(read_shard(shard).worlds)
        request = self.request(launch, attempt)
        plan = LaunchPlan(
            run_id=self.run_id,
            launch=launch,
            attempt=attempt,
            backend=self.file.backend,
            node_names=self.node_names,
            ngpus_per_node=self.file.launch.ranks_per_node,
            timeout_s=self.file.launch.timeout,
            shard=str(shard.absolute()),
            visits=tuple(visits),
        )
        request.logs.mkdir(parents=True, exist_ok=True)
        files.write_text(Path(request.argv[0]), dump_launch(plan))
        done = sum(len(self.visits[other]) - len(self.missing(other)) for other in range(self.file.launches))
        tail = _Tail(shard)

        def tick() -> None:
            count = tail.count_cases()
            case = visits[min(count, len(visits) - 1)].case.label()
            total = self.file.launches * len(self.visits[0])
            progress = Progress(launch=launch, launches=self.file.launches, done=done + count, total=total, case=case)
            follow(progress)

        failure = worlds.run(request, tick)
        tick()
        if failure is not None:
            raise blame(failure, plan, shard, self.missing(launch))

    def shards(self) -> tuple[Shard, ...]:
        """Return what every launch has written so far."""
        return tuple(read_shard(self.shard_path(launch)) for launch in range(self.file.launches))

    def _finish(self) -> Path:
        shards = self.shards()
        ranks_per_node = self.file.launch.ranks_per_node
        rows = list(measurements(self.run_id, shards, ranks_per_node, self.switches))
        path = self.store.write(self._info(shards), rows)
        shutil.rmtree(self.folder)
        return path

    def _info(self, shards: Sequence[Shard]) -> RunInfo:
        start: dict[str, Any] = json.loads(files.read_text(self.folder / "plan.json"))
        world = next(world for shard in shards for world in shard.worlds)
        models = {node.gpu_model for node in self.cluster.select(self.node_names)} - {None}
        return RunInfo(
            schema_version=schema.SCHEMA_VERSION,
            run_id=self.run_id,
            campaign=self.file.name,
            cluster=self.cluster.name,
            cluster_hash=files.digest(self.cluster),
            started_at=start["started_at"],
            ended_at=now(),
            backend=self.file.backend,
            transport=start["transport"],
            node_names=self.node_names,
            minipods=self.minipods,
            ngpus_per_node=self.file.launch.ranks_per_node,
            gpu_model=world["gpu_model"] or ", ".join(sorted(map(str, models))) or "cpu",
            launches=self.file.launches,
            truth=start["truth"],
            environment=world["environment"],
            versions=world["versions"] | {"spanfit": __version__, "machine": platform.machine()},
            git_commit=git_commit(),
            spec=files.plain(self.file) | {"jobs": [asdict(job.step()) for job in self.file.jobs]},
        )


class _Tail:
    """Counts the cases that were appended to a shard since this was made, reading each byte once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.offset = path.stat().st_size if path.exists() else 0
        self.count = 0

    def count_cases(self) -> int:
        with contextlib.suppress(FileNotFoundError), self.path.open("rb") as file:
            file.seek(self.offset)
            fresh = file.read()
            self.offset += len(fresh)
            # Every line but the world's is a case; each ends with the only newline in it.
            self.count += fresh.count(b"\n") - fresh.count(b'"type": "world"')
        return max(0, self.count)


@contextmanager
def open_worlds(launcher: Launcher, fabric: Fabric | None) -> Iterator[tuple[Worlds, str, dict[str, float]]]:
    """Give a way to start worlds, what their traffic goes over, and the known rates [bits/s] of that.

    A testbed that is up already is used and left up; otherwise one is brought up for the time of the campaign.
    """
    if launcher is Launcher.SSH:
        with AgentWorlds(ssh_argv, str) as worlds:
            yield worlds, "network between the hosts", {}
        return
    assert fabric is not None
    with open_testbed(fabric) as bed:
        transport = f"testbed {bed.name} (emulated: network namespaces on one machine)"
        ways: Worlds = (
            ForkedWorlds(bed, _WORKER)
            if launcher is Launcher.TESTBED
            else AgentWorlds(bed.host_argv, lambda host: bed.hosts[host].address)
        )
        with ways as worlds:
            yield worlds, transport, bed.truth()


@contextmanager
def open_testbed(fabric: Fabric) -> Iterator[Testbed]:
    """Give the testbed of this name that is up, else one that lasts as long as the block."""
    if fabric.name in testbed.names():
        yield testbed.connect(fabric.name)
        return
    bed = testbed.up(fabric, attached=True)
    try:
        yield bed
    finally:
        bed.down()


def switches_by_tier(cluster: Cluster, node_names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return for each tier what people call the switch above each node."""
    nodes = cluster.select(node_names)
    labels = {tier: cluster.switch_labels(tier) for tier in cluster.tiers}
    return {tier: tuple(names[cluster.switch(node, tier)] for node in nodes) for tier, names in labels.items()}


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

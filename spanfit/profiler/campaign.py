"""Running a campaign: edge; starts worlds, follows what they write, and moves finished runs into the store.

While it runs, a campaign owns the folder ``STORE/RUN_ID`` with the lines of each launch; when every case of every
launch is there, they become ``STORE/RUN_ID.parquet`` and the folder goes. A case is finished once its line is written,
so a kill costs the case in hand, and the same command measures what is missing.
"""

import fcntl
import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from spanfit import files
from spanfit.bench.campaign_file import Backend, CampaignFile
from spanfit.bench.case import BenchCase, LaunchPlan, Visit, dump_launch
from spanfit.bench.groups import NodeTree
from spanfit.bench.job_inputs import read_job_inputs
from spanfit.bench.lines import render_failure
from spanfit.bench.plan import plan_cases
from spanfit.errors import ConfigError, StoreError, TimedOutError
from spanfit.launch import testbed
from spanfit.launch.fabric import Fabric, rail_device
from spanfit.launch.fabric import cluster as fabric_cluster
from spanfit.launch.worlds import WorldRequest, Worlds
from spanfit.profiler.agenda import Agenda
from spanfit.profiler.clock import RunClock
from spanfit.profiler.failures import Incident, blame, note_impossible
from spanfit.profiler.following import Progress, Tail, Watch
from spanfit.profiler.programs import ProgramWorlds
from spanfit.profiler.run_info import describe_run, now
from spanfit.profiler.stopping import CaseState, History, case_states, frame_units
from spanfit.profiler.watchdog import LIMIT_MARGIN_S
from spanfit.profiler.ways import MPI_WORKER, WORKER, Way, open_campaign
from spanfit.results.schema import Status
from spanfit.results.shards import Shard, append_failure, measurements, read_shard
from spanfit.results.store import Store
from spanfit.topology.hostlist import expand_hostlist
from spanfit.topology.model import NodeState, RankMap
from spanfit.topology.readers.cluster_file import read_cluster_with_findings

_PORTS = 100
_CLOCK = "clock.json"
_EXCLUDED = "excluded.json"
_START = "plan.json"
_STACKS_SHARE = 0.9
"""The share of a phase's limit after which a rank writes its stacks: before the watcher ends it."""
_DEVICE_SETTINGS = ("GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME")
_MPI_DEVICE_SETTINGS = ("OMPI_MCA_btl_tcp_if_include", "FI_TCP_IFACE")


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
        self.cluster, self.findings = read_cluster_with_findings(path.parent / self.file.cluster)
        self.fabric = self._fabric()
        self.node_names = self._node_names()
        self.switches = self.cluster.switch_names(self.node_names)
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
        faults = [*self.file.launch.faults()]
        if self.fabric is not None and self.file.launch.launcher.on_testbed:
            known = {node.name for node in fabric_cluster(self.fabric).nodes}
            missing = [name for name in self.node_names if name not in known]
            if missing:
                faults.append(f"nodes: testbed {self.fabric.name} has no host {', '.join(missing)}")
        cases: tuple[BenchCase, ...] = ()
        try:
            fabric = tuple(node.fabric for node in self.cluster.select(self.node_names))
            inputs = read_job_inputs(self.file.jobs, self.path.parent, self.node_names)
            cases = plan_cases(self.file, NodeTree(tiers=self.cluster.tiers, fabric=fabric), inputs)
        except ValueError as error:
            faults += str(error).splitlines()
        if faults:
            raise ConfigError("\n".join(f"{self.path}: {fault}" for fault in faults))
        return cases

    def _run_id(self, store: Path, again: bool) -> str:
        content = {"spec": files.plain(self.file), "nodes": self.node_names, "minipods": self.minipods}
        if self.file.jobs:
            # What jobs are and where they go is in other files too.
            content["steps"] = [case.case_id for case in self.cases if case.step]
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
    def clock(self) -> RunClock:
        """The seconds that the run has taken."""
        return RunClock(self.folder / _CLOCK, self.file.time_limit)

    @cached_property
    def agenda(self) -> Agenda:
        """What each launch measures."""
        return Agenda(self.file, self.cases, self.shard_path, self.clock)

    @property
    def visits(self) -> tuple[tuple[Visit, ...], ...]:
        """The cases of each launch in its order, of all launches that are decided by now."""
        return self.agenda.visits

    def shard_path(self, launch: int) -> Path:
        """Return the file of a launch's lines."""
        return self.folder / f"launch-{launch:03d}.jsonl"

    def missing(self, launch: int) -> tuple[Visit, ...]:
        """Return the visits of a launch that are not finished, in its order."""
        return self.agenda.missing(launch)

    def states(self) -> tuple[CaseState, ...]:
        """Return how far each case is by now, or how well a finished run knows it."""
        if not self.is_finished:
            return self.agenda.states()
        history = History(launches=frame_units(self.store.read(self.run_id)[1]))
        return tuple(replace(state, is_open=False) for state in case_states(self.agenda.rule, self.cases, history))

    @property
    def excluded(self) -> dict[str, str]:
        """Why each host that the rest of the run does without was excluded, by host."""
        note = self.folder / _EXCLUDED
        return dict(json.loads(files.read_text(note))) if note.exists() else {}

    def _seats(self) -> tuple[int, ...]:
        """Return the node ranks that are not excluded."""
        excluded = self.excluded
        return tuple(rank for rank, name in enumerate(self.node_names) if name not in excluded)

    @property
    def local_environment(self) -> tuple[dict[str, str], ...]:
        """The settings of each local rank: on a testbed with a rail for each its own device, unless the file says."""
        launch, rails = self.file.launch, self.fabric.rails if self.fabric else 1
        if launch.local_environment or not launch.launcher.on_testbed or not launch.ranks_per_node == rails > 1:
            return launch.local_environment
        known = _MPI_DEVICE_SETTINGS if self.file.backend is Backend.MPI else _DEVICE_SETTINGS
        names = [name for name in known if name not in launch.environment]
        return tuple(dict.fromkeys(names, rail_device(rail)) for rail in range(rails))

    def request(self, launch: int, attempt: int) -> WorldRequest:
        """Return the world that a launch starts."""
        environment = {"OMP_NUM_THREADS": "1", **self.file.launch.environment}
        if self.file.launch.launcher.on_testbed:
            environment = dict.fromkeys(_DEVICE_SETTINGS, rail_device(0)) | environment
        stem = f"launch-{launch:03d}.{attempt}"
        if self.file.backend == "nccl":
            prefix = str((self.folder / f"{stem}.beats" / "nccl-").absolute())
            environment = {"TORCH_NCCL_DUMP_ON_TIMEOUT": "1", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": prefix} | environment
        names = tuple(self.node_names[rank] for rank in self._seats())
        return WorldRequest(
            rank_map=RankMap(node_names=names, ngpus_per_node=self.file.launch.ranks_per_node),
            module=MPI_WORKER if self.file.backend is Backend.MPI else WORKER,
            argv=(str((self.folder / f"{stem}.plan.json").absolute()),),
            environment=environment,
            port=self.file.launch.port + launch % _PORTS,
            logs=(self.folder / f"{stem}.logs").absolute(),
        )

    def open_way(self) -> AbstractContextManager[Way]:
        """Return what starts the worlds that the campaign names, open for as long as its block lasts."""
        logs = self.folder.with_name(f"{self.run_id}.logs")
        return open_campaign(self.file, self.fabric, self.path.parent, logs)

    def describe(self) -> str:
        """Return what the first launch would run, as a person could type it; starts no world."""
        with self.open_way() as (worlds, _, _):
            request = self.request(0, 0)
            if isinstance(worlds, ProgramWorlds):
                return worlds.describe_visits(request, self._plan(0, 0, self.visits[0]))
            return worlds.describe(request)

    def run(self, follow: Callable[[Progress], None], way: Way | None = None) -> Path:
        """Measure what is missing and return the run's file in the store.

        Parameters
        ----------
        follow : callable
            Told how far the campaign is.
        way : Way or None
            How worlds are started, where that is open already; None opens what the campaign names for the time it runs.

        Raises
        ------
        StoreError
            If the same campaign is running already.
        LaunchError, TimedOutError
            If a rank dies or hangs; what is finished is kept, and the case in hand is a row that says so. Where
            ``launch.exclude_sick`` is set and the host to blame is known, the run goes on without it instead.
        """
        opened = nullcontext(way) if way else self.open_way()
        with self._locked(), opened as (worlds, transport, truth):
            self._note_start(transport, truth)
            self.clock.start()
            launch = 0
            while launch < len(self.visits) and not self.clock.is_over:
                if visits := self.missing(launch):
                    self._run_launch(worlds, launch, visits, follow)
                launch += 1
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
        start = self.folder / _START
        if not start.exists():
            note = {"started_at": now(), "transport": transport, "truth": dict(truth), "spec": files.plain(self.file)}
            files.write_json(start, note)

    def _run_launch(
        self, worlds: Worlds, launch: int, visits: Sequence[Visit], follow: Callable[[Progress], None]
    ) -> None:
        while possible := self._possible(launch, visits):
            incident = self._run_world(worlds, launch, possible, follow)
            if incident is None:
                return
            if not self._exclude(launch, incident):
                raise incident.error

    def _plan(self, launch: int, attempt: int, visits: Sequence[Visit]) -> LaunchPlan:
        seats = self._seats()
        return LaunchPlan(
            run_id=self.run_id,
            launch=launch,
            attempt=attempt,
            backend=self.file.backend,
            node_names=tuple(self.node_names[rank] for rank in seats),
            ngpus_per_node=self.file.launch.ranks_per_node,
            timeout_s=self.file.launch.timeout + LIMIT_MARGIN_S,
            shard=str(self.shard_path(launch).absolute()),
            visits=tuple(visits),
            heartbeats=str((self.folder / f"launch-{launch:03d}.{attempt}.beats").absolute()),
            node_ranks=seats if len(seats) < len(self.node_names) else (),
            local_environment=self.local_environment,
            stacks_after_s=_STACKS_SHARE * self.file.launch.timeout,
        )

    def _possible(self, launch: int, visits: Sequence[Visit]) -> tuple[Visit, ...]:
        """Return the visits that are left and need no excluded host; the others that are left become rows."""
        excluded = {self.node_names.index(host): why for host, why in self.excluded.items()}
        missing = set(self.missing(launch))
        left = [visit for visit in visits if visit in missing]
        needs = {visit for visit in left if excluded.keys() & {node for group in visit.case.groups for node in group}}
        shard = self.shard_path(launch)
        plan = self._plan(launch, len(read_shard(shard).worlds), left)
        note_impossible(plan, shard, [visit for visit in left if visit in needs], excluded)
        return tuple(visit for visit in left if visit not in needs)

    def _exclude(self, launch: int, incident: Incident) -> bool:
        """Do without the hosts to blame from now on; return False where that is not wanted or not possible."""
        excluded = self.excluded
        why = f"was excluded after launch {launch}: {incident.reason}"
        fresh = {host: f"host {host} {why}" for host in incident.sick if host not in excluded}
        left = len(self.node_names) - len(excluded) - len(fresh)
        if not self.file.launch.exclude_sick or not fresh or left < max(2, len(self.node_names) / 2):
            return False
        files.write_json(self.folder / _EXCLUDED, excluded | fresh)
        return True

    def _run_world(
        self, worlds: Worlds, launch: int, visits: Sequence[Visit], follow: Callable[[Progress], None]
    ) -> Incident | None:
        shard = self.shard_path(launch)
        attempt = len(read_shard(shard).worlds)
        request, plan = self.request(launch, attempt), self._plan(launch, attempt, visits)
        request.logs.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(plan.heartbeats, ignore_errors=True)
        files.write_text(Path(request.argv[0]), dump_launch(plan))
        self.clock.begin(launch)
        done = sum(map(len, self.visits[: launch + 1])) - len(self.missing(launch))
        total, open_cases = self.agenda.expected_visits(launch), len({visit.case for visit in self.visits[launch]})
        tail = Tail(shard)
        watch = Watch(Path(plan.heartbeats), self.file.launch.timeout)

        def tick() -> bool:
            count = tail.count_cases()
            case = visits[min(count, len(visits) - 1)].case.label()
            self.clock.tick()
            progress = Progress(
                launch=launch,
                launches=self.agenda.rule.most,
                done=done + count,
                total=total,
                case=case,
                open_cases=open_cases,
                left_s=self.clock.left_s,
            )
            follow(progress)
            return watch.is_stuck(count) or self.clock.is_over

        failure = worlds.run(request, tick)
        tick()
        if failure is None or self.clock.is_over:
            return None
        return blame(failure, plan, shard, self.missing(launch))

    def shards(self) -> tuple[Shard, ...]:
        """Return what every launch has written so far."""
        return tuple(read_shard(self.shard_path(launch)) for launch in range(len(self.visits)))

    def _finish(self) -> Path:
        self._note_unmeasured()
        shards = self.shards()
        ranks_per_node = self.file.launch.ranks_per_node
        rows = list(measurements(self.run_id, shards, ranks_per_node, self.switches))
        info = describe_run(
            self.file,
            self.cluster,
            self.node_names,
            run_id=self.run_id,
            start=json.loads(files.read_text(self.folder / _START)),
            shards=shards,
        )
        path = self.store.write(info, rows)
        shutil.rmtree(self.folder)
        return path

    def _note_unmeasured(self) -> None:
        """Note the cases that the time limit left no time for as rows; TimedOutError where it left none for any."""
        visits = self.agenda.unmeasured()
        if len(visits) == len(self.cases):
            raise TimedOutError(
                f"{self.path}: time_limit: found {self.clock.limit_s:.0f} s, in which no case was measured; "
                "expected time for a launch at least: raise it and run the same command again"
            )
        plan = self._plan(0, 0, visits)
        for visit in visits:
            reason = f"not begun within the campaign's time limit of {self.clock.limit_s:.0f} s"
            append_failure(self.shard_path(0), render_failure(plan, visit, Status.TIMED_OUT, reason))

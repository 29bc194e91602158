"""Running the programs of nccl-tests for the visits of a launch, one after the other: edge, starts and ends programs.

What a program prints is kept in a folder a visit, beside the run's file in the store and after the run: in
``RUN_ID.logs/launch-LAUNCH.ATTEMPT/POSITION`` lie ``stdout.log``, ``stderr.log``, what the launcher reads, and
``report.json`` where the build writes one. A report holds the whole environment of its process, so that part is taken
out as soon as the process has ended, or where we are killed with it, when its launch is resumed.
"""

import json
import shutil
import subprocess
import time
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from spanfit import files
from spanfit.bench.campaign_file import CampaignFile, Launcher
from spanfit.bench.case import LaunchPlan, Visit, load_launch
from spanfit.bench.lines import append, drop_torn_line, render_failure, render_world
from spanfit.bench.nccl_tests import PROGRAMS, Build, command, exit_meaning, misfit, parse_help, split_environment
from spanfit.errors import LaunchError
from spanfit.launch.commands import CommandWorlds
from spanfit.launch.worlds import Tick, WorldRequest
from spanfit.profiler.failures import last_error
from spanfit.profiler.program_logs import Expected, Outcome, judge
from spanfit.results.importers.log import LogRun, LogStatus
from spanfit.results.importers.reading import read_log
from spanfit.results.schema import Status
from spanfit.topology.model import RankMap
from spanfit.units import format_time

_ANSWER_LIMIT_S = 30.0
_STDOUT, _STDERR, _REPORT = "stdout.log", "stderr.log", "report.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Programs:
    """What is run in the place of ranks of our own.

    Attributes
    ----------
    campaign : CampaignFile
    folder : Path or None
        Where the programs are; None: on PATH.
    logs : Path
        Where what they print is kept.
    """

    campaign: CampaignFile
    folder: Path | None
    logs: Path


class ProgramWorlds:
    """Worlds of programs, one program for each visit of a launch.

    Parameters
    ----------
    worlds : CommandWorlds
        What starts the ranks of a program.
    programs : Programs
    """

    def __init__(self, worlds: CommandWorlds, programs: Programs) -> None:
        self.worlds = worlds
        self.campaign = programs.campaign
        self.logs = programs.logs
        self.builds = find_builds(programs)

    def describe(self, request: WorldRequest) -> str:
        """Return the command line of each visit of a launch whose plan is written, with the files that it reads."""
        return self.describe_visits(request, _read_plan(request))

    def describe_visits(self, request: WorldRequest, plan: LaunchPlan) -> str:
        """Return the command line of each visit of a launch, with the files that it reads."""
        return "\n".join(self.worlds.describe(self._request(request, plan, visit)) for visit in plan.visits)

    def __enter__(self) -> Self:
        """Nothing is started before the first visit."""
        self.worlds.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End a program that still runs."""
        self.worlds.__exit__(kind, error, trace)

    def run(self, request: WorldRequest, tick: Tick) -> None:
        """Run a launch's visits and append their lines; stop early where ``tick`` says so.

        Raises
        ------
        LaunchError
            If the set-up is at fault, so that no other visit would fare better.
        """
        plan = _read_plan(request)
        shard = Path(plan.shard)
        drop_torn_line(shard)
        for left in self.logs.glob(f"launch-{plan.launch:03d}.*/*/{_REPORT}"):
            strip_report(left)
        seen: LogRun | None = None
        for visit in plan.visits:
            own = self._request(request, plan, visit)
            outcome, run = self._measure(own, plan, visit, tick)
            if outcome is None:
                break
            if seen is None and run is not None:
                seen = run
                append(shard, _render_world(plan, self.campaign, run))
            append(shard, _render(plan, visit, outcome))
            if outcome.advice:
                raise LaunchError(
                    f"launch {plan.launch}, {visit.case.label()}: {outcome.reason}; {outcome.advice}; then run the "
                    f"same command again (all that was printed is in {own.logs})"
                )
        if seen is None:
            append(shard, _render_world(plan, self.campaign, LogRun(status=LogStatus.FAILED)))

    def _request(self, request: WorldRequest, plan: LaunchPlan, visit: Visit) -> WorldRequest:
        """Return the world of one visit: the nodes of its groups alone, group by group."""
        case, per_node = visit.case, plan.ngpus_per_node
        nodes = tuple(plan.node_names[node] for group in case.groups for node in group)
        is_local = self.campaign.launch.launcher is Launcher.LOCAL
        logs = self.logs / f"launch-{plan.launch:03d}.{plan.attempt}" / f"{visit.position:04d}"
        settings = self.campaign.nccl_tests
        argv = command(
            self.builds[case.operation],
            case,
            ngpus=per_node if is_local else 1,
            check=settings.check,
            report=str(logs / _REPORT),
        )
        split = split_environment(len(case.groups), len(case.groups[0]) * per_node)
        return replace(
            request,
            rank_map=RankMap(node_names=nodes, ngpus_per_node=per_node),
            module="",
            argv=(*argv, *settings.arguments),
            environment={**self.campaign.launch.environment, **split},
            logs=logs,
        )

    def _measure(
        self, own: WorldRequest, plan: LaunchPlan, visit: Visit, tick: Tick
    ) -> tuple[Outcome | None, LogRun | None]:
        """Return how the run of a visit ended, None where ``tick`` ended it, and what it said of itself if anything."""
        if fault := misfit(self.builds[visit.case.operation], visit.case):
            return Outcome(status=Status.FAILED, reason=fault), None
        shutil.rmtree(own.logs, ignore_errors=True)
        own.logs.mkdir(parents=True)
        out, err = own.logs / _STDOUT, own.logs / _STDERR
        limit = _Limit(tick, self.campaign.launch.timeout)
        try:
            code, was_ended = self.worlds.execute(own, limit, out, err)
        finally:
            # Also where a person interrupts: a report must not keep its environment.
            self.worlds.end()
            report = _take_report(own.logs / _REPORT)
        if was_ended and not limit.has_expired:
            return None, None
        runs = read_log("\n".join(path.read_text(encoding="utf-8", errors="replace") for path in (out, err)))
        said = last_error(err) or last_error(out)
        if was_ended:
            error = (runs[0].error or "") if runs else said
            outcome = Outcome(status=Status.TIMED_OUT, reason=_timed_out(self.campaign.launch.timeout, error))
        else:
            outcome = judge(_expected(own, plan, visit), runs, report, code, said)
        return outcome, replace(runs[0], environment=report.environment if report else {}) if runs else None


def _read_plan(request: WorldRequest) -> LaunchPlan:
    return load_launch(Path(request.argv[0]).read_text(encoding="utf-8"))


def _expected(own: WorldRequest, plan: LaunchPlan, visit: Visit) -> Expected:
    return Expected(
        case=visit.case,
        hosts=tuple(name for name in own.rank_map.node_names for _ in range(plan.ngpus_per_node)),
        nranks_per_group=len(visit.case.groups[0]) * plan.ngpus_per_node,
    )


def _timed_out(limit_s: float, error: str) -> str:
    cause = f", after {error!r}" if error else ""
    return f"did not end within the {format_time(limit_s)} of launch.timeout, and was ended{cause}"


class _Limit:
    """Says when a run must be ended: after its time, or when the campaign says so."""

    def __init__(self, tick: Tick, limit_s: float) -> None:
        self.tick = tick
        self.ends_s = time.monotonic() + limit_s
        self.has_expired = False

    def __call__(self) -> bool:
        self.has_expired = time.monotonic() > self.ends_s
        return self.has_expired or bool(self.tick())


def _take_report(path: Path) -> LogRun | None:
    """Return what a JSON report says, after taking its environment out; None where there is none that is whole."""
    runs = read_log(strip_report(path)) if path.exists() else ()
    return runs[0] if len(runs) == 1 else None


def strip_report(path: Path) -> str:
    """Take its environment out of a JSON report, and return its text before; "", and no file, where it is not whole.

    Raises
    ------
    ConfigError
        If the report cannot be replaced.
    """
    text = path.read_text(encoding="utf-8", errors="replace")
    try:
        document = json.loads(text)
    except json.JSONDecodeError:
        document = None
    if not isinstance(document, dict):
        path.unlink()
        return ""
    files.write_text(path, json.dumps({key: value for key, value in document.items() if key != "env"}))
    return text


def _render(plan: LaunchPlan, visit: Visit, outcome: Outcome) -> dict[str, Any]:
    """Return the line of a visit: one time for each of its groups, since a program prints one for all of them.

    A visit that failed is not tried again, unless the set-up was at fault.
    """
    is_ok = outcome.status is Status.OK
    return {
        **render_failure(plan, visit, outcome.status, outcome.reason),
        "times_s": [[[outcome.time_s]] for _ in visit.case.groups] if is_ok else [],
        "resolution_s": outcome.resolution_s,
        "final": not outcome.advice,
    }


def _render_world(plan: LaunchPlan, campaign: CampaignFile, run: LogRun) -> dict[str, Any]:
    """Return the shard's first line: the versions, the settings and the GPUs that a program names."""
    versions = {"nccl-tests": run.version} if run.version else {}
    if run.nccl_library is not None:
        versions["nccl"] = dotted_version(run.nccl_library)
    models = sorted({device.name for device in run.devices if device.name})
    return render_world(plan, run.environment or campaign.launch.environment, versions, ", ".join(models))


def dotted_version(code: int) -> str:
    """Return NCCL's version code as people write it.

    Examples
    --------
    >>> dotted_version(22807), dotted_version(2804)
    ('2.28.7', '2.8.4')
    """
    major = 10000 if code >= 10000 else 1000
    return f"{code // major}.{code % major // 100}.{code % 100}"


def find_builds(programs: Programs) -> dict[str, Build]:
    """Return the programs that a campaign needs, by collective, after asking each for its options.

    Raises
    ------
    LaunchError
        If some are missing, or do not answer as nccl-tests does.
    """
    campaign, settings = programs.campaign, programs.campaign.nccl_tests
    operations = dict.fromkeys(campaign.collectives.operations if campaign.collectives else ())
    operations |= dict.fromkeys([campaign.pairs.operation] if campaign.pairs else ())
    names = {operation: PROGRAMS[operation] + settings.suffix for operation in operations}
    folder = str(programs.folder) if programs.folder else None
    paths = {operation: shutil.which(name, path=folder) for operation, name in names.items()}
    if missing := [names[operation] for operation, path in paths.items() if path is None]:
        where = f"in {folder}" if folder else "on PATH"
        raise LaunchError(
            f"{', '.join(missing)} of nccl-tests not found {where}; build nccl-tests, for several nodes with MPI=1, "
            "and set nccl_tests.folder to the folder of its programs or put that on PATH"
        )
    return {operation: _ask(path) for operation, path in paths.items() if path}


def _ask(path: str) -> Build:
    try:
        answer = subprocess.run(
            [path, "--help"], stdin=subprocess.DEVNULL, capture_output=True, timeout=_ANSWER_LIMIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LaunchError(f"{path} --help: {error}; expected a program of nccl-tests") from None
    said = (answer.stdout + answer.stderr).decode(errors="replace")
    options = parse_help(said)
    if not options:
        first = next((line.strip() for line in said.splitlines() if line.strip()), "nothing")
        raise LaunchError(
            f"{path} --help: {exit_meaning(answer.returncode)}, it said {first!r}; expected a program of nccl-tests, "
            "which finds its libraries here"
        )
    return Build(path=path, options=options)

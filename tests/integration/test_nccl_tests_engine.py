"""Campaigns that run the programs of nccl-tests: stand-ins of several versions, and real ones where they are named."""

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest

from spanfit.errors import ExitCode
from spanfit.profiler.campaign import Campaign
from spanfit.results.shards import read_shard
from spanfit.results.store import Store

FAKE = Path(__file__).parents[1] / "fakes" / "nccl_tests.py"
CLUSTER = """name = "pair"
tiers = ["leaf", "minipod"]
[[nodes]]
names = "n[1-2]"
switches = ["leaf1", "pod1"]
[[nodes]]
names = "n[3-4]"
switches = ["leaf2", "pod2"]
"""
CAMPAIGN = """name = "engine"
cluster = "cluster.toml"
engine = "nccl-tests"
backend = "nccl"
launches = 2
[launch]
launcher = "mpirun"
ranks_per_node = 2
timeout = "20s"
environment = {{ NCCL_DEBUG = "WARN" }}
[nccl_tests]
{table}
[collectives]
operations = ["all_reduce"]
sizes = ["1M", "4M"]
nodes_per_group = 2
spans = [1, 2]
concurrency = ["alone", "all"]
warmup = 2
repetitions = 3
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """How a command ended, and what it printed."""

    exit_code: int
    output: str


def spanfit(*words: str | Path) -> Done:
    """Run a command of spanfit."""
    argv = [sys.executable, "-m", "spanfit", *map(str, words)]
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return Done(exit_code=done.returncode, output=done.stdout)


class Bench:
    """A folder with a campaign, and programs on PATH that answer as told."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self.store = folder / "runs"
        self.bin.mkdir()
        (folder / "cluster.toml").write_text(CLUSTER)
        for name in ("all_reduce_perf", "mpirun"):
            (self.bin / name).write_text(f"#!{sys.executable}\n{FAKE.read_text()}")
            (self.bin / name).chmod(0o755)
        self.behave()

    def behave(self, version: str = "2.19.6", faults: Mapping[int, str] | None = None, *, mpi: bool = True) -> None:
        """Say how the programs answer: as which version, and what goes wrong at which size."""
        plain = {"version": version, "mpi": mpi, "faults": {str(size): fault for size, fault in (faults or {}).items()}}
        (self.bin / "behaviour.json").write_text(json.dumps(plain))

    def write(self, text: str = CAMPAIGN, table: str = 'folder = "bin"') -> Path:
        """Write the campaign file."""
        path = self.folder / "campaign.toml"
        path.write_text(text.format(table=table))
        return path

    def run(self, *options: str) -> Done:
        """Run the campaign as a person would."""
        return spanfit("campaign", "run", self.folder / "campaign.toml", "--store", self.store, *options)

    def frame(self) -> pd.DataFrame:
        """Return the rows of the one finished run."""
        (run_id,) = [path.stem for path in self.store.glob("*.parquet")]
        return Store(self.store).read(run_id)[1]

    def pids(self) -> list[int]:
        """Return every process that a program was or started."""
        return [int(line) for line in (self.bin / "pids").read_text().split()]

    def start_and_hang(self) -> "subprocess.Popen[bytes]":
        """Start a campaign of two visits, and return it once all programs of the second hang."""
        self.behave(faults={4 << 20: "hang"})
        text = CAMPAIGN.replace("launches = 2", "launches = 1")
        self.write(text.replace("spans = [1, 2]", "spans = [1]").replace('["alone", "all"]', '["alone"]'))
        argv = [sys.executable, "-m", "spanfit", "campaign", "run", str(self.folder / "campaign.toml")]
        campaign = subprocess.Popen([*argv, "--store", str(self.store)], stderr=subprocess.DEVNULL)
        deadline_s = time.monotonic() + 15
        while not (self.bin / "pids").exists() or len(self.pids()) < 4 + 2 * 4:
            assert time.monotonic() < deadline_s and campaign.poll() is None, "the programs never hung"
            time.sleep(0.1)
        return campaign

    def kept(self) -> str:
        """Return all that the store's logs of programs hold."""
        return "".join(path.read_text() for path in self.store.glob("*.logs/**/*") if path.is_file())


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    made = Bench(tmp_path)
    monkeypatch.setenv("PATH", f"{made.bin}:{os.environ['PATH']}")
    monkeypatch.setenv("SECRET_TOKEN", "hunter2")
    return made


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("version", ["2.0.0", "2.13.0", "2.17.8", "2.19.6"])
def test_a_campaign_is_measured_by_the_programs_of_any_version(bench: Bench, version: str) -> None:
    bench.behave(version)
    text = CAMPAIGN if version >= "2.14" else CAMPAIGN.replace('["alone", "all"]', '["alone"]')
    bench.write(text)
    done = bench.run()
    assert done.exit_code == 0, done.output
    frame = bench.frame()
    ngroups = {"alone": 1, "all": 2}
    assert len(frame) == 2 * 2 * 2 * sum(ngroups[name] for name in set(frame["concurrency"]))
    assert (frame["status"] == "ok").all(), set(frame["reason"])
    # The time of the stand-in, to the digits that its version prints; its JSON has all of them.
    expected = (10 + frame["size_bytes"] / 1000 * 1.23456) * 1e-6
    assert ((frame["time_s"] - expected).abs() <= frame["time_resolution_s"] + 1e-12).all()
    assert (frame["time_resolution_s"] > 0).all()
    assert (frame["time_resolution_s"] < 1e-10).all() == (version >= "2.17.3")
    assert frame["time_min_s"].isna().all()
    assert set(frame["fastest_rank"]) == set(frame["slowest_rank"]) == {-1}
    assert set(frame["nranks"]) == {4}


def test_a_run_knows_its_engine_its_versions_and_its_gpus(bench: Bench) -> None:
    campaign = Campaign(bench.write(), bench.store)
    assert bench.run().exit_code == 0
    info, _ = campaign.store.read(campaign.run_id)
    assert (info.engine, info.backend, info.gpu_model) == ("nccl-tests", "nccl", "NVIDIA Fake 80GB")
    assert (info.versions["nccl-tests"], info.versions["nccl"]) == ("2.19.6", "2.28.7")
    assert info.environment["NCCL_DEBUG"] == "WARN"
    first = bench.store / f"{campaign.run_id}.logs" / "launch-000.0" / "0000"
    assert sorted(path.name for path in first.iterdir()) == ["hosts.txt", "report.json", "stderr.log", "stdout.log"]
    assert "# Out of bounds values : 0 OK" in (first / "stdout.log").read_text()
    assert "hunter2" not in bench.kept(), "a report's environment was kept"


def test_a_dry_run_prints_every_command_and_starts_none(bench: Bench) -> None:
    path = bench.write()
    done = bench.run("--dry-run")
    assert done.exit_code == 0, done.output
    commands = [line for line in done.output.splitlines() if not line.startswith("#")]
    assert len(commands) == len(Campaign(path, bench.store).cases)
    assert sum("NCCL_TESTS_SPLIT_MASK=fffffffc" in line for line in commands) == 4
    assert not (bench.bin / "pids").exists()
    assert not bench.store.exists()


@pytest.mark.parametrize(
    ("fault", "status", "reason"),
    [
        ("dies", "failed", "Test NCCL failure common.cu:501 'unhandled system error'"),
        ("lies", "wrong_result", "Out of bounds values"),
        ("contradicts", "failed", "algbw is not size / time in 2 halves, first: size 4194304 out-of-place"),
    ],
)
def test_a_case_that_fails_is_a_row_and_the_others_are_measured(
    bench: Bench, fault: str, status: str, reason: str
) -> None:
    # A version without JSON, whose table has the only numbers.
    bench.behave("2.17.2", faults={4 << 20: fault})
    bench.write()
    done = bench.run()
    assert done.exit_code == 0, done.output
    assert "8 visits gave no time: " in done.output
    frame = bench.frame()
    bad = frame[frame["size_bytes"] == 4 << 20]
    assert (frame[frame["size_bytes"] == 1 << 20]["status"] == "ok").all()
    assert set(bad["status"]) == {status}
    assert bad["time_s"].isna().all()
    assert all(reason in text for text in bad["reason"])


def test_a_program_that_hangs_is_ended_with_all_that_it_started(bench: Bench) -> None:
    bench.behave(faults={4 << 20: "hang"})
    text = (
        CAMPAIGN.replace("20s", "6s").replace("launches = 2", "launches = 1").replace("spans = [1, 2]", "spans = [1]")
    )
    bench.write(text.replace('["alone", "all"]', '["alone"]'))
    done = bench.run()
    assert done.exit_code == 0, done.output
    frame = bench.frame()
    assert dict(zip(frame["size_bytes"], frame["status"], strict=True)) == {1 << 20: "ok", 4 << 20: "timed_out"}
    assert "did not end within the 6" in str(frame[frame["status"] == "timed_out"]["reason"].iloc[0])
    pids = bench.pids()
    assert len(pids) == 4 + 2 * 4, "four ranks of one run, and four with a child each of the other"
    assert not [pid for pid in pids if is_running(pid)]


def test_an_old_build_that_takes_float_for_a_type_it_does_not_know_is_no_result(bench: Bench) -> None:
    bench.behave("2.0.0", faults={1 << 20: "float", 4 << 20: "float"})
    text = CAMPAIGN.replace("[collectives]\n", '[collectives]\ndtypes = ["float32", "bfloat16"]\n')
    bench.write(text.replace('["alone", "all"]', '["alone"]'))
    done = bench.run()
    assert done.exit_code == 0, done.output
    frame = bench.frame()
    assert set(frame[frame["dtype"] == "float32"]["status"]) == {"ok"}
    taken = frame[frame["dtype"] == "bfloat16"]
    assert set(taken["status"]) == {"failed"}
    assert all("printed no row of" in text and "B float sum" in text for text in taken["reason"]), set(taken["reason"])


def test_ctrl_c_ends_the_programs_and_the_same_command_goes_on(bench: Bench) -> None:
    campaign = bench.start_and_hang()
    campaign.send_signal(signal.SIGINT)
    assert campaign.wait(15) == ExitCode.INTERRUPTED
    assert not [pid for pid in bench.pids() if is_running(pid)]
    assert "hunter2" not in bench.kept(), "a report's environment was kept"
    bench.behave()
    assert bench.run().exit_code == 0
    assert set(bench.frame()["status"]) == {"ok"}


def test_a_report_left_by_a_kill_loses_its_environment_when_the_campaign_goes_on(bench: Bench) -> None:
    campaign = bench.start_and_hang()
    campaign.kill()
    campaign.wait()
    for pid in filter(is_running, bench.pids()):
        os.kill(pid, signal.SIGKILL)
    assert "hunter2" in bench.kept()
    bench.behave()
    assert bench.run().exit_code == 0
    assert "hunter2" not in bench.kept(), "a report's environment was kept"


def test_programs_without_mpi_end_the_campaign_with_what_to_do(bench: Bench) -> None:
    bench.behave(mpi=False)
    path = bench.write()
    done = bench.run()
    assert done.exit_code == ExitCode.LAUNCH_FAILED, done.output
    assert "world" in done.output
    assert "build nccl-tests with MPI=1" in done.output
    (line,) = read_shard(Campaign(path, bench.store).shard_path(0)).cases
    assert line["status"] == "failed"
    # With the right programs the same command goes on.
    bench.behave()
    assert bench.run().exit_code == 0
    assert (bench.frame()["status"] == "ok").sum() == 24


def test_a_node_without_a_driver_ends_the_campaign_with_what_to_do(bench: Bench) -> None:
    bench.behave(faults={1 << 20: "driver", 4 << 20: "driver"})
    bench.write()
    done = bench.run()
    assert done.exit_code == ExitCode.LAUNCH_FAILED, done.output
    assert "'CUDA driver version is insufficient for CUDA runtime version'" in done.output
    assert "the node has no driver of its GPUs" in done.output


def test_missing_programs_are_named_with_where_they_were_looked_for(bench: Bench) -> None:
    bench.write(CAMPAIGN.replace('["all_reduce"]', '["all_reduce", "broadcast", "hypercube"]'))
    done = bench.run()
    assert done.exit_code == ExitCode.LAUNCH_FAILED
    assert f"broadcast_perf, hypercube_perf of nccl-tests not found in {bench.bin}" in done.output
    assert not bench.store.exists() or not list(bench.store.glob("*/launch-*.jsonl"))


def test_a_program_that_is_something_else_is_told_apart(bench: Bench) -> None:
    (bench.bin / "all_reduce_perf").write_text(
        "#!/bin/sh\necho libnccl.so.2: cannot open shared object file\nexit 127\n"
    )
    bench.write(table="")
    done = bench.run()
    assert done.exit_code == ExitCode.LAUNCH_FAILED
    assert "all_reduce_perf --help: exit code 127: the program or one of its libraries was not found" in done.output
    assert "libnccl.so.2" in done.output


def test_one_process_drives_the_gpus_of_one_node(bench: Bench) -> None:
    here = os.uname().nodename
    (bench.folder / "cluster.toml").write_text(f'name = "one"\n[[nodes]]\nnames = "{here}"\nswitches = ["l", "p"]\n')
    text = CAMPAIGN.replace('"mpirun"', '"local"').replace("nodes_per_group = 2", "nodes_per_group = 1")
    bench.write(text.replace("spans = [1, 2]", "spans = [1]").replace('["alone", "all"]', '["alone"]'))
    done = bench.run()
    assert done.exit_code == 0, done.output
    frame = bench.frame()
    assert set(frame["status"]) == {"ok"}, set(frame["reason"])
    assert set(frame["nranks"]) == {2}


def test_a_split_that_an_old_version_ignores_is_a_row(bench: Bench) -> None:
    bench.behave("2.13.0")
    bench.write()
    assert bench.run().exit_code == 0
    frame = bench.frame()
    assert set(frame[frame["concurrency"] == "alone"]["status"]) == {"ok"}
    together = frame[frame["concurrency"] == "all"]
    assert set(together["status"]) == {"failed"}
    assert all("did not make groups of 4 ranks" in reason for reason in together["reason"])


def test_curves_and_tables_live_with_one_time_a_group(bench: Bench) -> None:
    path = bench.write()
    assert bench.run().exit_code == 0
    run_id = Campaign(path, bench.store).run_id
    for noun, verb, target in (
        ("profile", "curves", run_id),
        ("profile", "diagnose", run_id),
        ("results", "show", run_id),
        ("campaign", "status", path),
    ):
        done = spanfit(noun, verb, target, "--store", bench.store)
        assert done.exit_code == 0, f"{verb}: {done.output}"


@pytest.mark.skipif(
    "SPANFIT_NCCL_TESTS" not in os.environ,
    reason="no nccl-tests; set SPANFIT_NCCL_TESTS to a folder of its programs",
)
def test_real_programs_measure_or_say_in_a_line_what_to_do(tmp_path: Path) -> None:
    here = os.uname().nodename
    (tmp_path / "cluster.toml").write_text(f'name = "one"\n[[nodes]]\nnames = "{here}"\nswitches = ["l", "p"]\n')
    text = CAMPAIGN.replace('"mpirun"', '"local"').replace("nodes_per_group = 2", "nodes_per_group = 1")
    text = text.replace("spans = [1, 2]", "spans = [1]").replace('["alone", "all"]', '["alone"]')
    text = text.format(table=f'folder = "{os.environ["SPANFIT_NCCL_TESTS"]}"')
    (tmp_path / "campaign.toml").write_text(text)
    done = spanfit("campaign", "run", tmp_path / "campaign.toml", "--store", tmp_path / "runs")
    if done.exit_code == 0:
        (path,) = (tmp_path / "runs").glob("*.parquet")
        assert all(math.isfinite(time_s) for time_s in pd.read_parquet(path)["time_s"])
        return
    assert done.exit_code == ExitCode.LAUNCH_FAILED, done.output
    assert "then run the same command again" in done.output.splitlines()[-1]

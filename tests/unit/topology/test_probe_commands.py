"""``spanfit place --live slurm`` and its check, over a Slurm that is played by programs on PATH."""

import json
import shlex
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from spanfit.cli.main import spanfit
from spanfit.errors import ConfigError, InfeasibleError, LaunchError
from spanfit.topology.probe_slurm import user_name
from tests.fakes import slurm as fake

NAMES = [f"n{index}" for index in range(8)]
TREE = (
    "SwitchName=l0 Level=0 Nodes=n[0-3]\nSwitchName=l1 Level=0 Nodes=n[4-7]\n"
    "SwitchName=s Level=1 Nodes=n[0-7] Switches=l[0-1]\n"
)
NONE = "No reservations in the system\n"
SHOW = "scontrol show reservation train --oneliner"
JOB = """name = "train"
dp = 2
pp = 2
tp = 8
ngpus_per_node = 8
command = ["train.py"]
"""

Tell = Callable[..., None]


def nodes(reason: str = "", **states: str) -> str:
    """Return what scontrol says of nodes that are idle but for those given."""
    return "".join(
        f"NodeName={name} Gres=gpu:h200:8 State={states.get(name, 'IDLE')} ThreadsPerCore=1 "
        f"Partitions={'small' if name == 'n7' else 'all'} Reason={reason} [root@2026-11-30T10:00:00]\n"
        for name in NAMES
    )


def slurm_says(listed: str = "", reservations: str = NONE, **more: str) -> dict[str, str]:
    return {
        "scontrol ping": "Slurmctld(primary) at ctl is UP\n",
        "scontrol show topology": TREE,
        "scontrol show nodes --oneliner": listed or nodes(),
        "scontrol show reservation --oneliner": reservations,
        **more,
    }


def reservation(names: str, name: str = "train", users: str = "") -> str:
    times = "StartTime=2026-11-30T10:00:00 EndTime=2126-11-30T10:00:00 Duration=1-00:00:00"
    return f"ReservationName={name} {times} Nodes={names} Flags=STATIC Users={users or user_name()} State=ACTIVE\n"


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tell:
    """Give a function that sets what Slurm's commands say."""
    fake.install(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("SAID", str(tmp_path / "said"))
    monkeypatch.delenv("SLURM_JOB_NODELIST", raising=False)
    (tmp_path / "job.toml").write_text(JOB)
    return partial(fake.tell, tmp_path)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(spanfit, ["place", *map(str, arguments)])


def place(folder: Path, *more: object) -> Result:
    return run(folder / "job.toml", "--alpha", 1, "--live", "slurm", *more)


def create(folder: Path) -> str:
    """Return the command that reserves the nodes of the placement, as the fake knows it."""
    assert set(placed(folder)) == {"n0", "n1", "n2", "n3"}
    when = f"StartTime=now Duration=60 Users={user_name()}"
    return f"scontrol create reservation ReservationName=train {when} Nodes=n[0-3] Flags=STATIC_ALLOC"


def placed(folder: Path) -> list[str]:
    return list(json.loads((folder / "p.json").read_text())["rank_map"]["node_names"])


def test_a_dry_run_only_asks(slurm: Tell, tmp_path: Path) -> None:
    slurm(slurm_says(nodes("bad rail", n5="IDLE+DRAIN", n6="ALLOCATED")))
    done = place(tmp_path, "--reserve", "1h", "-o", tmp_path / "p.json")
    assert done.exit_code == 0, done.output
    assert "6 of 8 nodes are free for the job; not free:\n  n5: drained: bad rail\n  n6: allocated\n" in done.stdout
    printed = next(line for line in done.stdout.splitlines() if line.startswith("  scontrol create"))
    assert " ".join(shlex.split(printed)) == create(tmp_path)
    assert "To start it: sbatch --reservation=train FILE" in done.stdout
    assert f"Before it starts: spanfit place --check {tmp_path / 'p.json'} --live slurm\n" in done.stdout
    assert {line.split()[1] for line in fake.asked(tmp_path)} == {"ping", "show"}


def test_json_and_launch_files_keep_stdout_to_themselves(slurm: Tell, tmp_path: Path) -> None:
    slurm(slurm_says())
    done = place(tmp_path, "--json")
    assert json.loads(done.stdout)["job"]["name"] == "train"
    assert "To start it" in done.stderr
    assert "spanfit place --check PLACEMENT --live slurm, with PLACEMENT from -o\n" in done.stderr
    script = place(tmp_path, "--emit", "slurm")
    assert script.stdout.startswith("#!/bin/sh\n")
    assert "To start it" in script.stderr


def test_what_is_applied_is_made_sure_of(slurm: Tell, tmp_path: Path) -> None:
    place_it = partial(place, tmp_path, "--reserve", "1h", "--apply", "-o", tmp_path / "p.json")
    slurm(slurm_says(), "Error creating the reservation: Access/permission denied")
    error = place_it().exception
    assert isinstance(error, LaunchError)
    assert "permission denied; only Slurm's operators may reserve: send the command to one of them" in str(error)
    made = {create(tmp_path): "Reservation created: train\n"}
    slurm(slurm_says(**made))
    error = place_it().exception
    assert isinstance(error, LaunchError)
    assert "reservation train holds no node, expected n[0-3]; undo it with scontrol delete" in str(error)
    slurm(slurm_says(**made), then={create(tmp_path): {SHOW: reservation("n[0-2,5]")}})
    error = place_it().exception
    assert isinstance(error, LaunchError)
    assert "reservation train holds n[0-2,5], expected n[0-3]; undo it with scontrol delete" in str(error)
    slurm(slurm_says(**made, **{SHOW: reservation("n[0-3]")}))
    error = place_it().exception
    assert isinstance(error, LaunchError)
    assert "a reservation train is there already; end it with scontrol delete ReservationName=train" in str(error)
    slurm(slurm_says(), "Error creating the reservation: Requested reservation overlaps with another reservation")
    assert "nodes were taken since they were read: place the job again" in str(place_it().exception)


def test_a_node_that_is_drained_while_it_is_reserved_is_noticed(slurm: Tell, tmp_path: Path) -> None:
    slurm(slurm_says())
    place(tmp_path, "-o", tmp_path / "p.json")
    made, held = create(tmp_path), reservation("n[0-3]")
    after = {SHOW: held, "scontrol show reservation --oneliner": held}
    slurm(slurm_says(**{made: "Reservation created: train\n"}), then={made: after})
    done = place(tmp_path, "--reserve", "1h", "--apply")
    assert done.exit_code == 0, done.output
    assert "reservation train made; end it with scontrol delete ReservationName=train" in done.stderr
    drained = after | {"scontrol show nodes --oneliner": nodes("fan", n2="IDLE+DRAIN")}
    slurm(slurm_says(**{made: "Reservation created: train\n"}), then={made: drained})
    done = place(tmp_path, "--reserve", "1h", "--apply", "--json")
    assert done.exit_code == 1
    assert json.loads(done.stdout)["job"]["name"] == "train"
    assert ", cannot run the job: drained: fan" in next(line for line in done.stderr.splitlines() if line[:3] == "n2,")
    undo = "scontrol delete ReservationName=train"
    assert f"end the reservation with {undo}, and run the same command again" in done.stderr


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ([], "give --cluster FILE, or --live slurm"),
        (["--cluster", "c.toml", "--reserve", "1h"], "--reserve keeps nodes of a running cluster; give --live"),
        (["--live", "slurm", "--apply"], "--apply and --reserve-for belong to --reserve DURATION"),
        (
            ["--live", "slurm", "--reserve", "1w"],
            "found '1w', expected a duration such as 45s, 90m, 2h, 1d12h or 1-12:00:00, or unlimited",
        ),
        (["--live", "slurm", "--reserve", "0h"], "found '0h', expected a minute or more"),
        (["--cluster", "slurm:live"], "--cluster takes a file; give --live slurm to place on the running cluster"),
        (["--live", "kubernetes", "--partition", "all"], "--partition is one of Slurm's"),
        (["--live", "slurm", "--tolerate", "a"], "--tolerate is about taints; give --live kubernetes"),
        (["--live", "slurm", "--use-reserved"], "would take nodes that are reserved for anybody"),
        (["--live", "slurm", "--check", "p.json"], "--check places nothing; leave JOB, --alpha out"),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    slurm: Tell, tmp_path: Path, options: list[str], text: str
) -> None:
    done = run(tmp_path / "job.toml", "--alpha", 1, *options)
    assert done.exit_code == 2
    assert text in " ".join(done.stderr.split())


def test_users_and_durations_of_a_reservation(slurm: Tell, tmp_path: Path) -> None:
    slurm(slurm_says())
    out = place(tmp_path, "--reserve", "unlimited", "--reserve-for", "alice").stdout
    assert "Duration=UNLIMITED Users=alice" in out
    error = place(tmp_path, "--reserve", "2d", "--reserve-for", "a b;c").exception
    assert isinstance(error, ConfigError)
    assert "found 'a b;c', expected names of users" in str(error)
    later = reservation("n[0-4]", "maint", "root").replace("2026-11-30", "2126-11-20").replace("ACTIVE", "INACTIVE")
    slurm(slurm_says(reservations=later))
    assert place(tmp_path, "--reserve", "2d").exit_code == 0
    error = place(tmp_path, "--reserve", "unlimited").exception
    assert isinstance(error, InfeasibleError)
    assert "5 reserved" in str(error)


def test_only_nodes_of_a_partition_count(slurm: Tell, tmp_path: Path) -> None:
    slurm(slurm_says(nodes(n0="DOWN", n1="DOWN", n2="DOWN", n3="DOWN")))
    assert place(tmp_path).exit_code == 0
    error = place(tmp_path, "--partition", "all").exception
    assert isinstance(error, InfeasibleError)
    error = place(tmp_path, "--partition", "none").exception
    assert isinstance(error, ConfigError)
    assert "found none, in which no node is; expected one of: all, small" in str(error)
    slurm(slurm_says())
    said = place(tmp_path, "--partition", "all", "-o", tmp_path / "p.json").stdout
    assert "sbatch --partition=all FILE" in said
    assert f"--check {tmp_path / 'p.json'} --live slurm --partition all\n" in said
    slurm(slurm_says(nodes(n1="DOWN")))
    done = run("--check", tmp_path / "p.json", "--live", "slurm", "--partition", "all")
    assert f"spanfit place --repair {tmp_path / 'p.json'} --failed n1 --live slurm --partition all\n" in done.stderr


def test_the_check_names_what_has_changed(slurm: Tell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slurm(slurm_says())
    place(tmp_path, "-o", tmp_path / "p.json")
    check = partial(run, "--check", tmp_path / "p.json", "--live", "slurm")
    slurm(slurm_says(reservations=reservation("n[0-3]")))
    assert check().exit_code == 0
    moved = TREE.replace("n[0-3]", "n[0-1]").replace("n[4-7]", "n[2,4-7]").replace("n[0-7]", "n[0-2,4-7]")
    slurm(
        slurm_says(nodes("fan", n1="IDLE+DRAIN"), reservation("n0", "other", "bob")) | {"scontrol show topology": moved}
    )
    done = check("--json")
    assert done.exit_code == 1
    found = {one["node"]: one["fault"] for one in json.loads(done.stdout)["findings"]}
    times = "from 2026-11-30T10:00:00 to 2126-11-30T10:00:00"
    assert found == {
        "n0": f"reserved: reservation other of bob {times} (1-0...",
        "n1": "drained: fan",
        "n2": "under l1, was under l0",
        "n3": "not in the cluster",
    }
    busy = nodes(n0="ALLOCATED", n1="ALLOCATED", n2="ALLOCATED", n3="ALLOCATED")
    slurm(slurm_says(busy))
    assert check().exit_code == 1
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[0-3]")
    assert check().exit_code == 0, "the job's own allocation holds them"
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[0-")
    assert isinstance(check().exception, ConfigError)


def test_hostile_words_of_slurm_reach_no_shell_and_no_terminal(slurm: Tell, tmp_path: Path) -> None:
    evil = ["$(reboot)", "`id`", "a;rm", "'q\"", "--all", "\x1b[2J", "y" * 65_536]
    listed = nodes(f"$(id) 'x' \"y\" \x1b[2J [red]{'z' * 65_536}", n4="IDLE+DRAIN", n5="DOWN")
    listed += "".join(f"NodeName={name} Gres=gpu:h200:8 State=IDLE ThreadsPerCore=1 Partitions=all\n" for name in evil)
    # No hostlist carries a bracket.
    tree = TREE.replace("Nodes=n[0-3]", f"Nodes=n[0-3],{','.join(name for name in evil if '[' not in name)}")
    hostile = reservation("n6", "$(id)\x1b[2J", "a;b")
    slurm(slurm_says(listed, hostile) | {"scontrol show topology": tree.replace("'q\"", "q")})
    done = place(tmp_path, "--reserve", "1h", "-o", tmp_path / "p.json")
    assert done.exit_code == 0, done.output
    assert "\x1b" not in done.output
    assert "unusable-name: $(reboot) is no host name" in done.stderr
    assert max(map(len, done.output.splitlines())) < 500
    printed = next(line for line in done.stdout.splitlines() if line.startswith("  scontrol create"))
    assert " ".join(shlex.split(printed)) == create(tmp_path)
    saved = json.loads((tmp_path / "p.json").read_text())
    saved["job"]["name"] = "$(id); x"
    saved["rank_map"]["node_names"][:2] = ["$(id)", "\x1b[2J"]
    (tmp_path / "p.json").write_text(json.dumps(saved))
    done = run("--check", tmp_path / "p.json", "--live", "slurm")
    assert done.exit_code == 1
    assert "\x1b" not in done.output
    assert "--failed '$(id)' --live slurm" in done.stderr

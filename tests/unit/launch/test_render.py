import os
import subprocess
from pathlib import Path

import pytest

from spanfit.launch.render import render_hostfile, render_rankfile, render_slurm, render_torchrun
from spanfit.topology.model import RankMap

GOLDEN = Path(__file__).parents[2] / "data/golden"
PLAIN = RankMap(node_names=("n12", "n3", "n11"), ngpus_per_node=2)
COMMAND = ("train.py", "--lr", "0.1")
HOSTILE_COMMAND = (
    "tr ain.py",
    "$(touch owned)",
    "`touch owned`",
    "'",
    '"',
    "a\nb",
    ";touch owned",
    "*",
    "",
    "\\",
    "-x",
)

# Each fake writes its arguments, NUL after each, and then does what a test needs of the real program.
RECORD = '#!/bin/sh\nprintf "%s\\0" "$@" >> "$RECORDS/{name}.$SLURM_PROCID"\n'
FAKES = {
    "torchrun": RECORD.format(name="torchrun"),
    "uname": '#!/bin/sh\nprintf "%s\\n" "$FAKE_HOST"\n',
    "srun": RECORD.format(name="srun")
    + 'cp "$SLURM_HOSTFILE" "$RECORDS/hostfile"\n'
    + "shift 3\n"
    + 'SLURM_PROCID=0 "$@"\nSLURM_PROCID=1 "$@"\n',
}


class Stage:
    """A folder with fake programs first on PATH, and what they were called with."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name, text in FAKES.items():
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)

    def run(self, script: str, host: str = "") -> subprocess.CompletedProcess[str]:
        environment = {
            "PATH": f"{self.folder}:{os.environ['PATH']}",
            "FAKE_HOST": host,
            "RECORDS": str(self.folder),
            "TMPDIR": str(self.folder),
            "SLURM_PROCID": "0",
        }
        return subprocess.run(
            ["sh", "-c", script], env=environment, cwd=self.folder, capture_output=True, text=True, check=False
        )

    def arguments(self, program: str, process: int = 0) -> list[str]:
        return (self.folder / f"{program}.{process}").read_text().split("\0")[:-1]

    def calm(self) -> bool:
        """Return whether nothing that was smuggled into a name or an argument has run."""
        return not (self.folder / "owned").exists()


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("hostfile.txt", render_hostfile(PLAIN)),
        ("rankfile.txt", render_rankfile(PLAIN)),
        ("torchrun.sh", render_torchrun(PLAIN, COMMAND, port=29600)),
        ("slurm.sh", render_slurm(PLAIN, COMMAND, "pretrain-7b")),
    ],
)
def test_golden(name: str, text: str) -> None:
    assert text == (GOLDEN / name).read_text()


def test_hostfile_and_rankfile_agree_on_the_ranks() -> None:
    hosts = [line.split() for line in render_hostfile(PLAIN).splitlines() if not line.startswith("#")]
    by_slot = [(name, slot) for name, slots in hosts for slot in range(int(slots.removeprefix("slots=")))]
    lines = [line for line in render_rankfile(PLAIN).splitlines() if not line.startswith("#")]
    assert lines == [f"rank {rank}={name} slot={slot}" for rank, (name, slot) in enumerate(by_slot)]
    assert len(lines) == PLAIN.nranks


@pytest.mark.parametrize(
    "name",
    ["a b", "a;b", "$(id)", "a\n", "a#b", "n[1-2]", "+n0", "user@h", "1101", "9a.b", "", "-a", "slots", "max-slots"],
)
def test_open_mpi_files_refuse_what_they_cannot_carry(name: str) -> None:
    rank_map = RankMap(node_names=("n1", name), ngpus_per_node=8)
    for render in (render_hostfile, render_rankfile):
        with pytest.raises(ValueError, match="cannot carry the host name"):
            render(rank_map)


@pytest.mark.parametrize("name", ["n1", "9a", "10.0.0.1", "n1.dom.ain", "slots1", "node_1"])
def test_open_mpi_files_carry_host_names(name: str) -> None:
    assert f"\n{name} slots=8\n" in render_hostfile(RankMap(node_names=(name,), ngpus_per_node=8))


@pytest.mark.parametrize(
    ("names", "ngpus", "found"),
    [((), 8, "0 nodes with 8 GPUs"), (("a",), 0, "1 nodes with 0 GPUs"), (("a", "b", "a"), 8, "nodes a have two node")],
)
def test_every_format_refuses_a_map_of_no_ranks_or_with_a_node_twice(
    names: tuple[str, ...], ngpus: int, found: str
) -> None:
    rank_map = RankMap(node_names=names, ngpus_per_node=ngpus)
    for render in (
        render_hostfile,
        render_rankfile,
        lambda ranks: render_torchrun(ranks, COMMAND),
        lambda ranks: render_slurm(ranks, COMMAND, "j"),
    ):
        with pytest.raises(ValueError, match=found):
            render(rank_map)


@pytest.mark.parametrize("command", [(), ("a\0b",)])
def test_commands_that_no_shell_can_start(command: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="expected a script and its arguments"):
        render_torchrun(PLAIN, command)
    with pytest.raises(ValueError, match="expected a script and its arguments"):
        render_slurm(PLAIN, command, "j")


@pytest.mark.parametrize(("host", "node_rank"), [("n12", 0), ("n3", 1), ("n3.dom.ain", 1), ("n11", 2)])
def test_torchrun_script_finds_its_node_rank(stage: Stage, host: str, node_rank: int) -> None:
    done = stage.run(render_torchrun(PLAIN, COMMAND, port=29600), host)
    assert (done.returncode, done.stderr) == (0, "")
    assert stage.arguments("torchrun") == [
        "--nnodes=3",
        "--nproc-per-node=2",
        "--master-port=29600",
        f"--node-rank={node_rank}",
        "--master-addr=n12",
        *COMMAND,
    ]


@pytest.mark.parametrize("host", ["n1", "n", "N3", "*", "x.n3", "$(touch owned)", ""])
def test_torchrun_script_fails_loudly_elsewhere(stage: Stage, host: str) -> None:
    done = stage.run(render_torchrun(PLAIN, COMMAND), host)
    assert done.returncode == 2
    assert f"host {host.partition('.')[0]} is not in the table" in done.stderr
    assert not (stage.folder / "torchrun.0").exists()
    assert stage.calm()


HOSTILE_NAMES = (
    "$(touch owned)",
    "`touch owned`",
    "a'b",
    'a"b',
    "a;touch owned",
    "a b",
    "*",
    "a) touch owned ;;",
    "-n",
    "é",
)


@pytest.mark.parametrize("name", HOSTILE_NAMES)
@pytest.mark.parametrize("first", [True, False])
def test_torchrun_script_quotes_names_and_arguments(stage: Stage, name: str, first: bool) -> None:
    names = (name, "plain") if first else ("plain", name)
    done = stage.run(render_torchrun(RankMap(node_names=names, ngpus_per_node=8), HOSTILE_COMMAND), name)
    assert (done.returncode, done.stderr) == (0, "")
    assert stage.arguments("torchrun")[3:] == [
        f"--node-rank={names.index(name)}",
        f"--master-addr={names[0]}",
        *HOSTILE_COMMAND,
    ]
    assert stage.calm()


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (("a\nb",), "no short host name in 'a\\\\nb'"),
        (("a\0",), "no short host name"),
        (("10.0.0.1",), "expected host names, not addresses"),
        (("fe80::1",), "expected host names, not addresses"),
        ((".dom",), "no short host name"),
        (("n1.east", "n1.west"), "several hosts are called n1 up to the first dot"),
    ],
)
def test_torchrun_script_refuses_names_it_cannot_tell_apart(names: tuple[str, ...], found: str) -> None:
    with pytest.raises(ValueError, match=found):
        render_torchrun(RankMap(node_names=names, ngpus_per_node=8), COMMAND)


@pytest.mark.parametrize("port", [0, 65536])
def test_port_is_checked(port: int) -> None:
    with pytest.raises(ValueError, match="expected 1 to 65535"):
        render_torchrun(PLAIN, COMMAND, port)


def test_slurm_script_orders_ranks_by_the_host_file(stage: Stage) -> None:
    rank_map = RankMap(node_names=("n10", "n9"), ngpus_per_node=4)
    done = stage.run(render_slurm(rank_map, HOSTILE_COMMAND, "j"))
    assert (done.returncode, done.stderr) == (0, "")
    srun = stage.arguments("srun")
    assert srun[:5] == ["-n", "2", "--distribution=arbitrary", "sh", "-c"]
    assert not any(word.startswith(("-N", "--nodes", "-w", "--ntasks-per-node")) for word in srun)
    assert (stage.folder / "hostfile").read_text() == "n10\nn9\n"
    for process in (0, 1):
        assert stage.arguments("torchrun", process) == [
            "--nnodes=2",
            "--nproc-per-node=4",
            "--master-port=29500",
            f"--node-rank={process}",
            "--master-addr=n10",
            *HOSTILE_COMMAND,
        ]
    assert stage.calm()
    assert not list(stage.folder.glob("tmp.*")), "the host file stays behind"


def test_slurm_script_fails_when_its_step_does(stage: Stage) -> None:
    (stage.folder / "srun").write_text("#!/bin/sh\nexit 7\n")
    assert stage.run(render_slurm(PLAIN, COMMAND, "j")).returncode == 7
    assert not list(stage.folder.glob("tmp.*"))


def test_slurm_asks_for_the_set_of_nodes() -> None:
    names = ("n10", "n9", "n011", "m", "n8")
    lines = render_slurm(RankMap(node_names=names, ngpus_per_node=8), COMMAND, "j").splitlines()
    assert lines[1:5] == [
        "#SBATCH --job-name=j",
        "#SBATCH --nodes=5",
        "#SBATCH --nodelist=m,n[8-10,011]",
        "#SBATCH --exclusive",
    ]


@pytest.mark.parametrize("name", [*HOSTILE_NAMES, "a\nb", "n[1-2]", "n*8", "", "n1,n2", "#n", "n" * 1024])
def test_slurm_refuses_what_its_files_cannot_carry(name: str) -> None:
    with pytest.raises(ValueError, match="Slurm host file cannot carry the host name"):
        render_slurm(RankMap(node_names=("n1", name), ngpus_per_node=8), COMMAND, "j")
    with pytest.raises(ValueError, match="job name is"):
        render_slurm(PLAIN, COMMAND, name)

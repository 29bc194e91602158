from pathlib import Path

import pytest

from spanfit.launch.profile import Container, LaunchProfile, Mount, NodeSettings, Runtime, SlurmSettings
from spanfit.launch.render.mpi import render_hostfile, render_hydra, render_rankfile, render_seqfile
from spanfit.launch.render.slurm import render_slurm
from spanfit.launch.render.torchrun import render_torchrun
from spanfit.topology.model import RankMap
from tests.unit.launch.stage import HOSTILE_COMMAND, HOSTILE_NAMES, Stage, parses

GOLDEN = Path(__file__).parents[2] / "data/golden"
PLAIN = RankMap(node_names=("n12", "n3", "n11"), ngpus_per_node=2)
COMMAND = ("train.py", "--lr", "0.1")
PORT = LaunchProfile(node=NodeSettings(port=29600))
MOUNTS = (
    Mount(source="/scratch", target="/scratch"),
    Mount(source="/data", target="/data", read_only=True),
)


def site(runtime: Runtime, image: str) -> LaunchProfile:
    options = ("--nv",) if runtime is Runtime.APPTAINER else ()
    container = Container(runtime=runtime, image=image, mounts=MOUNTS, workdir="/job", options=options)
    return LaunchProfile(
        container=container,
        slurm=SlurmSettings(
            options=("--partition=train", "--time=24:00:00", '--comment="two words"'),
            gres="gpu:h100",
            mpi="none",
            shell="/bin/bash -l",
            commands=("module load cuda/12", "export MODE=quick"),
        ),
        node=NodeSettings(
            commands=("ulimit -n 64", "echo ready >&2"),
            environment={"NCCL_IB_HCA": "mlx5", "NOTE": "it's $HOME"},
        ),
    )


PYXIS = site(Runtime.PYXIS, "registry.example#ml/train:1")
APPTAINER = site(Runtime.APPTAINER, "image.sif")
ENROOT = site(Runtime.ENROOT, "/images/train.sqsh")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("torchrun.sh", render_torchrun(PLAIN, COMMAND, PORT)),
        ("torchrun_apptainer.sh", render_torchrun(PLAIN, COMMAND, APPTAINER)),
        ("torchrun_enroot.sh", render_torchrun(PLAIN, COMMAND, ENROOT)),
        ("slurm.sh", render_slurm(PLAIN, COMMAND, "pretrain-7b")),
        ("slurm_pyxis.sh", render_slurm(PLAIN, COMMAND, "pretrain-7b", PYXIS)),
        ("slurm_apptainer.sh", render_slurm(PLAIN, COMMAND, "pretrain-7b", APPTAINER)),
        ("slurm_enroot.sh", render_slurm(PLAIN, COMMAND, "pretrain-7b", ENROOT)),
    ],
)
def test_golden(name: str, text: str) -> None:
    assert text == (GOLDEN / name).read_text()
    assert parses(text)


@pytest.mark.parametrize(
    ("names", "ngpus", "found"),
    [
        ((), 8, "0 nodes with 8 GPUs"),
        (("a",), 0, "1 nodes with 0 GPUs"),
        (("a", "b", "a"), 8, "nodes 'a' have two node"),
    ],
)
def test_every_format_refuses_a_map_of_no_ranks_or_with_a_node_twice(
    names: tuple[str, ...], ngpus: int, found: str
) -> None:
    rank_map = RankMap(node_names=names, ngpus_per_node=ngpus)
    for render in (
        render_hostfile,
        render_rankfile,
        render_seqfile,
        render_hydra,
        lambda ranks: render_torchrun(ranks, COMMAND),
        lambda ranks: render_slurm(ranks, COMMAND, "j"),
    ):
        with pytest.raises(ValueError, match=found):
            render(rank_map)


def test_a_message_holds_some_of_many_hostile_names() -> None:
    names = tuple(f"$(id)\x1b[2J{index}" + "x" * 65_536 for index in range(1000))
    for render in (render_hostfile, lambda ranks: render_slurm(ranks, COMMAND, "j")):
        with pytest.raises(ValueError, match=r"cannot carry the host name .*, 990 more; expected letters") as error:
            render(RankMap(node_names=names, ngpus_per_node=8))
        assert str(error.value).isprintable() and len(str(error.value)) < 1000
    with pytest.raises(ValueError, match="job name is") as error:
        render_slurm(PLAIN, COMMAND, names[0])
    assert str(error.value).isprintable() and len(str(error.value)) < 200


@pytest.mark.parametrize("command", [(), ("a\0b",)])
def test_commands_that_no_shell_can_start(command: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="expected a script and its arguments"):
        render_torchrun(PLAIN, command)
    with pytest.raises(ValueError, match="expected a script and its arguments"):
        render_slurm(PLAIN, command, "j")


@pytest.mark.parametrize(("host", "node_rank"), [("n12", 0), ("n3", 1), ("n3.dom.ain", 1), ("n11", 2)])
def test_torchrun_script_finds_its_node_rank(stage: Stage, host: str, node_rank: int) -> None:
    done = stage.run(render_torchrun(PLAIN, COMMAND, PORT), host)
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
        (("n1.east", "n1.west"), "several hosts are called 'n1' up to the first dot"),
    ],
)
def test_torchrun_script_refuses_names_it_cannot_tell_apart(names: tuple[str, ...], found: str) -> None:
    with pytest.raises(ValueError, match=found):
        render_torchrun(RankMap(node_names=names, ngpus_per_node=8), COMMAND)


def test_slurm_script_orders_ranks_by_the_host_file(stage: Stage) -> None:
    rank_map = RankMap(node_names=("n10", "n9"), ngpus_per_node=4)
    done = stage.run(render_slurm(rank_map, HOSTILE_COMMAND, "j"))
    assert (done.returncode, done.stderr) == (0, "")
    srun = stage.arguments("srun")
    assert srun[:6] == ["-n", "2", "--distribution=arbitrary", "--kill-on-bad-exit=1", "--cpu-bind=none", "sh"]
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


@pytest.mark.parametrize(
    ("profile", "expected"),
    [
        (
            APPTAINER,
            "exec --bind=/scratch:/scratch --bind=/data:/data:ro --pwd=/job --nv image.sif",
        ),
        (
            ENROOT,
            "start --mount=/scratch:/scratch:none:x-create=auto,bind,rw --mount=/data:/data:none:x-create=auto,bind,ro "
            "/images/train.sqsh",
        ),
    ],
)
def test_a_container_runs_around_torchrun_and_what_the_node_does_before(
    stage: Stage, profile: LaunchProfile, expected: str
) -> None:
    assert profile.container is not None and profile.container.runtime is not None
    runtime = profile.container.runtime.value
    rank_map = RankMap(node_names=("n10", "n9"), ngpus_per_node=4)
    if profile is ENROOT:
        profile = LaunchProfile(
            container=Container(runtime=Runtime.ENROOT, image="/images/train.sqsh", mounts=MOUNTS), node=profile.node
        )
    for script, process in (
        (render_torchrun(rank_map, HOSTILE_COMMAND, profile), 0),
        (
            render_slurm(rank_map, HOSTILE_COMMAND, "j", LaunchProfile(container=profile.container, node=profile.node)),
            1,
        ),
    ):
        done = stage.run(script, "n9")
        assert (done.returncode, set(done.stderr.split())) == (0, {"ready"})
        words = expected.split()
        assert stage.arguments(runtime)[: len(words)] == words
        assert stage.arguments("torchrun", process) == [
            "--nnodes=2",
            "--nproc-per-node=4",
            "--master-port=29500",
            "--node-rank=1",
            "--master-addr=n10",
            *HOSTILE_COMMAND,
        ]
        found = stage.environment(process)
        assert (found["NCCL_IB_HCA"], found["NOTE"]) == ("mlx5", "it's $HOME")
        (stage.folder / "torchrun.0").unlink()
    assert stage.calm()


def test_srun_gets_the_options_of_pyxis_and_the_batch_script_those_of_the_site(stage: Stage) -> None:
    script = render_slurm(RankMap(node_names=("n10", "n9"), ngpus_per_node=4), HOSTILE_COMMAND, "j", PYXIS)
    assert script.splitlines()[:11] == [
        "#!/bin/bash -l",
        "#SBATCH --job-name=j",
        "#SBATCH --nodes=2",
        "#SBATCH --nodelist=n[9-10]",
        "#SBATCH --exclusive",
        "#SBATCH --gres=gpu:h100:4",
        "#SBATCH --partition=train",
        "#SBATCH --time=24:00:00",
        '#SBATCH --comment="two words"',
        "set -e",
        "module load cuda/12",
    ]
    done = stage.run("module() { :; }\n" + script)
    assert (done.returncode, set(done.stderr.split())) == (0, {"ready"})
    assert stage.arguments("srun")[5:10] == [
        "--mpi=none",
        "--container-image=registry.example#ml/train:1",
        "--container-mounts=/scratch:/scratch,/data:/data:ro",
        "--container-workdir=/job",
        "sh",
    ]
    assert stage.arguments("torchrun", 1)[5:] == list(HOSTILE_COMMAND)
    assert (stage.environment(1)["MODE"], stage.environment(1)["NOTE"]) == ("quick", "it's $HOME")
    assert stage.calm()


def test_a_node_whose_preparation_fails_starts_nothing(stage: Stage) -> None:
    profile = LaunchProfile(node=NodeSettings(commands=("false",)))
    done = stage.run(render_torchrun(PLAIN, COMMAND, profile), "n12")
    assert done.returncode == 1
    assert not (stage.folder / "torchrun.0").exists()


def test_containers_that_a_launcher_does_not_start_are_refused() -> None:
    with pytest.raises(ValueError, match="pyxis is a plug-in of srun"):
        render_torchrun(PLAIN, COMMAND, PYXIS)
    with pytest.raises(ValueError, match="expected pyxis, enroot or apptainer"):
        render_slurm(PLAIN, COMMAND, "j", LaunchProfile(container=Container(image="i")))
    claim = Container(image="i", runtime=Runtime.APPTAINER, mounts=(Mount(claim="data", target="/data"),))
    for runtime in (Runtime.APPTAINER, Runtime.PYXIS):
        profile = LaunchProfile(container=Container(image="i", runtime=runtime, mounts=claim.mounts))
        with pytest.raises(ValueError, match="claim data is a volume of Kubernetes"):
            render_slurm(PLAIN, COMMAND, "j", profile)

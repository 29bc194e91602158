import re
from dataclasses import fields
from pathlib import Path

import pytest

from spanfit.errors import ConfigError
from spanfit.launch.profile import (
    Container,
    KubernetesSettings,
    LaunchProfile,
    Mount,
    NodeSettings,
    Runtime,
    SlurmSettings,
    is_dns_name,
    read_profile,
)

WHOLE = """
[container]
image = "/images/train.sqsh"
runtime = "enroot"
workdir = "/job"
options = ["--rw"]
[[container.mounts]]
source = "/data"
target = "/data"
read_only = true
[slurm]
options = ["--partition=train", "--time=24:00:00", "-A ml", "--nice"]
gres = "gpu:h100"
mpi = "pmix"
shell = "/bin/bash -l"
commands = ["module load cuda"]
[node]
commands = ["ulimit -l unlimited"]
environment = { NCCL_IB_HCA = "mlx5" }
port = 29600
[kubernetes]
namespace = "ml"
host_network = true
shm = "64GiB"
resources = { "rdma/hca" = 1 }
capabilities = ["IPC_LOCK"]
tolerations = ["nvidia.com/gpu"]
kueue_queue = "train"
"""


def read(folder: Path, text: str) -> LaunchProfile:
    path = folder / "site.toml"
    path.write_text(text)
    return read_profile(path)


def test_a_profile_is_read_whole(tmp_path: Path) -> None:
    profile = read(tmp_path, WHOLE)
    mounts = (Mount(source="/data", target="/data", read_only=True),)
    assert profile.container == Container(
        image="/images/train.sqsh", runtime=Runtime.ENROOT, mounts=mounts, workdir="/job", options=("--rw",)
    )
    assert profile.slurm.options == ("--partition=train", "--time=24:00:00", "-A ml", "--nice")
    assert (profile.node.port, dict(profile.node.environment)) == (29600, {"NCCL_IB_HCA": "mlx5"})
    assert (profile.kubernetes.shm, dict(profile.kubernetes.resources)) == (2**36, {"rdma/hca": 1})


def test_no_key_is_required(tmp_path: Path) -> None:
    assert read(tmp_path, "") == LaunchProfile()


def test_every_mistake_is_told_at_once(tmp_path: Path) -> None:
    text = """
    [container]
    image = "train"
    runtime = "enroot"
    [slurm]
    options = ["--nodelist=a", "-N2", "--ntasks-per-node 8", "--dist=block", "no option", "--a\\nb", "--gres=gpu:8",
        "-A ml -N2", '--comment="one']
    shell = "bash"
    [node]
    environment = { "A B" = "x" }
    commands = ["two\\nlines"]
    port = 0
    [kubernetes]
    namespace = "A"
    kueue_queue = "q"
    volcano_queue = "q"
    resources = { gpu = 1 }
    sidecar = true
    """
    with pytest.raises(ConfigError) as error:
        read(tmp_path, text)
    message = str(error.value)
    for expected in (
        "site.toml: container: image: found 'train', expected the path of a .sqsh file",
        "slurm: options: found '--nodelist=a'; spanfit writes --nodelist itself or ranks would lose their order",
        "slurm: options: found '-N2'; spanfit writes --nodes itself",
        "slurm: options: found '--ntasks-per-node 8'",
        "slurm: options: found '--dist=block'; spanfit writes --distribution itself",
        "slurm: options: found 'no option', expected one option of sbatch a line",
        "slurm: options: found '-A ml -N2', expected one option of sbatch a line",
        "slurm: options: found '--comment=\"one', expected one option of sbatch a line",
        "slurm: options: found '--a\\nb'",
        "slurm: options: found '--gres=gpu:8'; spanfit writes --gres itself",
        "slurm: shell: found 'bash', expected a path",
        "node: environment.A B: found 'x', expected a name of letters and digits",
        "node: commands: found 'two\\nlines', expected one line of shell an entry",
        "node: port: found 0, expected 1 to 65535",
        "kubernetes.sidecar: unknown key",
    ):
        assert expected in message
    assert "namespace" not in message, "an unknown key comes before what the known ones hold"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('namespace = "A"', "namespace: found 'A'"),
        ('kueue_queue = "q"\nvolcano_queue = "q"', "kueue_queue: found beside volcano_queue"),
        ("resources = { gpu = 1 }", "resources: found 'gpu', expected a name such as 'rdma/hca'"),
        ('resources = { "rdma/hca" = 0 }', "greater than or equal to 1"),
        ('gpu_resource = "nvidia.com/$(id)"', "resources: found 'nvidia.com/$(id)'"),
        ('capabilities = ["all; rm"]', "capabilities: found 'all; rm'"),
        ('tolerations = ["a b"]', "tolerations: found 'a b'"),
        ('service_account = "A_b"', "service_account: found 'A_b'"),
        ('shm = "much"', "kubernetes.shm"),
    ],
)
def test_what_kubernetes_refuses_is_refused(tmp_path: Path, text: str, found: str) -> None:
    with pytest.raises(ConfigError) as error:
        read(tmp_path, f"[kubernetes]\n{text}\n")
    assert found in str(error.value)


@pytest.mark.parametrize(
    ("keys", "found"),
    [
        ({"source": "/a:b", "target": "/a"}, "source: found '/a:b', expected an absolute path"),
        ({"source": "/a", "target": "data"}, "target: found 'data'"),
        ({"source": "/$(id)", "target": "/a"}, "source: found"),
        ({"source": "/a", "target": "/a,b"}, "target: found"),
        ({"target": "/a"}, "expected one of source"),
        ({"source": "/a", "claim": "b", "target": "/a"}, "expected one of source"),
        ({"claim": "B b", "target": "/a"}, "claim: found 'B b'"),
    ],
)
def test_mounts_that_no_runtime_carries_are_refused(keys: dict[str, str], found: str) -> None:
    with pytest.raises(ValueError, match="expected") as error:
        Mount(**keys)  # type: ignore[arg-type]
    assert found in str(error.value)


@pytest.mark.parametrize("image", ["", "-x", "a\nb"])
def test_an_image_is_no_option(image: str) -> None:
    with pytest.raises(ValueError, match="image: found"):
        Container(image=image)


def test_pyxis_takes_no_option_of_srun_s_own() -> None:
    assert Container(image="i", runtime=Runtime.PYXIS, options=("--no-container-mount-home",))
    with pytest.raises(ValueError, match="options: found '--nodelist=a', expected an option of pyxis"):
        Container(image="i", runtime=Runtime.PYXIS, options=("--nodelist=a",))


def test_the_example_of_the_documents_is_a_profile(tmp_path: Path) -> None:
    page = Path(__file__).parents[3] / "docs" / "launching.md"
    (text,) = re.findall(r"```toml\n(.*?)```", page.read_text(), re.DOTALL)
    profile = read(tmp_path, text)
    assert profile.container is not None and profile.container.runtime is Runtime.PYXIS
    keys = {line.partition("=")[0].strip("# ") for line in text.splitlines() if "=" in line}
    kinds = (Container, SlurmSettings, NodeSettings, KubernetesSettings)
    assert {field.name for kind in kinds for field in fields(kind)} - {"mounts"} <= keys, "a key has no example"


def test_names_of_nodes() -> None:
    assert all(map(is_dns_name, ("n", "n-1.rack2", "10.0.0.1", "a" * 63)))
    assert not any(map(is_dns_name, ("", "n.", "-n", "a" * 64, ".".join(["a" * 60] * 5), "n\n", "é")))

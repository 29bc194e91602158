import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from spanfit.errors import ConfigError
from spanfit.launch.order import HOST_VARIABLE
from spanfit.launch.profile import Container, KubernetesSettings, LaunchProfile, Mount, NodeSettings
from spanfit.launch.render.kubernetes import Workload, render_manifest
from spanfit.launch.render.pinner import render_pinner
from spanfit.topology.model import RankMap
from tests.unit.launch.kubernetes_schemas import check_core, check_manifest
from tests.unit.launch.stage import HOSTILE_COMMAND, HOSTILE_NAMES, Stage, parses

GOLDEN = Path(__file__).parents[2] / "data/golden"
PLAIN = RankMap(node_names=("n12", "n3.rack2.example", "n11"), ngpus_per_node=2)
COMMAND = ("train.py", "--lr", "0.1")
BARE = LaunchProfile(container=Container(image="registry.example/ml/train:1"))
SITE = LaunchProfile(
    container=Container(
        image="registry.example/ml/train:1",
        mounts=(Mount(source="/data", target="/data", read_only=True), Mount(claim="scratch", target="/scratch")),
        workdir="/job",
    ),
    node=NodeSettings(commands=("ulimit -l unlimited",), environment={"NCCL_IB_HCA": "mlx5", "HOME_IS": "$HOME"}),
    kubernetes=KubernetesSettings(
        namespace="ml",
        host_network=True,
        shm=2**36,
        resources={"rdma/hca": 1},
        capabilities=("IPC_LOCK",),
        tolerations=("nvidia.com/gpu",),
        service_account="trainer",
        image_pull_secret="pull",
    ),
)
QUEUES = {
    "kueue": LaunchProfile(container=BARE.container, kubernetes=KubernetesSettings(kueue_queue="train")),
    "volcano": LaunchProfile(container=BARE.container, kubernetes=KubernetesSettings(volcano_queue="train")),
}
PINNED = [Workload.INDEXED_JOB, Workload.PYTORCHJOB]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("jobset.yaml", render_manifest(Workload.JOBSET, PLAIN, COMMAND, "pretrain-7b", SITE)),
        ("indexed_job.yaml", render_manifest(Workload.INDEXED_JOB, PLAIN, COMMAND, "pretrain-7b", SITE)),
        ("pytorchjob.yaml", render_manifest(Workload.PYTORCHJOB, PLAIN, COMMAND, "pretrain-7b", SITE)),
        ("indexed_job_kueue.yaml", render_manifest(Workload.INDEXED_JOB, PLAIN, COMMAND, "j", QUEUES["kueue"])),
        ("jobset_volcano.yaml", render_manifest(Workload.JOBSET, PLAIN, COMMAND, "j", QUEUES["volcano"])),
        ("indexed_job_pinner.sh", render_pinner(Workload.INDEXED_JOB, PLAIN, "pretrain-7b", SITE)),
        ("pytorchjob_pinner.sh", render_pinner(Workload.PYTORCHJOB, PLAIN, "pretrain-7b", SITE)),
    ],
)
def test_golden(name: str, text: str) -> None:
    assert text == (GOLDEN / name).read_text()
    assert name.endswith(".yaml") or parses(text)


@pytest.mark.parametrize("workload", list(Workload))
@pytest.mark.parametrize("profile", [BARE, SITE, *QUEUES.values()], ids=["bare", "site", *QUEUES])
def test_manifests_are_what_their_apis_take(workload: Workload, profile: LaunchProfile) -> None:
    documents = [*yaml.safe_load_all(render_manifest(workload, PLAIN, HOSTILE_COMMAND, "j", profile))]
    for document in documents:
        check_manifest(document)
    assert {document["metadata"]["namespace"] for document in documents} == {profile.kubernetes.namespace}


def test_the_schemas_refuse_what_the_apis_would_drop() -> None:
    (document,) = yaml.safe_load_all(render_manifest(Workload.JOBSET, PLAIN, COMMAND, "j", BARE))
    pod = document["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    pod["schedulingGate"] = []
    with pytest.raises(AssertionError):
        check_manifest(document)
    document["spec"]["replicatedJob"] = []
    with pytest.raises(ConfigError, match="replicatedJob: unknown key"):
        check_manifest(document)


@pytest.mark.parametrize("workload", list(Workload))
def test_no_reader_can_take_a_text_for_anything_else(workload: Workload) -> None:
    names = RankMap(node_names=("n", "1e3", "null", "0x1"), ngpus_per_node=8)
    words = (
        "y",
        "off",
        "1_000",
        "0o17",
        "~",
        "2001-01-01",
        "=",
        "<<",
        ".inf",
        "a: b",
        "#",
        "% d",
        "@x",
        "é\u2028",
        "\x07",
    )
    text = render_manifest(workload, names, words, "n", BARE)
    scalars = [event for event in yaml.parse(text) if isinstance(event, yaml.ScalarEvent)]
    plain = {event.value for event in scalars if event.style is None}
    assert not plain & {*names.node_names, *words}
    assert all(re.fullmatch(r"[a-zA-Z]{3,}|[0-9]+|[a-z.]+/[a-z-]+", word) for word in plain), plain
    assert "&id" not in text
    *_, job = yaml.safe_load_all(text)
    assert list(words) == next(_commands(job))[-len(words) :]


def _commands(value: Any) -> Iterator[list[str]]:
    """Yield the command of each container in a document."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from [inner] if key == "command" else _commands(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _commands(inner)


@pytest.mark.parametrize("workload", list(Workload))
def test_every_pod_tells_the_check_of_the_order_its_node(workload: Workload) -> None:
    text = render_manifest(workload, PLAIN, COMMAND, "j", BARE)
    told = f'- name: "{HOST_VARIABLE}"\n *valueFrom:\n *fieldRef:\n *fieldPath: "spec.nodeName"'
    assert len(re.findall(told, text)) == len(re.findall("containers:", text))


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Put variables into a container's argument as the kubelet does."""
    return re.sub(
        r"\$\$|\$\(([^)]*)\)",
        lambda found: "$" if found[0] == "$$" else variables.get(found[1] or "", found[0]),
        text,
    )


def command_of(pod: dict[str, Any], variables: Mapping[str, str]) -> list[str]:
    return [expand(word, variables) for word in pod["spec"]["containers"][0]["command"]]


def expected_command(node_rank: int, master: str, command: tuple[str, ...]) -> list[str]:
    options = ["--nnodes=3", "--nproc-per-node=2", f"--node-rank={node_rank}", f"--master-addr={master}"]
    return ["torchrun", *options, "--master-port=29500", *command]


def node_of(affinity: dict[str, Any]) -> str:
    (term,) = affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    (field,) = term["matchFields"]
    assert (field["key"], field["operator"], len(field["values"])) == ("metadata.name", "In", 1)
    return str(field["values"][0])


def test_a_jobset_pins_the_pod_of_each_node_rank_and_all_meet_at_the_first() -> None:
    (jobset,) = yaml.safe_load_all(render_manifest(Workload.JOBSET, PLAIN, HOSTILE_COMMAND, "j", BARE))
    jobs = jobset["spec"]["replicatedJobs"]
    assert [job["name"] for job in jobs] == ["n0", "n1", "n2"]
    for node_rank, job in enumerate(jobs):
        pod = job["template"]["spec"]["template"]
        assert node_of(pod["spec"]["affinity"]) == PLAIN.node_names[node_rank]
        assert command_of(pod, {"NAME": "owned"}) == expected_command(node_rank, "j-n0-0-0.j", HOSTILE_COMMAND)
        assert "schedulingGates" not in pod["spec"]
    assert jobset["spec"]["network"] == {"enableDNSHostnames": True, "subdomain": "j"}


def test_pods_of_one_template_are_gated_and_take_their_rank_from_their_index() -> None:
    service, job = yaml.safe_load_all(render_manifest(Workload.INDEXED_JOB, PLAIN, HOSTILE_COMMAND, "j", BARE))
    pod = job["spec"]["template"]
    assert pod["spec"]["schedulingGates"] == [{"name": "spanfit/placed"}]
    assert "affinity" not in pod["spec"]
    assert service["metadata"]["name"] == pod["spec"]["subdomain"]
    for index in range(3):
        found = command_of(pod, {"JOB_COMPLETION_INDEX": str(index), "NAME": "owned"})
        assert found == expected_command(index, "j-0.j", HOSTILE_COMMAND)
    (torch_job,) = yaml.safe_load_all(render_manifest(Workload.PYTORCHJOB, PLAIN, HOSTILE_COMMAND, "j", BARE))
    roles = torch_job["spec"]["pytorchReplicaSpecs"]
    assert {role: spec["replicas"] for role, spec in roles.items()} == {"Master": 1, "Worker": 2}
    for spec in roles.values():
        assert spec["template"]["spec"]["schedulingGates"] == [{"name": "spanfit/placed"}]
        found = command_of(spec["template"], {"RANK": "1", "MASTER_ADDR": "j-master-0", "NAME": "owned"})
        assert found == expected_command(1, "j-master-0", HOSTILE_COMMAND)


def test_a_site_s_settings_reach_every_pod() -> None:
    (jobset,) = yaml.safe_load_all(render_manifest(Workload.JOBSET, PLAIN, COMMAND, "j", SITE))
    for job in jobset["spec"]["replicatedJobs"]:
        pod = job["template"]["spec"]["template"]["spec"]
        main = pod["containers"][0]
        assert pod["hostNetwork"] and pod["dnsPolicy"] == "ClusterFirstWithHostNet"
        assert main["resources"]["limits"] == {"nvidia.com/gpu": "2", "rdma/hca": "1"}
        assert {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": str(2**36)}} in pod["volumes"]
        assert {"name": "mount-1", "persistentVolumeClaim": {"claimName": "scratch"}} in pod["volumes"]
        assert main["command"][:2] == ["sh", "-c"]
        assert expand(main["command"][2], {}).splitlines() == [
            "set -e",
            "export HOME_IS='$HOME'",
            "export NCCL_IB_HCA=mlx5",
            "ulimit -l unlimited",
            'exec "$@"',
        ]


def test_a_queue_gets_the_whole_job() -> None:
    for workload in Workload:
        *_, job = yaml.safe_load_all(render_manifest(workload, PLAIN, COMMAND, "j", QUEUES["kueue"]))
        assert job["metadata"]["labels"] == {"kueue.x-k8s.io/queue-name": "train"}
        assert job["spec"].get("suspend") or job["spec"]["runPolicy"]["suspend"]
    for workload in (Workload.JOBSET, Workload.INDEXED_JOB):
        *_, group, job = yaml.safe_load_all(render_manifest(workload, PLAIN, COMMAND, "j", QUEUES["volcano"]))
        assert group["spec"] == {"minMember": 3, "queue": "train"}
        jobs = job["spec"].get("replicatedJobs", [{"template": job}])
        pods = [one["template"]["spec"]["template"] for one in jobs]
        for pod in pods:
            assert pod["metadata"]["annotations"] == {"scheduling.k8s.io/group-name": "j"}
            assert pod["spec"]["schedulerName"] == "volcano"


@pytest.mark.parametrize("name", [*HOSTILE_NAMES, "a\nb", "", "Node1", "n_1", "n1.", "long", "x" * 64])
@pytest.mark.parametrize("workload", list(Workload))
def test_names_that_kubernetes_refuses_are_refused(workload: Workload, name: str) -> None:
    name = "n" * 65536 if name == "long" else name
    with pytest.raises(ValueError, match="Kubernetes cannot carry the host name") as error:
        render_manifest(workload, RankMap(node_names=("n1", name), ngpus_per_node=8), COMMAND, "j", BARE)
    assert len(str(error.value)) < 400
    with pytest.raises(ValueError, match="job name is"):
        render_manifest(workload, PLAIN, COMMAND, name, BARE)


def test_what_a_form_cannot_carry_is_refused_with_the_one_that_can() -> None:
    nine = RankMap(node_names=tuple(f"n{index}" for index in range(9)), ngpus_per_node=8)
    with pytest.raises(ValueError, match=r"Kueue has at most 8 templates .* use indexed-job with its pinner"):
        render_manifest(Workload.JOBSET, nine, COMMAND, "j", QUEUES["kueue"])
    assert render_manifest(Workload.INDEXED_JOB, nine, COMMAND, "j", QUEUES["kueue"])
    many = RankMap(node_names=tuple(f"n{index}" for index in range(2000)), ngpus_per_node=8)
    with pytest.raises(ValueError, match="use indexed-job with its pinner"):
        render_manifest(Workload.JOBSET, many, COMMAND, "j", BARE)
    one = RankMap(node_names=("n1",), ngpus_per_node=8)
    with pytest.raises(ValueError, match="one node has no worker"):
        render_manifest(Workload.PYTORCHJOB, one, COMMAND, "j", BARE)
    with pytest.raises(ValueError, match="names the node of each pod itself"):
        render_pinner(Workload.JOBSET, one, "j", BARE)
    with pytest.raises(ValueError, match=r"container\.image: missing"):
        render_manifest(Workload.JOBSET, one, COMMAND, "j", LaunchProfile())


PODS = {Workload.INDEXED_JOB: ["pod-2", "pod-0"], Workload.PYTORCHJOB: ["worker-1", "master-0"]}


def patches(stage: Stage) -> dict[str, str]:
    """Return the node that each pod was given, having checked that each patch is one that the API takes."""
    found, words = {}, stage.arguments("kubectl")
    for position, word in enumerate(words):
        if word == "patch":
            patch = yaml.safe_load(words[position + 3].removeprefix("--patch="))
            check_core({"affinity": patch["spec"]["affinity"], "containers": []}, "V1PodSpec")
            assert patch["spec"]["schedulingGates"] == [{"$patch": "delete", "name": "spanfit/placed"}]
            found[words[position + 2]] = node_of(patch["spec"]["affinity"])
    return found


@pytest.mark.parametrize("workload", PINNED)
def test_the_pinner_gives_each_gated_pod_its_node_and_ends_with_the_job(stage: Stage, workload: Workload) -> None:
    last, first = PODS[workload]
    (stage.folder / "pods").write_text(f"late {last}\nearly {first}\n")
    (stage.folder / "job").write_text("j Complete " if workload is Workload.INDEXED_JOB else "j Succeeded ")
    done = stage.run(render_pinner(workload, PLAIN, "j", SITE))
    assert (done.returncode, done.stderr) == (0, "")
    assert patches(stage) == {"late": "n11", "early": "n12"}
    assert {word for word in stage.arguments("kubectl") if "namespace" in word} == {"--namespace=ml"}


@pytest.mark.parametrize("workload", PINNED)
def test_a_pod_that_has_no_node_or_a_patch_that_fails_is_told_and_others_go_on(
    stage: Stage, workload: Workload
) -> None:
    (stage.folder / "pods").write_text(f"odd {PODS[workload][0]}9\nearly {PODS[workload][1]}\n")
    (stage.folder / "job").write_text("j Failed ")
    done = stage.run(render_pinner(workload, PLAIN, "j", SITE), FAKE_PATCH="1")
    assert done.returncode == 0
    assert "which has no node in this pinner" in done.stderr
    assert done.stderr.count("keeps its gate") == 2
    assert set(patches(stage)) == {"early"}


def test_a_pinner_without_a_job_says_so(stage: Stage) -> None:
    for name in ("pods", "job"):
        (stage.folder / name).write_text("")
    done = stage.run(render_pinner(Workload.INDEXED_JOB, PLAIN, "j", BARE))
    assert (done.returncode, done.stderr) == (1, "there is no job.batch j; create it first\n")

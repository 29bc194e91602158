"""Kubernetes: manifests whose pods run on the placed nodes, in the placed order.

Pods of one template cannot have a node each in the spec. Two ways are exact: a JobSet of one replicated job a node,
each with a template of its own; and an Indexed Job or PyTorchJob whose pods are held by a scheduling gate until a
pinner has named each its node.
"""

import json
from collections.abc import Sequence
from enum import StrEnum

from spanfit.launch.profile import KubernetesSettings, LaunchProfile, is_dns_label, is_dns_name
from spanfit.launch.render.names import check_command, check_names, check_rank_map, listed
from spanfit.launch.render.pods import Object, affinity, dump, literal, metadata, pod_template
from spanfit.launch.render.torchrun import preparation
from spanfit.topology.model import RankMap

GATE = "spanfit/placed"
"""The scheduling gate that holds a pod until it is pinned."""

_MAX_NAME = 45
"""Letters of a job's name: pods add a role, an index and a suffix, and host names end at 63."""
_MAX_OBJECT_BYTES = 1_000_000
"""etcd takes 1.5 MiB an object, with what the server adds."""
_KUEUE_PODSETS = 8
"""Templates that a Workload of Kueue may have."""


class Workload(StrEnum):
    """What a job is to Kubernetes."""

    JOBSET = "jobset"
    INDEXED_JOB = "indexed-job"
    PYTORCHJOB = "pytorchjob"


def render_manifest(
    workload: Workload, rank_map: RankMap, command: tuple[str, ...], job_name: str, profile: LaunchProfile
) -> str:
    """Return the YAML of a job, to be given to ``kubectl create``.

    Raises
    ------
    ValueError
        With what is wrong: a name that Kubernetes refuses, no image, or more nodes than the form can carry.
    """
    _check(rank_map, command, job_name, profile)
    match workload:
        case Workload.JOBSET:
            documents = _jobset(rank_map, command, job_name, profile)
        case Workload.INDEXED_JOB:
            documents = _indexed_job(rank_map, command, job_name, profile)
        case Workload.PYTORCHJOB:
            documents = _pytorchjob(rank_map, command, job_name, profile)
    return _HEADS[workload] + dump(documents)


_PINNED_LATER = (
    f"# Pods of one template cannot name a node each: the gate {GATE} holds them until the pinner (spanfit\n"
    "# launch {workload}-pinner) has. kubectl create -f FILE, then run the pinner until the job ends.\n"
)
_HEADS = {
    Workload.JOBSET: (
        "# A JobSet with a replicated job a node: n0 is node rank 0. kubectl create -f FILE (apply would keep a copy\n"
        "# in an annotation, which is too small for many nodes).\n"
    ),
    Workload.INDEXED_JOB: _PINNED_LATER.format(workload=Workload.INDEXED_JOB),
    Workload.PYTORCHJOB: _PINNED_LATER.format(workload=Workload.PYTORCHJOB),
}


def _check(rank_map: RankMap, command: tuple[str, ...], job_name: str, profile: LaunchProfile) -> None:
    check_placed(rank_map, job_name)
    check_command(command)
    if profile.container is None:
        raise ValueError("container.image: missing; pods need one; give --profile FILE with a [container] table")


def check_placed(rank_map: RankMap, job_name: str) -> None:
    """Raise ValueError for names of nodes or of the job that Kubernetes refuses."""
    check_rank_map(rank_map)
    check_names(rank_map.node_names, is_dns_name, "Kubernetes")
    if not is_dns_label(job_name) or len(job_name) > _MAX_NAME:
        raise ValueError(
            f"job name is {listed((job_name,))}; Kubernetes takes lower-case letters, digits and dashes, and its pods "
            f"leave {_MAX_NAME} letters"
        )


def _jobset(rank_map: RankMap, command: tuple[str, ...], job_name: str, profile: LaunchProfile) -> list[Object]:
    nnodes = len(rank_map.node_names)
    settings = profile.kubernetes
    if settings.kueue_queue and nnodes > _KUEUE_PODSETS:
        raise ValueError(
            f"a Workload of Kueue has at most {_KUEUE_PODSETS} templates and this jobset {nnodes}, one a node; "
            f"use {Workload.INDEXED_JOB} with its pinner"
        )
    jobs = []
    for node_rank, name in enumerate(rank_map.node_names):
        argv = _torchrun(rank_map, str(node_rank), f"{job_name}-n0-0-0.{job_name}", command, profile)
        pod = pod_template(rank_map.ngpus_per_node, argv, job_name, profile)
        pod["spec"]["affinity"] = affinity([name])
        job = {"parallelism": 1, "completions": 1, "backoffLimit": 0, "template": pod}
        jobs.append({"name": f"n{node_rank}", "replicas": 1, "template": {"spec": job}})
    spec: Object = {"network": {"enableDNSHostnames": True, "subdomain": job_name}}
    spec |= {"failurePolicy": {"maxRestarts": 0}, **_suspended(settings), "replicatedJobs": jobs}
    jobset = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": metadata(job_name, settings)}
    jobset["spec"] = spec
    size_bytes = len(json.dumps(jobset))
    if size_bytes > _MAX_OBJECT_BYTES:
        raise ValueError(
            f"a jobset of {nnodes} nodes has {size_bytes} bytes and the API server takes about {_MAX_OBJECT_BYTES}; "
            f"use {Workload.INDEXED_JOB} with its pinner"
        )
    return [*_pod_groups(nnodes, job_name, settings), jobset]


def _indexed_job(rank_map: RankMap, command: tuple[str, ...], job_name: str, profile: LaunchProfile) -> list[Object]:
    nnodes, settings = len(rank_map.node_names), profile.kubernetes
    argv = _torchrun(rank_map, "$(JOB_COMPLETION_INDEX)", f"{job_name}-0.{job_name}", command, profile)
    pod = _gated(pod_template(rank_map.ngpus_per_node, argv, job_name, profile))
    pod["spec"]["subdomain"] = job_name
    spec = {"completionMode": "Indexed", "completions": nnodes, "parallelism": nnodes, "backoffLimit": 0}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata(job_name, settings)}
    job["spec"] = spec | _suspended(settings) | {"template": pod}
    service_spec = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": {"batch.kubernetes.io/job-name": job_name},
    }
    named = {"name": job_name, "namespace": settings.namespace}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": named, "spec": service_spec}
    return [service, *_pod_groups(nnodes, job_name, settings), job]


def _pytorchjob(rank_map: RankMap, command: tuple[str, ...], job_name: str, profile: LaunchProfile) -> list[Object]:
    nnodes, settings = len(rank_map.node_names), profile.kubernetes
    if nnodes < 2:
        raise ValueError(f"a pytorchjob of one node has no worker; use {Workload.JOBSET} or {Workload.INDEXED_JOB}")
    argv = _torchrun(rank_map, "$(RANK)", "$(MASTER_ADDR)", command, profile)
    pod = _gated(pod_template(rank_map.ngpus_per_node, argv, job_name, profile))
    # The operator finds its container by this name, and the rendezvous by the name of a port.
    container = pod["spec"]["containers"][0]
    container["name"] = "pytorch"
    container["ports"] = [{"name": "pytorchjob-port", "containerPort": profile.node.port}]
    policy: Object = {"cleanPodPolicy": "None", **_suspended(settings)}
    if settings.volcano_queue:
        policy["schedulingPolicy"] = {"minAvailable": nnodes, "queue": settings.volcano_queue}
        del pod["metadata"]
    roles = {
        role: {"replicas": replicas, "restartPolicy": "Never", "template": pod}
        for role, replicas in (("Master", 1), ("Worker", nnodes - 1))
    }
    job = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": metadata(job_name, settings)}
    job["spec"] = {"runPolicy": policy, "pytorchReplicaSpecs": roles}
    return [job]


def _torchrun(
    rank_map: RankMap, node_rank: str, master: str, command: tuple[str, ...], profile: LaunchProfile
) -> list[str]:
    """Return a container's command line; Kubernetes puts variables in for ``$(NAME)`` and ``$`` for ``$$``."""
    argv = [
        "torchrun",
        f"--nnodes={len(rank_map.node_names)}",
        f"--nproc-per-node={rank_map.ngpus_per_node}",
        f"--node-rank={node_rank}",
        f"--master-addr={master}",
        f"--master-port={profile.node.port}",
        *map(literal, command),
    ]
    script = preparation(profile)
    return [*(["sh", "-c", literal(script), "sh"] if script else []), *argv]


def _gated(pod: Object) -> Object:
    pod["spec"]["schedulingGates"] = [{"name": GATE}]
    return pod


def _suspended(settings: KubernetesSettings) -> Object:
    """Return that the job waits: Kueue lets it go once its quota is reserved."""
    return {"suspend": True} if settings.kueue_queue else {}


def _pod_groups(nnodes: int, job_name: str, settings: KubernetesSettings) -> Sequence[Object]:
    if not settings.volcano_queue:
        return []
    named = {"name": job_name, "namespace": settings.namespace}
    spec = {"minMember": nnodes, "queue": settings.volcano_queue}
    return [{"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": named, "spec": spec}]

"""What Kubernetes takes: the official client's models for its own objects, and the fields of others that we write.

Those of JobSet (jobset.x-k8s.io/v1alpha2), PyTorchJob (kubeflow.org/v1) and Volcano's PodGroup (v1beta1) are the subset
of the upstream types that manifests use, with their names and whether they are required; any other key is refused.
"""

import json
from dataclasses import dataclass
from typing import Any, Literal

import pytest

from spanfit import files


def check_core(document: dict[str, Any], model: str) -> None:
    """Fail where an object holds a key that the client's model lacks, or lacks one that it requires."""
    client = pytest.importorskip("kubernetes.client", reason="the official client is missing; install the extra 'live'")
    api = client.ApiClient()
    loaded = api.deserialize(json.dumps(document), model, "application/json")
    assert api.sanitize_for_serialization(loaded) == document


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    __pydantic_config__ = files.CONFIG

    name: str
    namespace: str
    labels: dict[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTemplate:
    __pydantic_config__ = files.CONFIG

    spec: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicatedJob:
    __pydantic_config__ = files.CONFIG

    name: str
    template: JobTemplate
    replicas: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    __pydantic_config__ = files.CONFIG

    enableDNSHostnames: bool | None = None  # noqa: N815
    subdomain: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FailurePolicy:
    __pydantic_config__ = files.CONFIG

    maxRestarts: int = 0  # noqa: N815


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSetSpec:
    __pydantic_config__ = files.CONFIG

    replicatedJobs: list[ReplicatedJob]  # noqa: N815
    network: Network | None = None
    failurePolicy: FailurePolicy | None = None  # noqa: N815
    suspend: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSet:
    __pydantic_config__ = files.CONFIG

    apiVersion: Literal["jobset.x-k8s.io/v1alpha2"]  # noqa: N815
    kind: Literal["JobSet"]
    metadata: Metadata
    spec: JobSetSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulingPolicy:
    __pydantic_config__ = files.CONFIG

    minAvailable: int | None = None  # noqa: N815
    queue: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPolicy:
    __pydantic_config__ = files.CONFIG

    cleanPodPolicy: Literal["None", "Running", "All"] | None = None  # noqa: N815
    schedulingPolicy: SchedulingPolicy | None = None  # noqa: N815
    suspend: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSpec:
    __pydantic_config__ = files.CONFIG

    replicas: int
    restartPolicy: Literal["Always", "OnFailure", "Never", "ExitCode"]  # noqa: N815
    template: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class PyTorchJobSpec:
    __pydantic_config__ = files.CONFIG

    pytorchReplicaSpecs: dict[Literal["Master", "Worker"], ReplicaSpec]  # noqa: N815
    runPolicy: RunPolicy  # noqa: N815


@dataclass(frozen=True, slots=True, kw_only=True)
class PyTorchJob:
    __pydantic_config__ = files.CONFIG

    apiVersion: Literal["kubeflow.org/v1"]  # noqa: N815
    kind: Literal["PyTorchJob"]
    metadata: Metadata
    spec: PyTorchJobSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class PodGroupSpec:
    __pydantic_config__ = files.CONFIG

    minMember: int  # noqa: N815
    queue: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodGroup:
    __pydantic_config__ = files.CONFIG

    apiVersion: Literal["scheduling.volcano.sh/v1beta1"]  # noqa: N815
    kind: Literal["PodGroup"]
    metadata: Metadata
    spec: PodGroupSpec


def check_manifest(document: dict[str, Any]) -> None:
    """Fail where an object of a manifest is not what its API takes."""
    kind = document["kind"]
    if kind in ("Job", "Service"):
        check_core(document, f"V1{kind}")
    elif kind == "JobSet":
        for job in files.parse(JobSet, document, kind).spec.replicatedJobs:
            check_core(job.template.spec, "V1JobSpec")
    elif kind == "PyTorchJob":
        for role in files.parse(PyTorchJob, document, kind).spec.pytorchReplicaSpecs.values():
            check_core(role.template, "V1PodTemplateSpec")
    else:
        files.parse(PodGroup, document, kind)

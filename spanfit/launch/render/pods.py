"""Pods of Kubernetes as a site's profile wants them, and their YAML."""

from collections.abc import Iterable
from typing import Any

import yaml

from spanfit.launch.profile import KubernetesSettings, LaunchProfile

Object = dict[str, Any]
"""An object of Kubernetes, or a part of one."""

_WIDTH = 10_000
"""Columns after which a line is broken; none is."""


def dump(documents: list[Object]) -> str:
    """Return the YAML of some objects, which Kubernetes reads as PyYAML does."""
    return yaml.dump_all(documents, Dumper=_Quoting, sort_keys=False, explicit_start=True, width=_WIDTH)


class _Quoting(yaml.SafeDumper):
    """Quotes every text but keys: readers of Kubernetes take ``n`` for false and ``1e3`` for 1000, PyYAML does not."""

    def ignore_aliases(self, data: object) -> bool:
        """Return that nothing is written as a reference to what was written before."""
        return True

    def represent_mapping(self, tag: str, mapping: Any, flow_style: bool | None = None) -> yaml.MappingNode:
        """Return a mapping whose keys are plain: they are ours, or names of resources with a slash."""
        node = super().represent_mapping(tag, mapping, flow_style)
        for key, _ in node.value:
            key.style = None
        return node


_Quoting.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else '"'),
)


def literal(text: str) -> str:
    """Return a word of a container's command line as Kubernetes leaves it: ``$(NAME)`` would be put in."""
    return text.replace("$", "$$")


def pod_template(ngpus: int, argv: list[str], job_name: str, profile: LaunchProfile) -> Object:
    """Return the template of pods that run a command with a number of GPUs; the profile must have a container."""
    settings, container = profile.kubernetes, profile.container
    assert container is not None
    resources = {settings.gpu_resource: ngpus, **settings.resources}
    mounted, mounts = _volumes(profile)
    main: Object = {"name": "main", "image": container.image, "command": argv}
    if container.workdir:
        main["workingDir"] = container.workdir
    # A pod's own name is no node's; the start-up check of the order needs the node's.
    main["env"] = [{"name": "SPANFIT_NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]
    main["resources"] = {"limits": {name: str(count) for name, count in resources.items()}}
    if settings.capabilities:
        main["securityContext"] = {"capabilities": {"add": list(settings.capabilities)}}
    if mounts:
        main["volumeMounts"] = mounts
    spec: Object = {"restartPolicy": "Never", **_settings(settings), "containers": [main]}
    if mounted:
        spec["volumes"] = mounted
    if settings.volcano_queue:
        return {"metadata": {"annotations": {"scheduling.k8s.io/group-name": job_name}}, "spec": spec}
    return {"spec": spec}


def _settings(settings: KubernetesSettings) -> Object:
    found: Object = {}
    if settings.host_network:
        found |= {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}
    if settings.service_account:
        found["serviceAccountName"] = settings.service_account
    if settings.image_pull_secret:
        found["imagePullSecrets"] = [{"name": settings.image_pull_secret}]
    if settings.tolerations:
        found["tolerations"] = [{"key": key, "operator": "Exists"} for key in settings.tolerations]
    if settings.volcano_queue:
        found["schedulerName"] = "volcano"
    return found


def _volumes(profile: LaunchProfile) -> tuple[list[Object], list[Object]]:
    """Return the volumes of a pod and where its container has them."""
    container, settings = profile.container, profile.kubernetes
    assert container is not None
    found: list[Object] = []
    mounts: list[Object] = []
    for index, mount in enumerate(container.mounts):
        name = f"mount-{index}"
        claim = {"persistentVolumeClaim": {"claimName": mount.claim}}
        found.append({"name": name, **(claim if mount.claim else {"hostPath": {"path": mount.source}})})
        read_only = {"readOnly": True} if mount.read_only else {}
        mounts.append({"name": name, "mountPath": mount.target, **read_only})
    if settings.shm is not None:
        found.append({"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": str(settings.shm)}})
        mounts.append({"name": "shm", "mountPath": "/dev/shm"})  # noqa: S108
    return found, mounts


def affinity(node_names: Iterable[str]) -> Object:
    """Return the affinity to any of some nodes by name; the label kubernetes.io/hostname may be another.

    A field is matched with one value; terms are alternatives.
    """
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]} for name in node_names]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


def metadata(job_name: str, settings: KubernetesSettings) -> Object:
    """Return the metadata of a job, with the queue of Kueue that it waits in."""
    labels = {"labels": {"kueue.x-k8s.io/queue-name": settings.kueue_queue}} if settings.kueue_queue else {}
    return {"name": job_name, "namespace": settings.namespace, **labels}

"""Which labels of Kubernetes nodes say where a node is: those of clouds and all generations of topograph's."""

import re
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

from spanfit.topology.reading import PLACEHOLDERS

Labels = Mapping[str, str]

HOSTNAME = "kubernetes.io/hostname"
ACCELERATOR_KEYS = (
    "accelerator.topograph.run/domain",
    "xclr.topology.nvidia.com/domain",
    "network.topology.nvidia.com/accelerator",
    "network.topology.kubernetes.io/accelerator",
    "topology.k8s.aws/ultraserver-id",
    "oci.oraclecloud.com/host.gpu_memory_fabric_id",
    "topology.nebius.com/tier-0",
    "ds.coreweave.com/nvlink.domain",
    "nvidia.com/gpu.clique",  # last: the clouds' ids name the physical domain, this one a partition of it
)
MODEL_KEYS = ("nvidia.com/gpu.product", "amd.com/gpu.product-name", "cloud.google.com/gke-accelerator")
_GKE_SUBBLOCK = "cloud.google.com/gce-topology-subblock"
_GKE_ACCELERATOR = "cloud.google.com/gke-accelerator"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheme:
    """Label keys from the leaf up: listed, or a prefix that a number from the leaf up follows."""

    name: str
    listed: tuple[str, ...] = ()
    prefix: str = ""
    is_topograph: bool = False

    def keys(self, present: Set[str]) -> tuple[str, ...]:
        """Return the keys of the scheme among those present on any node, leaf first; none where no leaf is told."""
        if not self.prefix:
            return tuple(key for key in self.listed if key in present) if present & set(self.listed[:1]) else ()
        numbered = re.compile(re.escape(self.prefix) + r"([0-9]{1,2})")
        found = {int(match[1]): key for key in present if (match := numbered.fullmatch(key))}
        return tuple(found[number] for number in sorted(found))


def _listed(prefix: str, *names: str, is_topograph: bool = False) -> Scheme:
    keys = tuple(prefix + name for name in names)
    return Scheme(name=f"{prefix}{{{','.join(names)}}}", listed=keys, is_topograph=is_topograph)


def _numbered(prefix: str) -> Scheme:
    return Scheme(name=f"{prefix}N", prefix=prefix, is_topograph=True)


SCHEMES = (
    _numbered("fabric.topograph.run/tier-"),
    _numbered("network.topology.nvidia.com/tier-"),
    _listed("network.topology.nvidia.com/", "leaf", "spine", "core", is_topograph=True),
    _listed("network.topology.nvidia.com/", "block", "spine", "datacenter", is_topograph=True),
    _listed("network.topology.kubernetes.io/", "block", "spine", "datacenter", is_topograph=True),
    _numbered("topology.kubernetes.io/network-level-"),
    _listed("topology.k8s.aws/network-node-layer-", "3", "2", "1"),  # layer 1 is the top
    _listed("cloud.google.com/gce-topology-", "subblock", "block"),
    _listed("oci.oraclecloud.com/rdma.", "local_block_id", "network_block_id", "hpc_island_id"),
    _listed("topology.nebius.com/tier-", "1", "2", "3"),
    _listed("backend.coreweave.cloud/", "leafgroup", "superpod", "fabric"),
)
"""Newest first within topograph's; topograph's before the clouds' own."""


def choose_scheme(labels: Sequence[Labels]) -> Scheme | None:
    """Return the scheme whose leaf key most nodes carry, the first of equals; None if none is there."""
    present = {key for one in labels for key in one}
    counts = {scheme.name: _carriers(scheme.keys(present), labels) for scheme in SCHEMES}
    best = max(SCHEMES, key=lambda scheme: counts[scheme.name])
    return best if counts[best.name] else None


def _carriers(keys: Sequence[str], labels: Iterable[Labels]) -> int:
    return sum(keys[0] in one for one in labels) if keys else 0


def accelerator_domain(labels: Labels) -> str | None:
    """Return the NVLink domain beyond the host that labels name; on GKE's Grace Blackwell nodes it is the subblock."""
    for key in ACCELERATOR_KEYS:
        if (value := labels.get(key)) and value not in PLACEHOLDERS:
            return value
    if labels.get(_GKE_ACCELERATOR, "").startswith("nvidia-gb"):
        return labels.get(_GKE_SUBBLOCK)
    return None


def gpu_model(labels: Labels) -> str:
    """Return the model of a node's GPUs, "" where no label says it."""
    return next((labels[key] for key in MODEL_KEYS if labels.get(key)), "")

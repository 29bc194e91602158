"""What one source says of nodes, before sources are merged into a cluster; nothing is filled in."""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from spanfit.topology.hostlist import fold_hostlist
from spanfit.topology.model import NodeState, path_label

PLACEHOLDERS = frozenset({"no-imds-data", "no-topology", "none"})
"""Names that stand for "not known" where a switch should be; as switches they would form one giant block."""

CLUSTER_FILE = "cluster-toml"
"""The kind of spanfit's own cluster files."""

SEVERITY = (NodeState.IDLE, NodeState.ALLOCATED, NodeState.RESERVED, NodeState.DRAINED, NodeState.DOWN)
"""States from the one that takes jobs to the one that takes none for longest; of several told, the last counts."""

_SHOWN_CHARACTERS = 80
_JOINED_NAMES = 4
_HOST_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,252}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something odd, though not wrong: a code for programs, what it is about, and a sentence for people."""

    code: str
    text: str
    subject: str = ""

    @property
    def label(self) -> str:
        """The code, with what it is about after a colon where it is about one thing."""
        return f"{self.code}:{self.subject}" if self.subject else self.code

    def __str__(self) -> str:
        """Return the code and the sentence, printable whatever names it holds."""
        return printable(f"{self.code}: {self.text}")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """What a source says of one node.

    Attributes
    ----------
    name : str
    fabric : tuple of str or None
        Switches from the closest to the top, as many as the source knows; None where it gives the node no place.
    leaves : tuple of str
        The switches that the node is cabled to, where there may be several (rails).
    gpus : tuple of (str, int or None) or None
        How many GPUs of each model ("" where unnamed); None where the source does not say.
    accelerator_domain : str or None
    state : NodeState or None
        None where the source does not speak of states.
    words : tuple of str
        The state in the source's own words.
    reason : str
        Why a node takes no job, as people wrote it.
    partitions : tuple of str
    other : tuple of (str, str)
        Places in other topologies of the same source: topology and unit.
    """

    name: str
    fabric: tuple[str, ...] | None = None
    leaves: tuple[str, ...] = ()
    gpus: tuple[tuple[str, int | None], ...] | None = None
    accelerator_domain: str | None = None
    state: NodeState | None = None
    words: tuple[str, ...] = ()
    reason: str = ""
    partitions: tuple[str, ...] = ()
    other: tuple[tuple[str, str], ...] = ()

    @property
    def ngpus(self) -> int | None:
        """GPUs of all models; None where the source does not say."""
        counts = [count for _, count in self.gpus or () if count is not None]
        return None if self.gpus is None or len(counts) < len(self.gpus) else sum(counts)

    @property
    def gpu_model(self) -> str | None:
        """The model of the GPUs; models joined by "+" where they differ, so that no weights of one model apply."""
        return "+".join(model for model, _ in self.gpus or () if model) or None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """Nodes that Slurm keeps for somebody.

    Attributes
    ----------
    name : str
    nodes : tuple of str
    start, end : str
        As the source writes them; from JSON in UTC.
    is_active : bool or None
        Whether it holds its nodes now; None where the source does not say.
    start_s : float or None
        Its start in seconds since 1970; None where it cannot be read.
    is_over : bool
        Whether it ended before now.
    duration : str
    users, flags : tuple of str
    """

    name: str
    nodes: tuple[str, ...]
    start: str
    end: str
    is_active: bool | None
    start_s: float | None = None
    is_over: bool = False
    duration: str = ""
    users: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class HostDevices:
    """GPUs and NICs inside one host: the rails.

    Attributes
    ----------
    gpus : tuple of str
    nics : tuple of str
        Ports of NICs, a dual-port NIC twice.
    closest_nics : tuple of (str, tuple of str)
        For each GPU the NICs that are fewest PCIe hops away; none where there is no NIC.
    numa : tuple of (str, tuple of str)
        GPUs by NUMA node.
    has_nvlink, is_nvlink_full : bool
        Whether any pair, and whether every pair, of GPUs is joined by NVLink or NVSwitch.
    """

    gpus: tuple[str, ...]
    nics: tuple[str, ...]
    closest_nics: tuple[tuple[str, tuple[str, ...]], ...]
    numa: tuple[tuple[str, tuple[str, ...]], ...]
    has_nvlink: bool
    is_nvlink_full: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What one source says.

    Attributes
    ----------
    origin : str
        What messages call the source.
    kind : str
        Its format, such as ``slurm-topology-conf``.
    nodes : tuple of NodeFacts
        In the order of the source.
    findings : tuple of Finding
    tiers : tuple of str
        Names of the tiers, closest first, where the source gives them.
    name : str
        What the source calls the cluster, if anything.
    reservations : tuple of Reservation
    host : HostDevices or None
        Where the source describes the inside of a host.
    scheme : str
        Which labels, topology or shape of the format was read.
    topologies : tuple of str
        Names of all topologies in a file that holds several.
    """

    origin: str
    kind: str
    nodes: tuple[NodeFacts, ...] = ()
    findings: tuple[Finding, ...] = ()
    tiers: tuple[str, ...] = ()
    name: str = ""
    reservations: tuple[Reservation, ...] = ()
    host: HostDevices | None = None
    scheme: str = ""
    topologies: tuple[str, ...] = ()


def printable(text: str) -> str:
    """Return a text in which control characters are escaped, so that no name from outside moves a terminal's cursor."""
    return "".join(one if one.isprintable() else json.dumps(one)[1:-1] for one in text)


def shown(name: str) -> str:
    """Return a name from outside as it may be printed: one line, no control characters, at most 80 characters."""
    text = printable(name[:_SHOWN_CHARACTERS])
    text = text if len(name) <= _SHOWN_CHARACTERS else f"{text}..."
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[: _SHOWN_CHARACTERS - 3]}..."


def folded(names: Iterable[str]) -> str:
    """Return names as a person reads them: a hostlist, as long as ``shown`` allows."""
    listed = list(names)
    try:
        return shown(fold_hostlist(listed))
    except ValueError:
        return shown(", ".join(listed))


def joined(names: Iterable[str]) -> str:
    """Return one name for switches that act as one: ``s0+s1``, or the first and how many more beyond four."""
    listed = list(names)
    return "+".join(listed) if len(listed) <= _JOINED_NAMES else f"{listed[0]}+{len(listed) - 1}"


def depth_findings(nodes: Iterable[NodeFacts]) -> Iterator[Finding]:
    """Yield a finding if nodes lie under differently many switches."""
    by_depth: dict[int, list[str]] = {}
    for node in nodes:
        if node.fabric:
            by_depth.setdefault(len(node.fabric), []).append(node.name)
    if len(by_depth) > 1:
        depth = max(by_depth)
        shallow = [name for found, names in by_depth.items() if found < depth for name in names]
        yield Finding(
            code="ragged-depth",
            text=f"nodes {folded(shallow)} lie under fewer than {depth} switches; "
            "the closest of each also stands for the tiers that it lacks",
        )


def parent_findings(nodes: Iterable[NodeFacts]) -> Iterator[Finding]:
    """Yield a finding for each leaf name that occurs below different switches."""
    paths: dict[str, dict[tuple[str, ...], None]] = {}
    for node in nodes:
        if node.fabric:
            paths.setdefault(node.fabric[0], {})[node.fabric] = None
    for leaf, found in paths.items():
        if len(found) > 1:
            labels = ", ".join(shown(path_label(path)) for path in found)
            text = f"switch {shown(leaf)} has several parents ({labels}): read as {len(found)} that share a name"
            yield Finding(code="leaf-with-two-parents", subject=leaf, text=text)


def gpu_count_findings(nodes: Iterable[NodeFacts]) -> Iterator[Finding]:
    """Yield a finding if nodes with GPUs have different numbers of them."""
    by_count: dict[int, list[str]] = {}
    for node in nodes:
        if node.ngpus:
            by_count.setdefault(node.ngpus, []).append(node.name)
    if len(by_count) > 1:
        parts = "; ".join(f"{count} in {folded(names)}" for count, names in sorted(by_count.items()))
        yield Finding(code="mixed-gpu-count", text=f"nodes differ in their number of GPUs: {parts}")


def unplaced_finding(name: str, why: str) -> Finding:
    """Return the finding of a node that is in no place of the fabric."""
    text = f"{shown(name)} {why}; it is left out of the tree"
    return Finding(code="node-without-topology", subject=name, text=text)


def is_usable_name(name: str) -> bool:
    """Return whether a node name is a host name, so that any hostfile and command can carry it."""
    return _HOST_NAME.fullmatch(name) is not None

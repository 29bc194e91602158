"""Cluster files: spanfit's own TOML, read and written."""

import json
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from spanfit import files
from spanfit.errors import ConfigError
from spanfit.topology.hostlist import expand_hostlist, fold_hostlist
from spanfit.topology.model import Cluster, Node, NodeState, path_label, tier_names
from spanfit.topology.reading import CLUSTER_FILE, NodeFacts, Reading


@dataclass(frozen=True, slots=True, kw_only=True)
class _NodeGroup:
    __pydantic_config__ = files.CONFIG

    names: str
    switches: tuple[str, ...]
    ngpus: int | None = None
    gpu_model: str | None = None
    accelerator_domain: str | None = None
    state: NodeState = NodeState.IDLE

    def __post_init__(self) -> None:
        faults = [*_hostlist_faults(self.names)]
        if not self.switches or not all(self.switches):
            faults.append(f'switches: found {_array(self.switches)}; expected names, such as ["leaf0", "core"]')
        if self.ngpus is not None and self.ngpus < 0:
            faults.append(f"ngpus: found {self.ngpus}; expected at least 0")
        if faults:
            raise ValueError("\n".join(faults))


@dataclass(frozen=True, slots=True, kw_only=True)
class _StateGroup:
    __pydantic_config__ = files.CONFIG

    names: str
    state: NodeState

    def __post_init__(self) -> None:
        if faults := [*_hostlist_faults(self.names)]:
            raise ValueError("\n".join(faults))


@dataclass(frozen=True, slots=True, kw_only=True)
class _ClusterFile:
    __pydantic_config__ = files.CONFIG

    name: str
    nodes: tuple[_NodeGroup, ...]
    tiers: tuple[str, ...] | None = None
    states: tuple[_StateGroup, ...] = ()


def _hostlist_faults(names: str) -> Iterator[str]:
    try:
        if not expand_hostlist(names):
            yield f"names: found {names!r}; expected a hostlist such as node[01-03]"
    except ValueError as error:
        yield f"names: {error}"


def parse_cluster(text: str, origin: str) -> Cluster:
    """Return the cluster that a TOML cluster file describes.

    Parameters
    ----------
    text : str
        ``name``, optional ``tiers`` (by depth otherwise), ``[[nodes]]`` tables with ``names`` (a hostlist),
        ``switches`` (closest first) and optional ``ngpus``, ``gpu_model``, ``accelerator_domain`` and ``state``;
        then optional ``[[states]]`` tables with ``names`` and the ``state`` that replaces the nodes' own.
    origin : str
        What messages call the file.

    Raises
    ------
    ConfigError
        Lists every mistake with key, found and expected.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{origin}: not valid TOML: {error}") from None
    content = files.parse(_ClusterFile, document, origin)
    if not content.nodes:
        raise ConfigError(f"{origin}: nodes: found none; expected at least one [[nodes]] table")
    tiers = tier_names(len(content.nodes[0].switches)) if content.tiers is None else content.tiers
    homes = _homes(content)
    states = [(index, name, group) for index, group in enumerate(content.states) for name in _names(group)]
    faults = [*_tier_faults(content, tiers), *_home_faults(content, homes), *_state_faults(states, homes)]
    if faults:
        raise ConfigError("\n".join(f"{origin}: {fault}" for fault in faults))
    state_of = {name: group.state for _, name, group in states}
    nodes = [_node(name, content.nodes[found[0]], state_of) for name, found in homes.items()]
    return Cluster(name=content.name, tiers=tiers, nodes=tuple(nodes))


def _names(group: _NodeGroup | _StateGroup) -> tuple[str, ...]:
    return expand_hostlist(group.names)


def _node(name: str, group: _NodeGroup, state_of: dict[str, NodeState]) -> Node:
    return Node(
        name=name,
        fabric=group.switches,
        ngpus=group.ngpus,
        gpu_model=group.gpu_model,
        accelerator_domain=group.accelerator_domain,
        state=state_of.get(name, group.state),
    )


def _homes(content: _ClusterFile) -> dict[str, list[int]]:
    """Return the indices of the groups that list each node, in the order of the file."""
    homes: dict[str, list[int]] = {}
    for index, group in enumerate(content.nodes):
        for name in _names(group):
            homes.setdefault(name, []).append(index)
    return homes


def _tier_faults(content: _ClusterFile, tiers: tuple[str, ...]) -> Iterator[str]:
    if content.tiers is not None and (tiers.count("minipod") != 1 or len(set(tiers)) < len(tiers)):
        yield f"tiers: found {', '.join(content.tiers)}; expected different names, one of them minipod"
    source = "nodes[0]" if content.tiers is None else "tiers"
    for index, group in enumerate(content.nodes):
        if len(group.switches) != len(tiers):
            found = f"{len(group.switches)} ({', '.join(group.switches)})"
            yield f"nodes[{index}].switches: found {found}; expected {len(tiers)}, closest first, as in {source}"


def _home_faults(content: _ClusterFile, homes: dict[str, list[int]]) -> Iterator[str]:
    shared: dict[tuple[int, ...], list[str]] = {}
    for name, found in homes.items():
        if len(found) > 1:
            shared.setdefault(tuple(found), []).append(name)
    for indices, names in shared.items():
        noun = "node" if len(names) == 1 else "nodes"
        places = " and ".join(f"nodes[{index}] (leaf {path_label(content.nodes[index].switches)})" for index in indices)
        yield f"{noun} {fold_hostlist(names)} in {places}; expected each node once; remove it from one of them"


def _state_faults(states: list[tuple[int, str, _StateGroup]], homes: dict[str, list[int]]) -> Iterator[str]:
    unknown: dict[int, list[str]] = {}
    first: dict[str, tuple[int, NodeState]] = {}
    for index, name, group in states:
        if name not in homes:
            unknown.setdefault(index, []).append(name)
        earlier, state = first.setdefault(name, (index, group.state))
        if state is not group.state:
            yield f"states[{index}]: found {name} {group.state}, but {state} in states[{earlier}]; expected one state"
    for index, names in unknown.items():
        yield f"states[{index}].names: found {fold_hostlist(names)}; expected nodes that a [[nodes]] table lists"


def cluster_reading(cluster: Cluster, origin: str) -> Reading:
    """Return what a cluster says, as a source beside others."""
    nodes = tuple(
        NodeFacts(
            name=node.name,
            fabric=node.fabric,
            gpus=None if node.ngpus is None and node.gpu_model is None else ((node.gpu_model or "", node.ngpus),),
            accelerator_domain=node.accelerator_domain,
            state=node.state,
        )
        for node in cluster.nodes
    )
    return Reading(origin=origin, kind=CLUSTER_FILE, nodes=nodes, tiers=cluster.tiers, name=cluster.name)


def render_cluster(cluster: Cluster) -> str:
    """Return a cluster as a TOML cluster file, neighbours that differ in name and state only as one table.

    ValueError says which node name a hostlist cannot carry. ``parse_cluster`` reads an equal cluster back.
    """
    lines = [f"name = {_quoted(cluster.name)}", f"tiers = {_array(cluster.tiers)}"]
    for keys, group in groupby(cluster.nodes, key=_node_keys):
        lines += ["", "[[nodes]]", f"names = {_quoted(fold_hostlist(node.name for node in group))}", *keys]
    for state in NodeState:
        names = [node.name for node in cluster.nodes if node.state is state]
        if names and state is not NodeState.IDLE:
            lines += ["", "[[states]]", f"names = {_quoted(fold_hostlist(names))}", f"state = {_quoted(state)}"]
    return "\n".join(lines) + "\n"


def _node_keys(node: Node) -> tuple[str, ...]:
    keys = [f"switches = {_array(node.fabric)}"]
    if node.ngpus is not None:
        keys.append(f"ngpus = {node.ngpus}")
    if node.gpu_model is not None:
        keys.append(f"gpu_model = {_quoted(node.gpu_model)}")
    if node.accelerator_domain is not None:
        keys.append(f"accelerator_domain = {_quoted(node.accelerator_domain)}")
    return tuple(keys)


def _array(names: tuple[str, ...]) -> str:
    return f"[{', '.join(map(_quoted, names))}]"


def _quoted(text: str) -> str:
    # JSON strings are TOML strings, but for DEL, which TOML wants escaped.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")

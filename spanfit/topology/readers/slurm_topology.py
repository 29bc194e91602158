"""Slurm's ``topology.conf`` of the plugin topology/tree, read as Slurm reads it (man topology.conf)."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from spanfit.errors import ConfigError
from spanfit.topology.hostlist import expand_hostlist, fold_hostlist, is_plain_name
from spanfit.topology.model import Cluster, Node, tier_names

_FIELD = re.compile(r"\s*([A-Za-z0-9_.]+)\s*=\s*(?:\"([^\"]*)\"|([^\s\"]+))(?=\s|$)")
_KEYS = ("switchname", "nodes", "switches", "linkspeed")
_UNSUPPORTED = ("block", "ring", "torus")
_Fault = tuple[int, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Switch:
    name: str
    line: int
    nodes: tuple[str, ...]
    children: tuple[str, ...]


def parse_topology_conf(text: str, name: str, origin: str = "topology.conf") -> tuple[Cluster, tuple[str, ...]]:
    """Return the cluster that a topology.conf describes, and warnings.

    Where several switches list the same child, the last one is its parent. In a tree of uneven depth a node's leaf
    also stands for the tiers that the node lacks. Both are warned of, as are islands that no switch joins.

    Parameters
    ----------
    text : str
        The file's text.
    name : str
        What to call the cluster.
    origin : str
        What messages call the file.

    Raises
    ------
    ConfigError
        Lists every mistake with its line: what Slurm refuses, and a node under two leaves, which Slurm lets pass.
    """
    records = [(line, _fields(record)) for line, record in _records(text)]
    _refuse_unsupported([(line, key) for line, (fields, _) in records for key in fields], origin)
    faults: list[_Fault] = []
    switches: dict[str, _Switch] = {}
    for line, (fields, wrong) in records:
        switch, more = _switch(line, fields)
        faults += [(line, fault) for fault in wrong + more]
        first = switches.setdefault(switch.name, switch)
        if first is not switch and switch.name:
            faults.append((line, f"switch {switch.name} is already defined in line {first.line}; expected it once"))
    switches.pop("", None)
    parents = _parents(switches.values())
    faults += [*_child_faults(switches), *_ring_faults(switches, parents), *_node_faults(switches.values())]
    if not faults and not any(switch.nodes for switch in switches.values()):
        faults.append((1, "found no nodes; expected lines such as SwitchName=leaf0 Nodes=node[0-7]"))
    if faults:
        raise ConfigError("\n".join(f"{origin}: line {line}: {fault}" for line, fault in sorted(set(faults))))
    last = {child: listed[-1] for child, listed in parents.items()}
    paths = {switch.name: _path(switch.name, last) for switch in switches.values() if switch.nodes}
    return _cluster(name, switches, paths), (*_warnings(switches, parents), *_path_warnings(paths))


def _records(text: str) -> Iterator[_Fault]:
    """Yield each record with the line where it starts; comments go before continuations are joined, as in Slurm."""
    start, joined = 0, ""
    for number, raw in enumerate([*text.split("\n"), ""], 1):
        line = raw.partition("#")[0].rstrip()
        start = start or number
        joined += line.removesuffix("\\")
        if line.endswith("\\"):
            continue
        if joined.strip():
            yield start, joined
        start, joined = 0, ""


def _fields(record: str) -> tuple[dict[str, str], list[str]]:
    fields: dict[str, str] = {}
    faults = []
    position = 0
    while record[position:].strip():
        match = _FIELD.match(record, position)
        if not match:
            faults.append(f"found {record[position:].strip()[:40]!r}; expected Key=value")
            break
        key = match[1].lower()
        if key in fields:
            faults.append(f"{match[1]} is given twice; expected it once")
        elif key not in _KEYS:
            faults.append(f"found key {match[1]}; expected SwitchName, Nodes, Switches or LinkSpeed")
        fields[key] = match[3] if match[2] is None else match[2]
        position = match.end()
    return fields, faults


def _refuse_unsupported(keys: Iterable[tuple[int, str]], origin: str) -> None:
    first: dict[str, int] = {}
    for line, key in keys:
        for plugin in _UNSUPPORTED:
            if key.startswith(plugin):
                first.setdefault(plugin, line)
    if first:
        raise ConfigError(
            "\n".join(
                f"{origin}: line {line}: topology/{plugin} is unsupported so far; expected SwitchName lines "
                "(topology/tree); describe the cluster in a TOML cluster file instead"
                for plugin, line in first.items()
            )
        )


def _switch(line: int, fields: Mapping[str, str]) -> tuple[_Switch, list[str]]:
    """Return the switch of a record as far as it can be read (name "" where it has none), and what is wrong."""
    faults = []
    name = fields.get("switchname", "")
    if not name:
        faults.append("no SwitchName; expected SwitchName=NAME with Nodes or Switches")
    elif not is_plain_name(name):
        faults.append(f"SwitchName: found {name!r}; expected one name without ranges")
        name = ""
    lists: dict[str, tuple[str, ...]] = {}
    for key in ("Nodes", "Switches"):
        try:
            lists[key] = expand_hostlist(fields.get(key.lower(), ""))
        except ValueError as error:
            faults.append(f"{key}: {error}")
            lists[key] = ()
    if "nodes" in fields and "switches" in fields:
        faults.append(f"switch {name} has both Nodes and Switches; expected one of them")
    return _Switch(name=name, line=line, nodes=lists["Nodes"], children=lists["Switches"]), faults


def _parents(switches: Iterable[_Switch]) -> dict[str, tuple[str, ...]]:
    parents: dict[str, tuple[str, ...]] = {}
    for switch in switches:
        for child in dict.fromkeys(switch.children):
            parents[child] = (*parents.get(child, ()), switch.name)
    return parents


def _child_faults(switches: Mapping[str, _Switch]) -> Iterator[_Fault]:
    for switch in switches.values():
        missing = [child for child in dict.fromkeys(switch.children) if child not in switches]
        if missing:
            children = fold_hostlist(missing)
            yield (
                switch.line,
                f"switch {switch.name} lists {children}; expected switches that a SwitchName line defines",
            )


def _ring_faults(switches: Mapping[str, _Switch], parents: Mapping[str, tuple[str, ...]]) -> Iterator[_Fault]:
    last = {child: listed[-1] for child, listed in parents.items()}
    found: set[frozenset[str]] = set()
    for switch in switches.values():
        path = _path(switch.name, last)
        if path[-1] in last and frozenset(ring := path[path.index(last[path[-1]]) :]) not in found:
            found.add(frozenset(ring))
            yield switches[ring[0]].line, f"switches {', '.join(ring)} lie above one another in a ring; expected a tree"


def _node_faults(switches: Iterable[_Switch]) -> Iterator[_Fault]:
    first: dict[str, _Switch] = {}
    shared: dict[tuple[str, str], list[str]] = {}
    lines: dict[str, int] = {}
    for switch in switches:
        lines[switch.name] = switch.line
        for node in dict.fromkeys(switch.nodes):
            other = first.setdefault(node, switch)
            if other is not switch:
                shared.setdefault((other.name, switch.name), []).append(node)
    for (one, two), nodes in shared.items():
        noun = "node" if len(nodes) == 1 else "nodes"
        yield (
            lines[two],
            f"{noun} {fold_hostlist(nodes)} in two leaves, {one} (line {lines[one]}) and {two} (line {lines[two]}); "
            "expected each node in one leaf; remove it from one of them",
        )


def _path(name: str, parent: Mapping[str, str]) -> tuple[str, ...]:
    """Return the switches from one up to its root; in a ring, up to the last that is new."""
    path = [name]
    while path[-1] in parent and parent[path[-1]] not in path:
        path.append(parent[path[-1]])
    return tuple(path)


def _cluster(name: str, switches: Mapping[str, _Switch], paths: Mapping[str, tuple[str, ...]]) -> Cluster:
    depth = max(map(len, paths.values()))
    nodes = [
        Node(name=node, fabric=(leaf,) * (depth - len(path)) + path)
        for leaf, path in paths.items()
        for node in dict.fromkeys(switches[leaf].nodes)
    ]
    return Cluster(name=name, tiers=tier_names(depth), nodes=tuple(nodes))


def _warnings(switches: Mapping[str, _Switch], parents: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    several: dict[tuple[str, ...], list[str]] = {}
    for child, listed in parents.items():
        if len(listed) > 1:
            several.setdefault(listed, []).append(child)
    for listed, children in several.items():
        noun = "switch" if len(children) == 1 else "switches"
        yield (
            f"{noun} {fold_hostlist(children)} listed under {', '.join(listed)}: Slurm keeps the last, "
            f"{listed[-1]}; if they are parallel, list one switch that stands for them all"
        )
    for switch in switches.values():
        if not switch.nodes and not switch.children:
            yield f"line {switch.line}: switch {switch.name} has neither Nodes nor Switches and is left out"
        if len(set(switch.nodes)) < len(switch.nodes):
            yield f"line {switch.line}: switch {switch.name} lists a node twice; it counts once"


def _path_warnings(paths: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    roots = list(dict.fromkeys(path[-1] for path in paths.values()))
    if len(roots) > 1:
        yield (
            f"no common root: {len(roots)} islands under {_label(roots)}; Slurm starts no job across islands; "
            "add a switch above them if they are connected"
        )
    depth = max(map(len, paths.values()))
    shallow = [leaf for leaf, path in paths.items() if len(path) < depth]
    if shallow:
        yield (
            f"uneven depth: leaves {_label(shallow)} lie under fewer than {depth} levels; "
            "each also stands for the tiers that it lacks"
        )


def _label(names: list[str]) -> str:
    folded = fold_hostlist(names)
    return folded if len(folded) <= 200 else f"{folded[:197]}..."

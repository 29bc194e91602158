"""Slurm's ``topology.yaml`` (25.05 and later): several topologies in one file, one of them the default."""

from spanfit.errors import ConfigError
from spanfit.topology.hostlist import is_plain_name
from spanfit.topology.readers.documents import Place, is_true
from spanfit.topology.readers.slurm_blocks import Block, Blocks, block_facts, make_blocks
from spanfit.topology.readers.slurm_records import Fault, hostlist_field
from spanfit.topology.readers.slurm_topology import block_sizes
from spanfit.topology.readers.slurm_tree import Switch, tree_facts
from spanfit.topology.reading import Finding, Reading, shown

_PLUGINS = ("tree", "block", "flat")


def parse_topology_yaml(document: object, origin: str, topology: str | None = None) -> Reading:
    """Return what one topology of a topology.yaml says: the named one, else the default, else the first.

    Raises
    ------
    ConfigError
        If there is no such topology, it is of a kind that is not read (ring, torus3d), or parts of it are wrong.
    """
    listed: dict[str, Place] = {}
    for item in Place(origin, "", document).items():
        if listed.setdefault(item.get("topology").name(), item) is not item:
            raise item.get("topology").fault("each topology once")
    if not listed:
        raise ConfigError(f"{origin}: empty-topology: found no topologies; expected a list of them")
    marked = [name for name, item in listed.items() if is_true(item.get("cluster_default").value)]
    name = topology or (marked or list(listed))[0]
    if name not in listed:
        raise ConfigError(f"{origin}: found no topology {name!r}; expected one of {shown(', '.join(listed))}")
    item = listed[name]
    plugin = next((plugin for plugin in _PLUGINS if item.get(plugin).value is not None), None)
    if plugin is None:
        found = ", ".join(key for key in item.table() if key not in ("topology", "cluster_default")) or "nothing"
        raise ConfigError(f"{origin}: topology {shown(name)}: found {shown(found)}; expected {', '.join(_PLUGINS)}")
    if plugin == "tree":
        nodes, findings = tree_facts(*_switches(item.get("tree")), origin, f"{name}: switches[{{}}]")
    elif plugin == "block":
        nodes, findings = block_facts(yaml_blocks(item.get("block"), name))
    else:
        text = f"topology {name} is flat: it says nothing of switches"
        nodes, findings = (), (Finding(code="flat-topology", text=text),)
    return Reading(
        origin=origin,
        kind="slurm-topology-yaml",
        nodes=nodes,
        findings=findings,
        scheme=name,
        topologies=tuple(listed),
    )


def _switches(tree: Place) -> tuple[list[Switch], list[Fault]]:
    switches, faults = [], []
    for order, item in enumerate(tree.get("switches").items()):
        wrong: list[str] = []
        name = _unit(item, "switch", wrong)
        nodes, children = (_hostlist(item, key, wrong) for key in ("nodes", "children"))
        if nodes and children:
            wrong.append(f"switch {name} has both nodes and children; expected one of them")
        switches.append(Switch(name=name, order=order, nodes=nodes, children=children))
        faults += [(order, fault) for fault in wrong]
    return switches, faults


def yaml_blocks(block: Place, name: str) -> Blocks:
    """Return the blocks of a topology; ConfigError lists every mistake."""
    blocks, faults = [], []
    for order, item in enumerate(block.get("blocks").items()):
        wrong: list[str] = []
        blocks.append(Block(name=_unit(item, "block", wrong), order=order, nodes=_hostlist(item, "nodes", wrong)))
        faults += [(order, fault) for fault in wrong]
    wrong = []
    sizes = block_sizes((str(size.value) for size in block.get("block_sizes").items()), wrong)
    faults += [(0, fault) for fault in wrong]
    return make_blocks(blocks, sizes, faults, block.origin, f"{name}: blocks[{{}}]")


def _unit(item: Place, key: str, faults: list[str]) -> str:
    name = item.get(key).name()
    if not is_plain_name(name):
        faults.append(f"{key}: found {name!r}; expected one name without ranges")
    return name


def _hostlist(item: Place, key: str, faults: list[str]) -> tuple[str, ...]:
    return hostlist_field({key: item.get(key).text()}, key, faults)

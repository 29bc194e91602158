"""Slurm's ``topology.conf`` of topology/tree and topology/block, read as Slurm reads it (man topology.conf)."""

from collections.abc import Iterable, Sequence

from spanfit.errors import ConfigError
from spanfit.topology.readers.slurm_blocks import Block, Blocks, block_facts, make_blocks
from spanfit.topology.readers.slurm_records import Fault, fields, hostlist_field, name_field, records
from spanfit.topology.readers.slurm_tree import Switch, tree_facts
from spanfit.topology.reading import Reading

_TREE_KEYS = ("switchname", "nodes", "switches", "linkspeed")
_BLOCK_KEYS = ("blockname", "nodes", "blocksizes")
_UNSUPPORTED = ("ring", "torus")
_PLACE = "line {}"


def parse_topology_conf(text: str, origin: str) -> Reading:
    """Return what a topology.conf says.

    Switches that list the same child are parallel and become one. A node in two leaves or blocks has no place. Of
    blocks, consecutive ones form the tiers above, as ``BlockSizes`` says.

    Raises
    ------
    ConfigError
        Lists every mistake with its line: what Slurm refuses, and a file without nodes.
    """
    lines = list(records(text))
    _refuse_unsupported(lines, origin)
    if any(record.lstrip().lower().startswith("block") for _, record in lines):
        nodes, findings = block_facts(parse_blocks(text, origin))
        return Reading(
            origin=origin, kind="slurm-topology-conf", nodes=nodes, findings=findings, scheme="topology/block"
        )
    switches, faults = _switches(lines)
    nodes, findings = tree_facts(switches, faults, origin, _PLACE)
    return Reading(origin=origin, kind="slurm-topology-conf", nodes=nodes, findings=findings, scheme="topology/tree")


def _refuse_unsupported(lines: Iterable[Fault], origin: str) -> None:
    first: dict[str, int] = {}
    for line, record in lines:
        for plugin in _UNSUPPORTED:
            if record.lstrip().lower().startswith(plugin):
                first.setdefault(plugin, line)
    if first:
        raise ConfigError(
            "\n".join(
                f"{origin}: line {line}: topology/{plugin} is unsupported; expected SwitchName lines (topology/tree) "
                "or BlockName lines (topology/block); describe the cluster in a TOML cluster file instead"
                for plugin, line in first.items()
            )
        )


def _switches(lines: Sequence[Fault]) -> tuple[list[Switch], list[Fault]]:
    switches: list[Switch] = []
    faults: list[Fault] = []
    for line, record in lines:
        found, wrong = fields(record, _TREE_KEYS, "SwitchName, Nodes, Switches or LinkSpeed")
        name = name_field(found, "SwitchName", " with Nodes or Switches", wrong)
        nodes, children = (hostlist_field(found, key, wrong) for key in ("Nodes", "Switches"))
        if "nodes" in found and "switches" in found:
            wrong.append(f"switch {name} has both Nodes and Switches; expected one of them")
        faults += [(line, fault) for fault in wrong]
        if name:
            switches.append(Switch(name=name, order=line, nodes=nodes, children=children))
    return switches, faults


def parse_blocks(text: str, origin: str) -> Blocks:
    """Return the blocks of a topology.conf; ConfigError lists every mistake with its line."""
    blocks: list[Block] = []
    sizes: list[int] = []
    faults: list[Fault] = []
    for line, record in records(text):
        found, wrong = fields(record, _BLOCK_KEYS, "BlockName, Nodes or BlockSizes")
        if "blocksizes" in found:
            sizes += block_sizes(found["blocksizes"].split(","), wrong)
        else:
            name = name_field(found, "BlockName", " with Nodes", wrong)
            blocks.append(Block(name=name, order=line, nodes=hostlist_field(found, "Nodes", wrong)))
        faults += [(line, fault) for fault in wrong]
    return make_blocks(blocks, sizes, faults, origin, _PLACE)


def block_sizes(words: Iterable[str], faults: list[str]) -> list[int]:
    """Return sizes in nodes; a word that is no number adds a fault."""
    listed = [word.strip() for word in words]
    wrong = [word for word in listed if not (word.isdecimal() and word.isascii() and len(word) <= 9)]
    if wrong:
        faults.append(f"BlockSizes: found {', '.join(map(repr, wrong))}; expected numbers of nodes such as 18,36")
    return [int(word) for word in listed if word not in wrong]

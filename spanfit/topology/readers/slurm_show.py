"""What ``scontrol show topology`` prints, for topology/tree and topology/block."""

from spanfit.topology.readers.slurm_blocks import Block, block_facts, make_blocks
from spanfit.topology.readers.slurm_records import Fault, fields, hostlist_field, name_field, records
from spanfit.topology.readers.slurm_tree import Switch, tree_facts
from spanfit.topology.reading import Reading

_KEYS = (
    "switchname",
    "level",
    "linkspeed",
    "nodes",
    "switches",
    "blockname",
    "aggregatedblock",
    "blockindex",
    "blocksize",
)
_PLACE = "line {}"


def parse_show_topology(text: str, origin: str) -> Reading:
    """Return what ``scontrol show topology`` says; ConfigError lists every mistake with its line.

    ``Nodes`` of a switch above the leaves is the union of what is below, so only leaves give nodes. Rows of blocks
    (AggregatedBlock) are read from the base blocks and the sizes printed.
    """
    switches: list[Switch] = []
    blocks: list[Block] = []
    sizes: set[int] = set()
    faults: list[Fault] = []
    for line, record in records(text):
        found, wrong = fields(record, _KEYS, "the keys of scontrol show topology")
        nodes = hostlist_field(found, "Nodes", wrong)
        if "switchname" in found:
            name = name_field(found, "SwitchName", "", wrong)
            children = hostlist_field(found, "Switches", wrong)
            is_leaf = found.get("level", "0") == "0"
            switches.append(Switch(name=name, order=line, nodes=nodes if is_leaf else (), children=children))
        elif "blockname" in found or "aggregatedblock" in found:
            size = found.get("blocksize", "")
            if size.isdecimal():
                sizes.add(int(size))
            if "blockname" in found:
                blocks.append(Block(name=name_field(found, "BlockName", "", wrong), order=line, nodes=nodes))
        else:
            wrong.append("found neither SwitchName nor BlockName; expected a line of scontrol show topology")
        faults += [(line, fault) for fault in wrong]
    if blocks and switches:
        faults.append((blocks[0].order, "found blocks beside switches; expected one topology, chosen by its name"))
    if blocks:
        facts = block_facts(make_blocks(blocks, sorted(sizes), faults, origin, _PLACE))
        scheme = "topology/block"
    else:
        facts = tree_facts(switches, faults, origin, _PLACE)
        scheme = "topology/tree"
    return Reading(origin=origin, kind="scontrol-show-topology", nodes=facts[0], findings=facts[1], scheme=scheme)

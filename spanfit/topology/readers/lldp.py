"""Neighbours that hosts hear by LLDP: ``lldpctl -f json`` or ``json0`` of one host, or of several under their names."""

from collections.abc import Iterable, Iterator, Sequence

from spanfit.topology.readers.documents import Place
from spanfit.topology.readers.fabric_graph import Cables, fabric_facts
from spanfit.topology.reading import Finding, NodeFacts, Reading, shown


def lldp_hosts(root: Place, host: str) -> tuple[Place, ...]:
    """Return the outputs in a document, each under its host's name: one of a host of that name, or a table of them."""
    if "lldp" in root.table():
        return (Place(root.origin, host, root.value),)
    return tuple(root.get(name) for name in root.table())


def parse_lldp(hosts: Sequence[Place], origin: str) -> Reading:
    """Return which switches each host hears: outputs by host, as ``lldp_hosts`` gives them, of one file or many.

    ConfigError says where an output has another shape.
    """
    cables = Cables()
    for item in hosts:
        cables.hosts.setdefault(item.key, set()).update(_neighbours(item.get("lldp")))
    cables.switches = {switch: switch for heard in cables.hosts.values() for switch in heard}
    silent = [name for name, heard in cables.hosts.items() if not heard]
    for name in silent:
        del cables.hosts[name]
    nodes, _ = fabric_facts(cables)
    nodes += tuple(NodeFacts(name=name) for name in silent)
    return Reading(origin=origin, kind="lldpctl-json", nodes=nodes, findings=tuple(_findings(nodes)))


def _neighbours(lldp: Place) -> Iterator[str]:
    """Yield names of switches; one neighbour is a table, several are a list, and json0 lists everything."""
    for part in _listed(lldp):
        for interface in _listed(part.get("interface")):
            named = "chassis" in interface.table()
            for port in [interface] if named else [interface.get(name) for name in interface.table()]:
                for chassis in _listed(port.get("chassis")):
                    yield from _names(chassis)


def _names(chassis: Place) -> Iterator[str]:
    if isinstance(chassis.value, dict) and isinstance(chassis.value.get("name"), list):
        for name in chassis.get("name").items():
            yield name.get("value").name()
    elif "id" not in chassis.table():  # a neighbour without a name has only its id
        yield from chassis.table()


def _listed(place: Place) -> list[Place]:
    if isinstance(place.value, list):
        return list(place.items())
    return [place] if place.value else []


def _findings(nodes: Iterable[NodeFacts]) -> Iterator[Finding]:
    groups: dict[tuple[str, ...], list[NodeFacts]] = {}
    for node in nodes:
        if node.fabric is None:
            text = f"{shown(node.name)} hears no switch; it is left out of the tree"
            yield Finding(code="no-neighbour", subject=node.name, text=text)
        else:
            groups.setdefault(node.fabric, []).append(node)
    for members in groups.values():
        if len({node.leaves for node in members}) == 1:
            continue  # the rails of all are alike
        for node in members:
            if len(node.leaves) > 1:
                text = f"{shown(node.name)} hears {shown(', '.join(node.leaves))}, unlike others: read as one leaf"
                yield Finding(code="multi-homed", subject=node.name, text=text)

"""Neighbours that hosts hear by LLDP: ``lldpctl -f json`` or ``json0`` of one host, or of several under their names."""

from collections.abc import Iterable, Iterator

from spanfit.topology.readers.documents import Place
from spanfit.topology.readers.fabric_graph import Cables, fabric_facts
from spanfit.topology.reading import Finding, NodeFacts, Reading, shown


def parse_lldp(document: object, origin: str, host: str) -> Reading:
    """Return which switches each host hears.

    Parameters
    ----------
    document : object
        One host's output, or a table of outputs by host name.
    origin : str
        What messages call the source.
    host : str
        The host's name where the document is one host's.

    Raises
    ------
    ConfigError
        Says where the document has another shape.
    """
    root = Place(origin, "", document)
    hosts = {host: root} if "lldp" in root.table() else {name: root.get(name) for name in root.table()}
    cables = Cables(hosts={name: set(_neighbours(item.get("lldp"))) for name, item in hosts.items()})
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

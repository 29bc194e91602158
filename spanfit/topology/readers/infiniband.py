"""InfiniBand fabrics: what ``ibnetdiscover`` and ``iblinkinfo`` print, and UFM's ports and links."""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence

from spanfit.errors import ConfigError
from spanfit.topology.readers.documents import Place
from spanfit.topology.readers.fabric_graph import (
    Cables,
    fabric_facts,
    host_name,
    rail_findings,
    spare_devices,
    switch_name,
)
from spanfit.topology.reading import Reading, shown

_BLOCK = re.compile(r'^Switch\t\d+ "S-([0-9a-f]+)"\s+# "(.*?)" (?:enhanced|base) port', re.MULTILINE)
_LINK = re.compile(
    r'^\[\d+\](?:\[[^\]]*\])?\s+"([SHR])-([0-9a-f]+)"\[\d+\](?:\([0-9a-f]+\))?\s+# "(.*?)" lid', re.MULTILINE
)
_PORT = re.compile(
    r"^(CA|SW|RT)\s+\S+\s+(\d+)\s+0x([0-9a-f]+)\s.*? - (CA|SW|RT)\s+\S+\s+(\d+)\s+0x([0-9a-f]+)\s+"
    r"\(\s*'?(.*?)'?\s+-\s+'?(.*?)'?\s*\)\s*$",
    re.MULTILINE,
)
_INFO_HEAD = re.compile(r"^(CA|Switch|Router): (?:0x([0-9a-f]+) )?(.*):[ \t]*$", re.MULTILINE)
_INFO_LINK = re.compile(
    r'^[ \t]*(?:0x([0-9a-f]+)\s+)?(?:"([^"]*)"\s+)?\d+\s+(\d+)\[[^\]]*\] ==\(.*?\)==>\s+'
    r'(?:0x[0-9a-f]+\s+)?(?:\d+\s+)?(\d+)\[[^\]]*\] "([^"]+)"',
    re.MULTILINE,
)
_MODEL = re.compile(r"MT\d+ |Mellanox Technologies|localhost ")
_HOST_PORT = "Computer IB Port"

_Devices = dict[tuple[str, str], dict[str, set[str]]]
"""By description and port of devices: what tells them apart, and the switches that each is plugged into."""
_Link = tuple[str, str, str]
"""A port of a switch, what is on it, and the port at that end, "" where it is not told."""


def parse_ibnetdiscover(text: str, origin: str) -> Reading:
    """Return what ``ibnetdiscover`` prints; blocks of switches say it all, those of hosts repeat it.

    ConfigError where no switch has a host.
    """
    cables = Cables()
    devices: _Devices = {}
    heads = list(_BLOCK.finditer(text))
    for head in heads:
        cables.switches[head[1]] = head[2]
        end = text.find("\n\n", head.end())
        for kind, guid, description in _LINK.findall(text, head.end(), len(text) if end < 0 else end):
            if kind == "S":
                cables.switches.setdefault(guid, description)
                cables.join(head[1], guid)
            elif kind == "H":
                devices.setdefault((description, ""), {}).setdefault(guid, set()).add(head[1])
    if not heads:
        _read_ports(text, cables, devices)
    _plug_named(cables, devices)
    return _reading(cables, origin, "ibnetdiscover")


def _plug_named(cables: Cables, devices: _Devices) -> None:
    """Note devices; a name that several share tells no host, and would join their leaves."""
    for (description, _), by_id in devices.items():
        is_shared = len(by_id) > 1 and host_name(description) is not None
        for device, switches in by_id.items():
            for switch in sorted(switches):
                cables.plug_device("" if is_shared else description, device, switch)


def _read_ports(text: str, cables: Cables, devices: _Devices) -> None:
    for kind, port, guid, peer_kind, peer_port, peer_guid, name, peer in _PORT.findall(text):
        ends = {kind: (guid, name, port), peer_kind: (peer_guid, peer, peer_port)}
        for one, (switch, description) in ((kind, (guid, name)), (peer_kind, (peer_guid, peer))):
            if one == "SW":
                cables.switches.setdefault(switch, description)
        if kind == peer_kind == "SW":
            cables.join(guid, peer_guid)
        elif {kind, peer_kind} == {"CA", "SW"}:
            device, description, number = ends["CA"]
            devices.setdefault((description, number), {}).setdefault(device, set()).add(ends["SW"][0])


def parse_iblinkinfo(text: str, origin: str) -> Reading:
    """Return what ``iblinkinfo`` prints, with or without ``--line``; switches are known by name, as peers have no guid.

    What switches say is enough, as devices repeat it. ConfigError where no switch has a host, or two have one name.
    """
    cables = Cables()
    guids: dict[str, set[str]] = {}
    devices: _Devices = {}
    heads = list(_INFO_HEAD.finditer(text))
    headed = {head[3].strip() for head in heads if head[1] == "CA"}
    for guid, name, links in _switch_ports(text, heads):
        guids.setdefault(name, set()).add(guid)
        _plug_all(cables, devices, name, links, headed)
    if shared := [name for name, found in guids.items() if len(found) > 1]:
        raise ConfigError(
            f"{origin}: several switches are called {shown(', '.join(shared))}, and links name no guids; "
            "expected switches with names of their own, or what ibnetdiscover prints"
        )
    _plug_named(cables, devices)
    return _reading(cables, origin, "iblinkinfo")


def _switch_ports(text: str, heads: Sequence[re.Match[str]]) -> Iterator[tuple[str, str, list[_Link]]]:
    """Yield guid and description of switches with ports and what is on them; a switch more than once with --line."""
    ends = [head.start() for head in heads[1:]] + [len(text)]
    for head, end in zip(heads, ends, strict=False):  # without heads there is an end all the same
        if head[1] == "Switch":
            links = _INFO_LINK.findall(text, head.end(), end)
            yield head[2] or "", head[3].strip(), [(port, peer, number) for _, _, port, number, peer in links]
    for guid, name, port, number, peer in [] if heads else _INFO_LINK.findall(text):
        if not _is_device(name.strip()):
            yield guid, name.strip(), [(port, peer, number)]


def _plug_all(
    cables: Cables, devices: _Devices, switch: str, links: Iterable[_Link], headed: Collection[str] = frozenset()
) -> None:
    """Note what a switch, known by its description, has on its ports; those ``headed`` are known to be no switches.

    A port of a device has one cable, so that two cables on it are those of two devices of one name.
    """
    cables.switches[switch] = switch
    for port, description, number in links:
        peer, cable = description.strip(), f"{switch_name(switch)} port {port}"
        if peer in headed or _is_device(peer):
            devices.setdefault((peer, number or cable), {}).setdefault(cable, set()).add(switch)
        else:
            cables.switches[peer] = peer
            cables.join(switch, peer)


def _is_device(description: str) -> bool:
    # Often only the description tells a peer's kind; unnamed devices are called after their model.
    return host_name(description) is not None or _MODEL.match(description) is not None


def parse_ufm(document: object, origin: str) -> Reading:
    """Return what UFM lists under ``/ufmRest/resources/ports`` or ``/ufmRest/resources/links``.

    ConfigError where no switch has a host, or the document has another shape.
    """
    cables = Cables()
    devices: _Devices = {}
    for item in Place(origin, "", document).items():
        if item.get("source_guid").value:
            one, two = (item.get(f"{end}_port_node_description").text() for end in ("source", "destination"))
            switch, peer = (two, one) if _is_device(_port_owner(one)) else (one, two)
            link = (switch.partition(":")[2], _port_owner(peer), peer.partition(":")[2])
            _plug_all(cables, devices, _port_owner(switch), [link])
        elif item.get("system_name").text() and item.get("peer_node_name").text():
            _plug_port(cables, devices, item)
    _plug_named(cables, devices)
    for host in cables.hosts:
        cables.switches.pop(host, None)  # the peer of a switch's port may be a host
    cables.uplinks = {pair for pair in cables.uplinks if not cables.hosts.keys() & set(pair)}
    return _reading(cables, origin, "ufm-ports")


def _plug_port(cables: Cables, devices: _Devices, item: Place) -> None:
    """Note a port of UFM's list; systems that are called after their model or localhost are no one host."""
    system, peer = item.get("system_name").text(), item.get("peer_node_name").text()
    guid, description = item.get("guid").text(), item.get("node_description").text()
    is_host = item.get("description").value == _HOST_PORT
    if is_host and _MODEL.match(f"{system} "):
        cables.plug_device(system, guid or f"{system} on {peer}", peer)
    elif is_host and guid and host_name(description) == system:
        number = str(item.get("number").value)
        devices.setdefault((description, number), {}).setdefault(guid, set()).add(peer)
    elif is_host:
        cables.hosts.setdefault(system, set()).add(peer)
    elif not _MODEL.match(f"{peer} "):
        cables.switches.setdefault(system, system)
        cables.join(system, peer)
    cables.switches.setdefault(peer, peer)


def _port_owner(description: str) -> str:
    """Return the node in ``leaf01:1/3/1``; hosts stand as ``gpu-01 mlx5_0``."""
    return description.partition(":")[0].strip()


def _reading(cables: Cables, origin: str, kind: str) -> Reading:
    if not cables.hosts:
        raise ConfigError(
            f"{origin}: empty-topology: found no host on a switch; expected devices that are called after their host, "
            "such as 'gpu-01 mlx5_0'"
        )
    nodes, findings = fabric_facts(cables)
    findings += tuple(rail_findings(nodes, spare_devices(cables)))
    return Reading(origin=origin, kind=kind, nodes=nodes, findings=findings)

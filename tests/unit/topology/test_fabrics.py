"""Cables of InfiniBand and Ethernet fabrics give the tree that they were drawn from, whatever the format."""

from collections.abc import Callable
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanfit.errors import ConfigError
from spanfit.topology.merge import crossing
from spanfit.topology.readers.documents import Place
from spanfit.topology.readers.fabric_graph import Cables, fabric_facts, host_name, natural, switch_name
from spanfit.topology.readers.infiniband import parse_iblinkinfo, parse_ibnetdiscover, parse_ufm
from spanfit.topology.readers.lldp import lldp_hosts, parse_lldp
from spanfit.topology.reading import NodeFacts, Reading

Links = list[tuple[str, str]]


def make_links(
    minipods: int, groups: int, hosts: int, rails: int, missing: set[tuple[str, int]] | None = None
) -> Links:
    """Return cables, device or lower switch first: rail leaves, a spine for each rail of a minipod, two cores."""
    links = []
    for m in range(minipods):
        for g in range(groups):
            for rail in range(rails):
                links += [
                    (f"m{m}g{g}n{n} mlx5_{rail}", f"m{m}g{g}r{rail}")
                    for n in range(hosts)
                    if (f"m{m}g{g}n{n}", rail) not in (missing or ())
                ]
                links.append((f"m{m}g{g}r{rail}", f"m{m}s{rail}"))
        links += [(f"m{m}s{rail}", f"core{core}") for rail in range(rails) for core in range(2)]
    return links


def sides(links: Links) -> dict[str, list[str]]:
    """Return what is plugged into each switch."""
    found: dict[str, list[str]] = {}
    for lower, upper in links:
        found.setdefault(upper, []).append(lower)
        if " " not in lower:
            found.setdefault(lower, []).append(upper)
    return found


def described(name: str) -> str:
    """Return what a switch or device calls itself; devices that share a name differ after a ``#``."""
    return name.partition("#")[0] if " " in name else f"MF0;{name}:MQM9700/U1"


def as_ibnetdiscover(links: Links) -> str:
    guids = {name: f"{index:016x}" for index, name in zip(count(1), {name: None for pair in links for name in pair})}
    lines = ["# Topology file: generated on a day"]
    for switch, peers in sides(links).items():
        lines += ["", f"switchguid=0x{guids[switch]}({guids[switch]})"]
        lines.append(f'Switch\t65 "S-{guids[switch]}"\t\t# "{described(switch)}" enhanced port 0 lid 1 lmc 0')
        for port, peer in enumerate(peers, 1):
            kind, tail = ("H", f"({guids[peer]}) ") if " " in peer else ("S", "")
            lines.append(f'[{port}]\t"{kind}-{guids[peer]}"[1]{tail}\t\t# "{described(peer)}" lid 2 4xNDR')
        lines.append(f'[65]\t"H-{"a" * 16}"[1](a) \t\t# "Mellanox Technologies Aggregation Node" lid 2 4xNDR')
    return "\n".join(lines) + "\n"


def as_ports(links: Links) -> str:
    guids = {name: f"{index:016x}" for index, name in zip(count(1), {name: None for pair in links for name in pair})}
    lines = []
    for switch, peers in sides(links).items():
        for port, peer in enumerate(peers, 1):
            kind = "CA" if " " in peer else "SW"
            ends = f"SW  7 {port:3} 0x{guids[switch]} 4x NDR - {kind}   2  1 0x{guids[peer]}"
            lines.append(f"{ends} ( '{described(switch)}' - '{described(peer)}' )")
        lines.append(f"SW  7  99 0x{guids[switch]} 4x ???")
    return "\n".join(lines) + "\n"


def as_iblinkinfo(links: Links) -> str:
    lines = []
    for switch, peers in sides(links).items():
        lines.append(f"Switch: 0x00ab {described(switch)}:")
        for port, peer in enumerate(peers, 1):
            state = (
                "( 4X   106.25 Gbps Active/  LinkUp)",
                "( 4X 10.0 Gbps (FDR10) Active/ LinkUp) (HOQ:1 VL_Stall:7)",
            )[port % 2]
            lines.append(f'          69 {port:4}[  ] =={state}==>       9    1[  ] "{described(peer)}" ( )')
        lines.append('          69   64[  ] ==(                Down/ Polling)==>             [  ] "" ( )')
    for device in [lower for lower, _ in links if " " in lower]:
        lines += [
            f"CA: {described(device)}:",
            f'      0x01      9    1[  ] ==( 4X Active/ LinkUp)==>      69    1[  ] "{described("x")}" ( )',
        ]
    return "\n".join(lines) + "\n"


def as_link_lines(links: Links) -> str:
    lines = []
    for switch, peers in sides(links).items():
        for port, peer in enumerate(peers, 1):
            head = f'0x00000000000000ab "{described(switch):>30}"     69 {port:4}[  ]'
            link = "==( 4X 106.25 Gbps Active/ LinkUp)==>  0x00000000000000cd      9    1[  ]"
            lines.append(f'{head} {link} "{described(peer)}" ( )')
    return "\n".join(lines) + "\n"


def ufm_ports(links: Links) -> object:
    return [
        {
            "system_name": lower.partition(" ")[0],
            "peer_node_name": upper,
            "description": "Computer IB Port" if " " in lower else "Switch IB Port",
            "node_description": described(lower),
            "guid": f"0x{index}",
            "number": 1,
        }
        for index, (lower, upper) in enumerate(links)
    ]


def ufm_links(links: Links) -> object:
    return [
        {
            "source_guid": "0x1",
            "source_port_node_description": f"{lower}:1/3/1" if " " not in lower else f"{described(lower)}:1",
            "destination_guid": "0x2",
            "destination_port_node_description": f"{upper}:1/4/1",
        }
        for lower, upper in links
    ]


READERS: dict[str, Callable[[Links], Reading]] = {
    "ibnetdiscover": lambda links: parse_ibnetdiscover(as_ibnetdiscover(links), "f"),
    "ibnetdiscover -p": lambda links: parse_ibnetdiscover(as_ports(links), "f"),
    "iblinkinfo": lambda links: parse_iblinkinfo(as_iblinkinfo(links), "f"),
    "iblinkinfo --line": lambda links: parse_iblinkinfo(as_link_lines(links), "f"),
    "ufm ports": lambda links: parse_ufm(ufm_ports(links), "f"),
    "ufm links": lambda links: parse_ufm(ufm_links(links), "f"),
}


def by_name(reading: Reading) -> dict[str, NodeFacts]:
    return {node.name: node for node in reading.nodes}


def labels(reading: Reading) -> list[str]:
    return [finding.label for finding in reading.findings]


@pytest.mark.parametrize("name", READERS)
def test_every_format_gives_the_tree_with_its_missing_rail(name: str) -> None:
    reading = READERS[name](make_links(2, 2, 3, 2, {("m1g0n2", 1)}))
    nodes = by_name(reading)
    assert list(nodes) == [f"m{m}g{g}n{n}" for m in range(2) for g in range(2) for n in range(3)]
    assert nodes["m0g1n0"].fabric == ("m0g1r0+m0g1r1", "m0s0+m0s1", "core0+core1")
    assert nodes["m1g0n2"].fabric == nodes["m1g0n0"].fabric
    assert nodes["m1g0n2"].leaves == ("m1g0r0",)
    assert labels(reading) == ["missing-rail:m1g0n2:m1g0r1"]


@given(st.integers(1, 3), st.integers(1, 3), st.integers(2, 4), st.integers(2, 5), st.data())
def test_rails_merge_while_each_has_hosts_in_common(
    minipods: int, groups: int, hosts: int, rails: int, data: st.DataObject
) -> None:
    """Any one rail of each host but the first of a leaf may be missing: the first holds all rails together."""
    missing = {
        (f"m{m}g{g}n{n}", data.draw(st.integers(0, rails - 1)))
        for m in range(minipods)
        for g in range(groups)
        for n in range(1, hosts)
        if data.draw(st.booleans())
    }
    nodes = by_name(READERS["ibnetdiscover"](make_links(minipods, groups, hosts, rails, missing)))
    truth = {name: (name[: name.index("n")], name[:2], "core") for name in nodes}
    assert crossing(truth, {name: node.fabric or () for name, node in nodes.items()}) == []
    assert len({node.fabric for node in nodes.values()}) == minipods * groups


def test_a_device_without_a_name_explains_a_missing_rail() -> None:
    links = make_links(1, 1, 3, 2)
    links = [
        ("MT4129 ConnectX7   Mellanox Technologies", up) if low == "m0g0n2 mlx5_1" else (low, up) for low, up in links
    ]
    for name in ("ibnetdiscover", "iblinkinfo"):
        reading = READERS[name](links)
        assert labels(reading) == ["unnamed-hca:1"]
        assert by_name(reading)["m0g0n2"].fabric == ("m0g0r0+m0g0r1", "m0s0+m0s1", "core0+core1")


@pytest.mark.parametrize("name", READERS)
def test_hosts_of_one_name_join_no_leaves(name: str) -> None:
    links = [*make_links(2, 1, 2, 1), ("ubuntu mlx5_0#1", "m0g0r0"), ("ubuntu mlx5_0#2", "m1g0r0")]
    reading = READERS[name](links)
    nodes = by_name(reading)
    assert list(nodes) == ["m0g0n0", "m0g0n1", "m1g0n0", "m1g0n1"]
    assert nodes["m0g0n0"].fabric != nodes["m1g0n0"].fabric
    assert labels(reading) == ["unnamed-hca:2"]


@pytest.mark.parametrize("write", [as_iblinkinfo, as_link_lines])
def test_switches_of_one_name_are_refused_where_links_have_no_guid(write: Callable[[Links], str]) -> None:
    text = write([("a mlx5_0", "l0"), ("b mlx5_0", "l1")]).replace("l1", "l0")
    assert len(parse_iblinkinfo(text, "f").nodes) == 2
    head, _, tail = text.rpartition("ab ")
    with pytest.raises(ConfigError, match="several switches are called MF0;l0:MQM9700/U1"):
        parse_iblinkinfo(f"{head}ac {tail}", "f")


def test_a_device_that_iblinkinfo_heads_as_one_is_no_switch() -> None:
    text = as_iblinkinfo([("a mlx5_0", "l0"), ("b mlx5_0", "l0")]).replace("b mlx5_0", "node07")
    reading = parse_iblinkinfo(text, "f")
    assert [(node.name, node.fabric) for node in reading.nodes] == [("a", ("l0",))]
    assert labels(reading) == ["unnamed-hca:1"]


@pytest.mark.parametrize(
    ("system", "codes"),
    [
        ("localhost", ["unnamed-hca:1"]),
        ("MT4129 ConnectX7   Mellanox Technologies", ["unnamed-hca:1"]),
        ("Mellanox Technologies Aggregation Node", []),
    ],
)
def test_ufm_systems_that_are_no_host_join_no_leaves(system: str, codes: list[str]) -> None:
    ports = ufm_ports([("a mlx5_0", "l0"), ("b mlx5_0", "l1")])
    assert isinstance(ports, list)
    for leaf in ("l0", "l1"):
        ports.append({"system_name": system, "peer_node_name": leaf, "description": "Computer IB Port", "guid": "9"})
        ports.append({"system_name": leaf, "peer_node_name": system, "description": "Switch IB Port"})
    reading = parse_ufm(ports, "f")
    assert {name: node.fabric for name, node in by_name(reading).items()} == {"a": ("l0",), "b": ("l1",)}
    assert labels(reading) == codes


def test_a_manager_on_a_spine_makes_no_leaf_of_it() -> None:
    reading = READERS["ibnetdiscover"]([*make_links(1, 2, 4, 1), ("ufm1 mlx5_0", "m0s0")])
    assert by_name(reading)["m0g0n0"].fabric == ("m0g0r0", "m0s0", "core0+core1")
    assert by_name(reading)["ufm1"].fabric is None
    assert labels(reading) == ["host-above-leaves:ufm1"]


def test_switches_of_one_name_are_told_apart_by_their_guid() -> None:
    text = as_ibnetdiscover([("a mlx5_0", "l0"), ("b mlx5_0", "l1")]).replace("MF0;l0:", "MF0;l1:")
    fabrics = [node.fabric for node in parse_ibnetdiscover(text, "f").nodes]
    assert len(set(fabrics)) == 2
    assert all(fabric and fabric[0].startswith("l1 (") for fabric in fabrics)


def test_many_parallel_switches_have_a_short_name() -> None:
    reading = READERS["ibnetdiscover"](make_links(1, 1, 2, 12))
    assert reading.nodes[0].fabric == ("m0g0r0+11", "m0s0+11", "core0+core1")


@pytest.mark.parametrize(
    ("description", "host"),
    [
        ("gpu-01 mlx5_0", "gpu-01"),
        ("gpu-01.site HCA-1", "gpu-01.site"),
        ("gpu-01   mlx5_bond_0", "gpu-01"),
        ("n1 hfi1_0", "n1"),
        ("localhost mlx5_0", None),
        ("MT4129 ConnectX7   Mellanox Technologies", None),
        ("$(reboot) mlx5_0", "$(reboot)"),
        ("'; rm -rf / mlx5_0", None),
        ("", None),
    ],
)
def test_hosts_in_descriptions(description: str, host: str | None) -> None:
    assert host_name(description) == host


def test_names_of_switches_and_their_order() -> None:
    assert switch_name("MF0;leaf-01-03:MQM9701/U1") == "leaf-01-03"
    assert switch_name("Quantum Mellanox Technologies") == "Quantum Mellanox Technologies"
    assert sorted(["n10", "n2", "10", "a", "n"], key=natural) == ["10", "a", "n", "n2", "n10"]


@pytest.mark.parametrize("text", ["", "# Topology file: generated\n", as_ibnetdiscover([("l0", "s0")])])
def test_a_fabric_without_hosts_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="f: empty-topology: found no host on a switch"):
        parse_ibnetdiscover(text, "f")


def test_an_isolated_leaf_has_a_short_path() -> None:
    cables = Cables(
        switches={"l0": "l0", "l1": "l1", "s0": "s0"}, hosts={"a": {"l0"}, "b": {"l1"}}, uplinks={("l0", "s0")}
    )
    nodes, findings = fabric_facts(cables)
    assert [node.fabric for node in nodes] == [("l0", "s0"), ("l1",)]
    assert findings == ()


def heard(*switches: str) -> dict[str, object]:
    ports = [{f"eth{index}": {"chassis": {switch: {"descr": "x"}}}} for index, switch in enumerate(switches)]
    return {"lldp": {"interface": ports[0] if len(ports) == 1 else ports} if ports else {}}


def read_lldp(document: object, host: str = "x") -> Reading:
    return parse_lldp(lldp_hosts(Place("f", "", document), host), "f")


def test_lldp_rails_that_all_hosts_have_are_not_odd() -> None:
    reading = read_lldp({"n1": heard("l0", "l1"), "n2": heard("l0", "l1"), "n3": heard("l2"), "n4": heard()})
    assert {name: node.fabric for name, node in by_name(reading).items()} == {
        "n1": ("l0+l1",),
        "n2": ("l0+l1",),
        "n3": ("l2",),
        "n4": None,
    }
    assert labels(reading) == ["no-neighbour:n4"]


def test_lldp_of_one_host_and_its_stable_json() -> None:
    assert by_name(read_lldp(heard("l7"), "gpu-1"))["gpu-1"].leaves == ("l7",)
    port = {"name": "eth0", "chassis": [{"name": [{"value": "l7"}], "id": [{"type": "mac"}]}]}
    stable = {"lldp": [{"interface": [port]}]}
    assert by_name(read_lldp(stable, "gpu-1"))["gpu-1"].leaves == ("l7",)
    nameless = {"lldp": {"interface": {"eth0": {"chassis": {"id": {"type": "mac", "value": "44:38"}}}}}}
    assert labels(read_lldp(nameless, "gpu-1")) == ["no-neighbour:gpu-1"]
    with pytest.raises(ConfigError, match=r"f: gpu-1.lldp: found 3; expected a table with interface"):
        read_lldp({"lldp": 3}, "gpu-1")

import ipaddress

import pytest

from spanfit.launch.fabric import (
    MAX_PER_LEVEL,
    MAX_RAILS,
    Fabric,
    LinkClass,
    LinkShape,
    cluster,
    hosts,
    links,
    render_host,
    render_hosts_file,
    render_loss,
    render_rail_settings,
    render_shape,
    render_switches,
    select_links,
    truth,
)

LONGEST_INTERFACE_NAME = 15
"""The kernel's IFNAMSIZ less the NUL."""

# The corners of what Fabric allows: deepest names, widest minipods.
LARGEST = [(250, 250, 1), (250, 1, 250)]


def fabric_of(minipods: int = 2, leaves_per_minipod: int = 1, hosts_per_leaf: int = 2, rails: int = 1) -> Fabric:
    return Fabric(
        name="demo",
        minipods=minipods,
        leaves_per_minipod=leaves_per_minipod,
        hosts_per_leaf=hosts_per_leaf,
        links={
            LinkClass.HOST: LinkShape(rate_bits_per_s=400e6),
            LinkClass.LEAF: LinkShape(),
            LinkClass.MINIPOD: LinkShape(rate_bits_per_s=8e8),
        },
        rails=rails,
    )


def test_names_tell_the_place() -> None:
    found = [(host.name, host.leaf, host.minipod) for host in hosts(fabric_of(2, 2, 2))]
    assert found == [
        (f"m{m}l{leaf}h{h}", f"m{m}l{leaf}", f"m{m}") for m in range(2) for leaf in range(2) for h in range(2)
    ]


@pytest.mark.parametrize(("minipods", "leaves", "per_leaf"), LARGEST)
def test_every_host_has_an_address_of_its_own_in_the_subnet(minipods: int, leaves: int, per_leaf: int) -> None:
    fabric = fabric_of(min(minipods, 3), leaves, per_leaf)
    found = [ipaddress.ip_address(host.addresses[0]) for host in hosts(fabric)]
    assert len(set(found)) == len(found) == fabric.minipods * leaves * per_leaf
    subnet = ipaddress.ip_network("10.77.0.0/16")
    assert all(address in subnet and address != subnet.broadcast_address for address in found)
    assert all(not address.packed.endswith(b"\0") for address in found)


@pytest.mark.parametrize(
    ("minipods", "leaves", "per_leaf", "rails"),
    [*((*largest, 1) for largest in LARGEST), (250, 1, 2, MAX_RAILS), (1, 250, 1, MAX_RAILS), (1, 1, 250, MAX_RAILS)],
)
def test_interface_names_fit_the_kernel_and_are_unique(minipods: int, leaves: int, per_leaf: int, rails: int) -> None:
    fabric = fabric_of(minipods, leaves, per_leaf, rails)
    cables = links(fabric)
    inside = [link.down_device for link in cables]
    inside += [link.up_device for link in cables if link.link_class is not LinkClass.HOST]
    inside += ["br-core", *(f"br-{link.name}" for link in cables if link.link_class is not LinkClass.HOST)]
    assert len(set(inside)) == len(inside)
    assert max(map(len, inside)) <= LONGEST_INTERFACE_NAME


@pytest.mark.parametrize(("minipods", "leaves", "per_leaf"), [(1, 1, 1), (2, 1, 4), (3, 2, 5)])
def test_links_are_counted(minipods: int, leaves: int, per_leaf: int) -> None:
    fabric = fabric_of(minipods, leaves, per_leaf)
    count = {kind: len(select_links(fabric, kind)) for kind in LinkClass}
    assert count == {"minipod": minipods, "leaf": minipods * leaves, "host": minipods * leaves * per_leaf}
    assert len(links(fabric)) == sum(count.values())
    names = {link.name for link in links(fabric)} | {"core"}
    assert all(link.peer in names for link in links(fabric))


def test_links_are_selected_by_class_and_by_name() -> None:
    fabric = fabric_of()
    assert [link.name for link in select_links(fabric, "minipod")] == ["m0", "m1"]
    assert [link.name for link in select_links(fabric, "leaf")] == ["m0l0", "m1l0"]
    assert [(link.name, link.peer) for link in select_links(fabric, "m1l0h1")] == [("m1l0h1", "m1l0")]
    for wrong in ("m2", "core", "", "hosts", "m0l0h2"):
        with pytest.raises(ValueError) as error:
            select_links(fabric, wrong)
        assert str(error.value) == (
            f"no link {wrong!r} in testbed demo; "
            "expected host, leaf, minipod, or one link's name such as m0, m0l0 or m0l0h0"
        )


def test_every_rail_has_a_link_a_device_and_a_subnet_of_its_own() -> None:
    fabric = fabric_of(1, 1, 2, rails=3)
    found = [(link.name, link.host, link.rail, link.up_device, link.peer) for link in select_links(fabric, "host")]
    assert found == [
        ("m0l0h0", "m0l0h0", 0, "eth0", "m0l0"),
        ("m0l0h0.r1", "m0l0h0", 1, "eth1", "m0l0"),
        ("m0l0h0.r2", "m0l0h0", 2, "eth2", "m0l0"),
        ("m0l0h1", "m0l0h1", 0, "eth0", "m0l0"),
        ("m0l0h1.r1", "m0l0h1", 1, "eth1", "m0l0"),
        ("m0l0h1.r2", "m0l0h1", 2, "eth2", "m0l0"),
    ]
    assert [host.addresses for host in hosts(fabric)] == [
        ("10.77.0.1", "10.78.0.1", "10.79.0.1"),
        ("10.77.0.2", "10.78.0.2", "10.79.0.2"),
    ]
    assert [link.name for link in select_links(fabric, "m0l0h1.r2")] == ["m0l0h1.r2"]
    with pytest.raises(ValueError, match=r"such as m0, m0l0, m0l0h0 or m0l0h0\.r1"):
        select_links(fabric, "m0l0h1.r3")
    assert "10.77.0.2 m0l0h1\n" in render_hosts_file(fabric)
    assert "10.78" not in render_hosts_file(fabric)
    assert [node.ngpus for node in cluster(fabric).nodes] == [3, 3]


def test_rails_are_built_and_kept_apart_by_these_lines() -> None:
    fabric = fabric_of(1, 1, 1, rails=2)
    assert list(render_switches(fabric, {"m0l0h0": 101}))[-4:] == [
        "link add name m0l0h0.d type veth peer name eth0 netns 101",
        "link set m0l0h0.d master br-m0l0 up",
        "link add name m0l0h0.r1.d type veth peer name eth1 netns 101",
        "link set m0l0h0.r1.d master br-m0l0 up",
    ]
    assert list(render_host(hosts(fabric)[0]))[4:] == [
        "addr add 10.78.0.1/16 dev eth1",
        "link set eth1 up",
        "route change 10.78.0.0/16 dev eth1 src 10.78.0.1 rto_min 10ms congctl cubic",
    ]
    assert list(render_rail_settings(fabric)) == [
        "echo 1 > /proc/sys/net/ipv4/conf/all/arp_ignore",
        "echo 2 > /proc/sys/net/ipv4/conf/all/arp_announce",
        "echo 2 > /proc/sys/net/ipv4/conf/all/rp_filter",
    ]
    assert list(render_rail_settings(fabric_of(1, 1, 1))) == []


def test_switches_and_cables_are_built_by_these_lines() -> None:
    fabric = fabric_of(1, 1, 2)
    assert list(render_switches(fabric, {"m0l0h0": 101, "m0l0h1": 102})) == [
        "link add name br-core type bridge",
        "link set br-core up",
        "link add name br-m0 type bridge",
        "link set br-m0 up",
        "link add name br-m0l0 type bridge",
        "link set br-m0l0 up",
        "link add name m0.d type veth peer name m0.u",
        "link set m0.d master br-core up",
        "link set m0.u master br-m0 up",
        "link add name m0l0.d type veth peer name m0l0.u",
        "link set m0l0.d master br-m0 up",
        "link set m0l0.u master br-m0l0 up",
        "link add name m0l0h0.d type veth peer name eth0 netns 101",
        "link set m0l0h0.d master br-m0l0 up",
        "link add name m0l0h1.d type veth peer name eth0 netns 102",
        "link set m0l0h1.d master br-m0l0 up",
    ]


def test_a_host_is_set_up_by_these_lines() -> None:
    host = hosts(fabric_of(2, 2, 3))[-1]
    assert list(render_host(host)) == [
        "link set lo up",
        "addr add 10.77.1.6/16 dev eth0",
        "link set eth0 up",
        "route change 10.77.0.0/16 dev eth0 src 10.77.1.6 rto_min 10ms congctl cubic",
    ]


@pytest.mark.parametrize(
    ("kind", "shape", "lines"),
    [
        (LinkClass.HOST, LinkShape(), []),
        (
            LinkClass.HOST,
            LinkShape(rate_bits_per_s=400e6),
            ["qdisc replace dev x root handle 1: tbf rate 400000000bit burst 131072 limit 262144"],
        ),
        (
            LinkClass.MINIPOD,
            LinkShape(rate_bits_per_s=1.6e9, delay_s=50e-6),
            [
                "qdisc replace dev x root handle 1: tbf rate 1600000000bit burst 131072 limit 1048576",
                "qdisc replace dev x parent 1:1 handle 10: netem delay 50us limit 10000",
            ],
        ),
        (
            LinkClass.LEAF,
            LinkShape(delay_s=0.006),
            ["qdisc replace dev x root handle 1: netem delay 6000us limit 10000"],
        ),
    ],
)
def test_a_link_is_shaped_by_these_lines(kind: LinkClass, shape: LinkShape, lines: list[str]) -> None:
    assert list(render_shape(kind, "x", shape)) == lines


def test_packets_are_dropped_where_they_come_in_by_these_lines() -> None:
    assert list(render_loss("m0l0.d", LinkShape(rate_bits_per_s=1e9, loss=0.025))) == [
        "add table netdev loss_m0l0_d",
        "delete table netdev loss_m0l0_d",
        "table netdev loss_m0l0_d { chain drops { "
        'type filter hook ingress device "m0l0.d" priority 0; numgen random mod 100000 < 2500 drop; }; }',
    ]
    assert list(render_loss("m0l0.d", LinkShape(rate_bits_per_s=1e9))) == []


def test_every_host_finds_the_others_by_name() -> None:
    assert render_hosts_file(fabric_of()) == (
        "127.0.0.1 localhost\n10.77.0.1 m0l0h0\n10.77.0.2 m0l0h1\n10.77.1.1 m1l0h0\n10.77.1.2 m1l0h1\n"
    )


def test_the_cluster_of_a_fabric_has_its_tree_and_the_truth_its_rates() -> None:
    found = cluster(fabric_of())
    assert found.tiers == ("leaf", "minipod", "core")
    assert [(node.name, node.fabric, node.ngpus) for node in found.nodes][-1] == ("m1l0h1", ("m1l0", "m1", "core"), 1)
    assert {path: len(nodes) for path, nodes in found.minipods().items()} == {("m0", "core"): 2, ("m1", "core"): 2}
    assert truth(fabric_of()) == {"host": 400e6, "minipod": 8e8}


def test_a_fabric_that_addresses_cannot_hold_is_refused_all_at_once() -> None:
    with pytest.raises(ValueError) as error:
        Fabric(name="a b", minipods=0, leaves_per_minipod=1, hosts_per_leaf=MAX_PER_LEVEL + 1, links={}, rails=9)
    assert str(error.value).splitlines() == [
        "minipods is 0; expected 1 to 250",
        "hosts_per_leaf is 251; expected 1 to 250",
        "rails is 9; expected 1 to 8",
        "name is 'a b'; expected up to 40 letters, digits, '-' and '_'",
    ]
    with pytest.raises(ValueError, match="a minipod has 252 hosts; expected at most 250"):
        fabric_of(1, 2, 126)
    for name in ("", "-", "x" * 41, "a/b", "a\n"):
        with pytest.raises(ValueError, match="name is"):
            Fabric(name=name, minipods=1, leaves_per_minipod=1, hosts_per_leaf=1, links={})

"""An emulated fat tree: its hosts, switches and links as values, and the commands that build them.

Hosts are network namespaces; leaves, minipod spines and the core are bridges in one switch namespace; every link is a
veth pair whose two ends are shaped alike. Names tell the place: host ``m0l1h2`` sits under leaf ``m0l1`` of minipod
``m0``. Cables are named after what they connect upwards: a host's own link has the host's name, a leaf's uplink the
leaf's, a minipod's uplink the minipod's. A host may have several cables to its leaf, as nodes with a NIC for each GPU
do: those are its rails, each with a device, a link (``m0l1h2.r1`` beside ``m0l1h2``) and a subnet of its own.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from spanfit.topology.model import Cluster, Node

MAX_PER_LEVEL = 250
MAX_RAILS = 8
"""With more, the ends of a cable would have names longer than the kernel's 15 characters."""
_FIRST_SUBNET = 77
_RAIL_SETTINGS = {"arp_ignore": 1, "arp_announce": 2, "rp_filter": 2}
"""So that a device neither answers nor asks for the address of another rail, all of which share a leaf's bridge, and
takes packets from a rail whose answer goes out by another device."""
_BURST_BYTES = 128 * 1024
"""A token bucket must hold more than one 64 KiB segmentation-offload packet, or the kernel drops into slow motion."""
_QUEUE_BYTES = {"host": 256 * 1024, "leaf": 1024 * 1024, "minipod": 1024 * 1024}


class LinkClass(StrEnum):
    """Links by what hangs below them."""

    HOST = "host"
    LEAF = "leaf"
    MINIPOD = "minipod"


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkShape:
    """What a link can carry.

    Attributes
    ----------
    rate_bits_per_s : float or None
        Rate in each direction [bits/s]; None leaves the link as fast as the machine.
    delay_s : float
        One-way delay [s], where the kernel has netem.
    loss : float
        Share of packets dropped in each direction, 0 to 1, by nftables.
    """

    rate_bits_per_s: float | None = None
    delay_s: float = 0.0
    loss: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fabric:
    """A fat tree to emulate.

    Attributes
    ----------
    name : str
    minipods, leaves_per_minipod, hosts_per_leaf : int
    links : dict of LinkClass to LinkShape
    rails : int
        Cables from each host to its leaf, every one as wide as the host class says.
    """

    name: str
    minipods: int
    leaves_per_minipod: int
    hosts_per_leaf: int
    links: dict[LinkClass, LinkShape]
    rails: int = 1

    def __post_init__(self) -> None:
        """Refuse sizes that addresses and interface names cannot hold."""
        faults = [
            f"{key} is {value}; expected 1 to {MAX_PER_LEVEL}"
            for key in ("minipods", "leaves_per_minipod", "hosts_per_leaf")
            if not 1 <= (value := getattr(self, key)) <= MAX_PER_LEVEL
        ]
        if not faults and self.leaves_per_minipod * self.hosts_per_leaf > MAX_PER_LEVEL:
            faults.append(
                f"a minipod has {self.leaves_per_minipod * self.hosts_per_leaf} hosts; expected at most {MAX_PER_LEVEL}"
            )
        if not 1 <= self.rails <= MAX_RAILS:
            faults.append(f"rails is {self.rails}; expected 1 to {MAX_RAILS}")
        if not self.name.replace("-", "").replace("_", "").isalnum() or len(self.name) > 40:
            faults.append(f"name is {self.name!r}; expected up to 40 letters, digits, '-' and '_'")
        if faults:
            raise ValueError("\n".join(faults))


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """An emulated host and its place in the tree, with its address on each rail."""

    name: str
    leaf: str
    minipod: str
    addresses: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A cable: ``name`` is the lower end's, ``peer`` the switch above it ("core" at the top).

    A host has one for each ``rail``.
    """

    name: str
    link_class: LinkClass
    peer: str
    rail: int = 0

    @property
    def host(self) -> str:
        """The host at the lower end of a link of class host."""
        return self.name.partition(".")[0]

    @property
    def down_device(self) -> str:
        """Interface of the switch namespace that sends down this cable."""
        return f"{self.name}.d"

    @property
    def up_device(self) -> str:
        """Interface that sends up: the host's own ``eth0`` (``eth1`` on rail 1), else one in the switch namespace."""
        return rail_device(self.rail) if self.link_class is LinkClass.HOST else f"{self.name}.u"


def rail_device(rail: int) -> str:
    """Return what a host's device on a rail is called."""
    return f"eth{rail}"


def rail_subnet(rail: int) -> str:
    """Return the subnet of a rail, in which every host has the same last two bytes."""
    return f"10.{_FIRST_SUBNET + rail}.0.0/16"


def hosts(fabric: Fabric) -> tuple[Host, ...]:
    """Return the hosts, minipod by minipod and leaf by leaf."""
    return tuple(
        Host(
            name=f"m{m}l{leaf}h{h}",
            leaf=f"m{m}l{leaf}",
            minipod=f"m{m}",
            addresses=tuple(
                f"10.{_FIRST_SUBNET + rail}.{m}.{leaf * fabric.hosts_per_leaf + h + 1}" for rail in range(fabric.rails)
            ),
        )
        for m in range(fabric.minipods)
        for leaf in range(fabric.leaves_per_minipod)
        for h in range(fabric.hosts_per_leaf)
    )


def links(fabric: Fabric) -> tuple[Link, ...]:
    """Return every cable, from the core down."""
    found = {f"m{m}": Link(name=f"m{m}", link_class=LinkClass.MINIPOD, peer="core") for m in range(fabric.minipods)}
    for host in hosts(fabric):
        found.setdefault(host.leaf, Link(name=host.leaf, link_class=LinkClass.LEAF, peer=host.minipod))
        for rail in range(fabric.rails):
            name = f"{host.name}.r{rail}" if rail else host.name
            found[name] = Link(name=name, link_class=LinkClass.HOST, peer=host.leaf, rail=rail)
    return tuple(found.values())


def select_links(fabric: Fabric, name: str) -> tuple[Link, ...]:
    """Return the links of a class (``minipod``) or the one of that name (``m0``); ValueError where there is none."""
    found = tuple(link for link in links(fabric) if name in (link.link_class, link.name))
    if not found:
        examples = "m0, m0l0, m0l0h0 or m0l0h0.r1" if fabric.rails > 1 else "m0, m0l0 or m0l0h0"
        raise ValueError(
            f"no link {name!r} in testbed {fabric.name}; "
            f"expected host, leaf, minipod, or one link's name such as {examples}"
        )
    return found


def cluster(fabric: Fabric) -> Cluster:
    """Return the cluster that a fabric emulates, every node idle with one rank a rail."""
    nodes = tuple(Node(name=h.name, fabric=(h.leaf, h.minipod, "core"), ngpus=fabric.rails) for h in hosts(fabric))
    return Cluster(name=fabric.name, tiers=("leaf", "minipod", "core"), nodes=nodes)


def truth(fabric: Fabric) -> dict[str, float]:
    """Return the rate of each shaped link class [bits/s], the known truth that fits are tested against."""
    shaped = {str(kind): shape.rate_bits_per_s for kind, shape in fabric.links.items()}
    return {kind: rate for kind, rate in shaped.items() if rate is not None}


def render_switches(fabric: Fabric, host_pids: dict[str, int]) -> Iterator[str]:
    """Yield the ``ip -batch`` lines that build bridges and cables; hosts are reached by their process ids."""
    for switch in (
        "core",
        *dict.fromkeys(link.name for link in links(fabric) if link.link_class is not LinkClass.HOST),
    ):
        # A bridge may not be called like a cable's end, hence the prefix.
        yield f"link add name br-{switch} type bridge"
        yield f"link set br-{switch} up"
    for link in links(fabric):
        far = f" netns {host_pids[link.host]}" if link.link_class is LinkClass.HOST else ""
        yield f"link add name {link.down_device} type veth peer name {link.up_device}{far}"
        yield f"link set {link.down_device} master br-{link.peer} up"
        if link.link_class is not LinkClass.HOST:
            yield f"link set {link.up_device} master br-{link.name} up"


def render_host(host: Host) -> Iterator[str]:
    """Yield the ``ip -batch`` lines that give a host its loopback, its addresses and cubic congestion control."""
    yield "link set lo up"
    for rail, address in enumerate(host.addresses):
        device = rail_device(rail)
        yield f"addr add {address}/16 dev {device}"
        yield f"link set {device} up"
        yield f"route change {rail_subnet(rail)} dev {device} src {address} rto_min 10ms congctl cubic"


def render_rail_settings(fabric: Fabric) -> Iterator[str]:
    """Yield the ``sh`` lines that keep the rails of a host apart, none where it has one."""
    for name, value in _RAIL_SETTINGS.items() if fabric.rails > 1 else ():
        yield f"echo {value} > /proc/sys/net/ipv4/conf/all/{name}"


def render_shape(link_class: LinkClass, device: str, shape: LinkShape) -> Iterator[str]:
    """Yield the ``tc -batch`` lines that give what one end of a cable sends its rate and delay, replacing the old."""
    delay = f"netem delay {shape.delay_s * 1e6:.0f}us limit 10000"
    if shape.rate_bits_per_s is not None:
        yield (
            f"qdisc replace dev {device} root handle 1: tbf rate {shape.rate_bits_per_s:.0f}bit "
            f"burst {_BURST_BYTES} limit {_QUEUE_BYTES[link_class]}"
        )
        if shape.delay_s:
            yield f"qdisc replace dev {device} parent 1:1 handle 10: {delay}"
    elif shape.delay_s:
        yield f"qdisc replace dev {device} root handle 1: {delay}"


def render_loss(device: str, shape: LinkShape) -> Iterator[str]:
    """Yield the ``nft -f`` lines that drop a share of what one end of a cable receives."""
    if shape.loss:
        table = f"netdev loss_{device.replace('.', '_')}"
        chain = f'type filter hook ingress device "{device}" priority 0;'
        yield f"add table {table}"
        yield f"delete table {table}"
        yield f"table {table} {{ chain drops {{ {chain} numgen random mod 100000 < {shape.loss * 1e5:.0f} drop; }}; }}"


def render_no_loss(device: str) -> Iterator[str]:
    """Yield the ``nft -f`` lines that end the loss of what one end of a cable receives."""
    table = f"netdev loss_{device.replace('.', '_')}"
    yield f"add table {table}"
    yield f"delete table {table}"


def render_hosts_file(fabric: Fabric) -> str:
    """Return the ``/etc/hosts`` that every emulated host sees: a name means the address on rail 0."""
    return "127.0.0.1 localhost\n" + "".join(f"{host.addresses[0]} {host.name}\n" for host in hosts(fabric))

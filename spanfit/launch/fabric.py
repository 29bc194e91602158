"""An emulated fat tree: its hosts, switches and links as values, and the commands that build them.

Hosts are network namespaces; leaves, minipod spines and the core are bridges in one switch namespace; every link is a
veth pair whose two ends are shaped alike. Names tell the place: host ``m0l1h2`` sits under leaf ``m0l1`` of minipod
``m0``. Cables are named after what they connect upwards: a host's own link has the host's name, a leaf's uplink the
leaf's, a minipod's uplink the minipod's.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from spanfit.topology.model import Cluster, Node

MAX_PER_LEVEL = 250
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
    """

    name: str
    minipods: int
    leaves_per_minipod: int
    hosts_per_leaf: int
    links: dict[LinkClass, LinkShape]

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
        if not self.name.replace("-", "").replace("_", "").isalnum() or len(self.name) > 40:
            faults.append(f"name is {self.name!r}; expected up to 40 letters, digits, '-' and '_'")
        if faults:
            raise ValueError("\n".join(faults))


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """An emulated host and its place in the tree."""

    name: str
    leaf: str
    minipod: str
    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A cable: ``name`` is the lower end's, ``peer`` the switch above it ("core" at the top)."""

    name: str
    link_class: LinkClass
    peer: str

    @property
    def down_device(self) -> str:
        """Interface of the switch namespace that sends down this cable."""
        return f"{self.name}.d"

    @property
    def up_device(self) -> str:
        """Interface that sends up: the host's own ``eth0``, else one in the switch namespace."""
        return "eth0" if self.link_class is LinkClass.HOST else f"{self.name}.u"


def hosts(fabric: Fabric) -> tuple[Host, ...]:
    """Return the hosts, minipod by minipod and leaf by leaf."""
    return tuple(
        Host(
            name=f"m{m}l{leaf}h{h}",
            leaf=f"m{m}l{leaf}",
            minipod=f"m{m}",
            address=f"10.77.{m}.{leaf * fabric.hosts_per_leaf + h + 1}",
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
        found[host.name] = Link(name=host.name, link_class=LinkClass.HOST, peer=host.leaf)
    return tuple(found.values())


def select_links(fabric: Fabric, name: str) -> tuple[Link, ...]:
    """Return the links of a class (``minipod``) or the one of that name (``m0``); ValueError where there is none."""
    found = tuple(link for link in links(fabric) if name in (link.link_class, link.name))
    if not found:
        raise ValueError(
            f"no link {name!r} in testbed {fabric.name}; "
            "expected host, leaf, minipod, or one link's name such as m0, m0l0 or m0l0h0"
        )
    return found


def cluster(fabric: Fabric) -> Cluster:
    """Return the cluster that a fabric emulates, every node idle with one rank a host."""
    nodes = tuple(Node(name=h.name, fabric=(h.leaf, h.minipod, "core"), ngpus=1) for h in hosts(fabric))
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
        far = f"eth0 netns {host_pids[link.name]}" if link.link_class is LinkClass.HOST else link.up_device
        yield f"link add name {link.down_device} type veth peer name {far}"
        yield f"link set {link.down_device} master br-{link.peer} up"
        if link.link_class is not LinkClass.HOST:
            yield f"link set {link.up_device} master br-{link.name} up"


def render_host(host: Host) -> Iterator[str]:
    """Yield the ``ip -batch`` lines that give a host its loopback, its address and cubic congestion control."""
    yield "link set lo up"
    yield f"addr add {host.address}/16 dev eth0"
    yield "link set eth0 up"
    yield f"route change 10.77.0.0/16 dev eth0 src {host.address} rto_min 10ms congctl cubic"


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
    """Return the ``/etc/hosts`` that every emulated host sees."""
    return "127.0.0.1 localhost\n" + "".join(f"{host.address} {host.name}\n" for host in hosts(fabric))

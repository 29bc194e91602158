"""What each link of a placement carries in a step, counted from the programs: no step is simulated."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spanfit.profiler.predict.collectives import Library, shape
from spanfit.profiler.predict.network import HOST, Network
from spanfit.topology.tiers import pairwise_tier
from spanfit.workload.script import Script

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkTraffic:
    """What leaves switches in a step.

    Attributes
    ----------
    uplink_bytes : dict of str to int
        Bytes that each uplink carries in each direction, those that carry any, the busiest first.
    """

    uplink_bytes: dict[str, int]

    @property
    def busiest(self) -> str:
        """The uplink that carries most in one direction, "" where nothing leaves a switch."""
        return next(iter(self.uplink_bytes), "")

    @property
    def busiest_bytes(self) -> int:
        """What it carries."""
        return next(iter(self.uplink_bytes.values()), 0)


def link_traffic(script: Script, network: Network, library: Library) -> LinkTraffic:
    """Return what leaves switches in a step of a placement; ConfigError for a collective that is not modelled."""
    loads = link_loads(script, network, library).round().tolist()
    uplinks = {
        link.label(): int(load)
        for link, load in zip(network.links, loads, strict=True)
        if link.link_class != HOST and load
    }
    return LinkTraffic(uplink_bytes=dict(sorted(uplinks.items(), key=lambda item: -item[1])))


def link_loads(script: Script, network: Network, library: Library) -> FloatArray:
    """Return the bytes that each link carries in a step, shape (nlinks,)."""
    codes, climbs = np.array(network.switches, dtype=np.int32), np.array(network.climbs)
    loads = np.zeros(len(network.links))
    for sources, targets, size_bytes in _moves(script, library):
        _load(loads, codes, climbs, sources // network.ngpus_per_node, targets // network.ngpus_per_node, size_bytes)
    return loads


def _load(
    loads: FloatArray,
    codes: npt.NDArray[np.int32],
    climbs: IntArray,
    sources: IntArray,
    targets: IntArray,
    size_bytes: float,
) -> None:
    """Add the bytes of flows between nodes to the links up from their sources and down to their targets."""
    levels = pairwise_tier(codes, sources, targets)
    for level in range(climbs.shape[1]):
        far = levels > level
        for nodes, way in ((sources, 0), (targets, 1)):
            links = climbs[nodes[far], level]
            np.add.at(loads, links[links >= 0] + way, size_bytes)


def _moves(script: Script, library: Library) -> Iterator[tuple[IntArray, IntArray, float]]:
    """Yield the ranks that send, those that receive, and the bytes that each of them moves in a step."""
    chains = np.array(script.chains)
    groups = {axis: np.array(found) for axis, found in script.groups.items()}
    stages = {axis: np.array([script.stage(group[0]) for group in found]) for axis, found in script.groups.items()}
    for stage, outline in enumerate(script.outlines):
        for peer, size_bytes in outline.sent_bytes.items():
            yield chains[:, stage], chains[:, peer], size_bytes
        for (axis, collective, size_bytes), ncalls in outline.calls.items():
            own = groups[axis][stages[axis] == stage]
            moved = shape(library, collective, own.shape[1], size_bytes)
            places = np.array(moved.edges).reshape(-1, 2)
            yield own[:, places[:, 0]].ravel(), own[:, places[:, 1]].ravel(), moved.edge_bytes * ncalls

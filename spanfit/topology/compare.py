"""How two clusters differ: nodes that came, went or changed, and whether their groups did or only the names."""

from dataclasses import dataclass

from spanfit.topology.merge import crossing
from spanfit.topology.model import Cluster, Node, path_label

_KEYS = ("state", "ngpus", "gpu_model", "accelerator_domain")


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What changed alike for some nodes: ``switches`` (paths, top first) or another key of a node."""

    key: str
    names: tuple[str, ...]
    before: str
    after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """How a cluster differs from an earlier one.

    Attributes
    ----------
    added, removed : tuple of str
        Nodes that only the later, and only the earlier, has.
    changes : tuple of Change
    regrouped : tuple of str
        Fewest nodes of both by which the trees contradict each other, whatever switches are called.
    """

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changes: tuple[Change, ...]
    regrouped: tuple[str, ...]

    @property
    def is_empty(self) -> bool:
        """Whether the clusters are alike, but for their names and the order of nodes."""
        return not (self.added or self.removed or self.changes)


def compare(before: Cluster, after: Cluster, *, with_states: bool = True) -> Difference:
    """Return how the later cluster differs from the earlier one.

    What only one of them tells of a node is no difference. A cluster does not say whether its states were told, so
    ``with_states`` does.
    """
    keys = _KEYS if with_states else tuple(key for key in _KEYS if key != "state")
    old = {node.name: node for node in before.nodes}
    new = {node.name: node for node in after.nodes}
    both = [name for name in old if name in new]
    names: dict[tuple[str, str, str], list[str]] = {}
    for name in both:
        one, two = _values(old[name], keys), _values(new[name], keys)
        for key in one:
            if key in two and one[key] != two[key]:
                names.setdefault((key, one[key], two[key]), []).append(name)
    return Difference(
        added=tuple(name for name in new if name not in old),
        removed=tuple(name for name in old if name not in new),
        changes=tuple(
            Change(key=key, names=tuple(found), before=one, after=two) for (key, one, two), found in names.items()
        ),
        regrouped=tuple(crossing({name: old[name].fabric for name in both}, {name: new[name].fabric for name in both})),
    )


def _values(node: Node, keys: tuple[str, ...]) -> dict[str, str]:
    told = {key: getattr(node, key) for key in keys}
    return {"switches": path_label(node.fabric)} | {key: str(value) for key, value in told.items() if value is not None}

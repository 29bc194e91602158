"""Which reader a file is for, told by its content; some sources are spread over several files."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from spanfit import files
from spanfit.errors import ConfigError
from spanfit.topology.readers.cloud_graphs import parse_instance_topology, parse_topograph_graph
from spanfit.topology.readers.cluster_toml import cluster_reading, parse_cluster
from spanfit.topology.readers.documents import Place, load_json, load_yaml
from spanfit.topology.readers.host_devices import parse_nccl_xml, parse_topo_matrix
from spanfit.topology.readers.infiniband import parse_iblinkinfo, parse_ibnetdiscover, parse_ufm
from spanfit.topology.readers.kubernetes_nodes import parse_nodes
from spanfit.topology.readers.lldp import lldp_hosts, parse_lldp
from spanfit.topology.readers.slurm_nodes import (
    choose_topology,
    parse_nodes_json,
    parse_show_nodes,
    parse_sinfo,
    parse_sinfo_json,
)
from spanfit.topology.readers.slurm_reservations import parse_reservations_json, parse_show_reservation
from spanfit.topology.readers.slurm_show import parse_show_topology
from spanfit.topology.readers.slurm_topology import parse_topology_conf
from spanfit.topology.readers.slurm_yaml import parse_topology_yaml
from spanfit.topology.readers.volcano import parse_hypernodes
from spanfit.topology.reading import Finding, Reading

_HEAD = 1 << 17
"""Characters from the start in which the kind of a file shows."""

_NAMED_FILES = 4


def _lines(pattern: str) -> re.Pattern[str]:
    return re.compile(f"^(?:{pattern})", re.MULTILINE)


_TOML = _lines(r"\s*\[\[\s*nodes\s*\]\]")
_YAML = _lines(r"---|apiVersion:|kind:|items:|- (?:topology|apiVersion|kind):")
_CONTENT = _lines(r"\s*[^\s#].*$")


def _timeless(parse: Callable[[str, str], Reading]) -> Callable[[str, str, float], Reading]:
    return lambda text, origin, now_s: parse(text, origin)


_TEXTS: tuple[tuple[re.Pattern[str], Callable[[str, str, float], Reading]], ...] = (
    (
        _lines(r"(?:SwitchName=\S+ Level=|(?:Aggregated)?Block(?:Name)?=\S+ BlockIndex=)"),
        _timeless(parse_show_topology),
    ),
    (_lines(r"\s*(?i:(?:switch|block|ring|torus)name|blocksizes)\s*="), _timeless(parse_topology_conf)),
    (_lines(r"NodeName="), _timeless(parse_show_nodes)),
    (_lines(r"ReservationName="), parse_show_reservation),
    (_lines(r".*\bNODELIST\b"), _timeless(parse_sinfo)),
    (_lines(r"Switch\t|(?:CA|SW)\s+\d+\s+\d+\s+0x"), _timeless(parse_ibnetdiscover)),
    (_lines(r".*==\(.*\)==>"), _timeless(parse_iblinkinfo)),
    (_lines(r"\s*(?:\x1b\[[0-9;]*m)?GPU0\t"), _timeless(parse_topo_matrix)),
)
_KINDS = ("Node", "Topology", "HyperNode", "Pod")
_EXPECTED = (
    "a TOML cluster file with [[nodes]] tables, or what Slurm (topology.conf, topology.yaml, scontrol show, sinfo), "
    "kubectl, topograph, AWS, ibnetdiscover, iblinkinfo, UFM, lldpctl, NCCL or nvidia-smi topo -m write"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """What one of several files says that are one source together: objects of Kubernetes, or hosts that hear LLDP."""

    gather: Callable[[Sequence[Place]], Iterable[Reading]]
    items: tuple[Place, ...]
    findings: tuple[Finding, ...] = ()


def read_sources(paths: Sequence[Path], now_s: float, topology: str | None = None) -> tuple[Reading, ...]:
    """Return what each file says, in their order.

    Kubernetes objects of all files are one source, where the first is; so is LLDP of all hosts.

    Parameters
    ----------
    paths : sequence of Path
    now_s : float
        The time, seconds since 1970, at which reservations hold.
    topology : str or None
        Which topology of a ``topology.yaml``, or of nodes in several, counts; None for the default one.

    Raises
    ------
    ConfigError
        Lists the mistakes of the first file that is wrong, or says that a file is of no known kind.
    """
    found = [_read(path, now_s, topology) for path in paths]
    gathered: dict[Callable[[Sequence[Place]], Iterable[Reading]], list[Place]] = {}
    for one in found:
        if isinstance(one, _Part):
            gathered.setdefault(one.gather, []).extend(one.items)
    readings: list[Reading] = []
    for one in found:
        if isinstance(one, Reading):
            readings.append(one)
        elif one.gather in gathered:
            readings += one.gather(gathered.pop(one.gather))
    cut = [finding for one in found if isinstance(one, _Part) for finding in one.findings]
    return tuple(_with(readings, cut))


def kubernetes_readings(lists: Sequence[Place], findings: Sequence[Finding] = ()) -> tuple[Reading, ...]:
    """Return what lists of Kubernetes objects say together; the findings of whoever fetched them are told first.

    ConfigError where none of them is a Node or a HyperNode, or one has another shape.
    """
    objects = [item for place in lists for item in _objects(place)]
    if not objects:
        raise ConfigError(f"{lists[0].origin}: found no Node; expected the nodes of a cluster")
    cut = [finding for place in lists for finding in _cut_lists(place)]
    return tuple(_with([*_kubernetes(objects)], [*findings, *cut]))


def _with(readings: Sequence[Reading], findings: Sequence[Finding]) -> Iterator[Reading]:
    """Yield readings, the first with findings before its own."""
    for index, reading in enumerate(readings):
        yield reading if index else replace(reading, findings=(*findings, *reading.findings))


def _read(path: Path, now_s: float, topology: str | None) -> Reading | _Part:
    text, origin = files.read_text(path), str(path)
    start = text.lstrip()[:1]
    if path.suffix == ".toml" or _TOML.search(text, 0, _HEAD):
        return cluster_reading(parse_cluster(text, origin), origin)
    if start in ("{", "["):
        return _structured([load_json(text, origin)], origin, path.stem, now_s, topology)
    if start == "<":
        return parse_nccl_xml(text, origin)
    for pattern, parse in _TEXTS:
        if pattern.search(text, 0, _HEAD):
            return parse(text, origin, now_s)
    if path.suffix in (".yaml", ".yml") or _YAML.search(text, 0, _HEAD):
        return _structured(load_yaml(text, origin), origin, path.stem, now_s, topology)
    if content := _CONTENT.search(text):
        raise ConfigError(f"{origin}: found {content[0].strip()[:40]!r}; expected {_EXPECTED}")
    return parse_topology_conf(text, origin)


def _structured(
    documents: Sequence[Any], origin: str, stem: str, now_s: float, topology: str | None
) -> Reading | _Part:
    lists = [Place(origin, "", document) for document in documents]
    if objects := [item for place in lists for item in _objects(place)]:
        cut = tuple(finding for place in lists for finding in _cut_lists(place))
        return _Part(gather=_kubernetes, items=tuple(objects), findings=cut)
    if len(documents) > 1:
        raise ConfigError(f"{origin}: found {len(documents)} YAML documents; expected one, or objects of Kubernetes")
    document = documents[0] if documents else None
    first = document[0] if isinstance(document, list) and document else None
    if isinstance(first, dict) and "topology" in first:
        return parse_topology_yaml(document, origin, topology)
    if isinstance(first, dict) and ("system_name" in first or "source_guid" in first):
        return parse_ufm(document, origin)
    readers: dict[str, Callable[[object, str], Reading]] = {
        "Instances": parse_instance_topology,
        "instances": parse_topograph_graph,
        "sinfo": parse_sinfo_json,
        "nodes": lambda value, name: choose_topology(parse_nodes_json(value, name), topology),
        "reservations": lambda value, name: parse_reservations_json(value, name, now_s),
    }
    if isinstance(document, dict):
        for key, parse in readers.items():
            if key in document:
                return parse(document, origin)
        if "lldp" in document or any(isinstance(value, dict) and "lldp" in value for value in document.values()):
            return _Part(gather=_lldp, items=lldp_hosts(Place(origin, "", document), stem))
    raise ConfigError(f"{origin}: found no keys of a source that is known; expected {_EXPECTED}")


def _objects(place: Place) -> Iterator[Place]:
    """Yield the Kubernetes objects in a document, out of lists of them, those of kinds that say nothing left out."""
    value = place.value
    if isinstance(value, list):
        for item in place.items():
            if isinstance(item.value, dict) and "kind" in item.value:
                yield from _objects(item)
    elif isinstance(value, dict) and isinstance(value.get("kind"), str):
        kind = value["kind"]
        if kind.endswith("List"):
            for item in place.get("items").items():
                inner = item.table().get("kind", kind.removesuffix("List"))
                if inner in _KINDS:
                    yield Place(item.origin, item.key, {**item.table(), "kind": inner})
        elif kind in _KINDS:
            yield place


def _cut_lists(place: Place) -> Iterator[Finding]:
    """Yield a finding where a list says that the API server has more of it."""
    document = place.value
    metadata = document.get("metadata") if isinstance(document, dict) else None
    if isinstance(metadata, dict) and metadata.get("continue"):
        more = metadata.get("remainingItemCount")
        count = f"{more} more" if isinstance(more, int) else "more"
        text = f"{place.origin}: the list is cut, the API server has {count}; fetch it whole: kubectl get nodes -o json"
        yield Finding(code="truncated", text=text)


def _origin(items: Iterable[Place]) -> str:
    origins = list(dict.fromkeys(item.origin for item in items))
    more = f" and {len(origins) - _NAMED_FILES} more files" if len(origins) > _NAMED_FILES else ""
    return ", ".join(origins[:_NAMED_FILES]) + more


def _lldp(hosts: Sequence[Place]) -> Iterator[Reading]:
    yield parse_lldp(hosts, _origin(hosts))


def _kubernetes(objects: Sequence[Place]) -> Iterator[Reading]:
    """Yield what HyperNodes say, if there are any, then what nodes say themselves."""
    kinds: dict[str, list[Place]] = {kind: [] for kind in _KINDS}
    for item in objects:
        kinds[item.value["kind"]].append(item)
    origin = _origin(objects)
    if kinds["HyperNode"]:
        labels = {
            item.get("metadata").get("name").name(): item.get("metadata").get("labels").table()
            for item in kinds["Node"]
        }
        yield parse_hypernodes(kinds["HyperNode"], origin, labels)
    if kinds["Node"]:
        yield parse_nodes(kinds["Node"], origin, kinds["Topology"], kinds["Pod"])
    elif not kinds["HyperNode"]:
        raise ConfigError(f"{origin}: found no Node; expected kubectl get nodes -o json beside")

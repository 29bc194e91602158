"""The inside of a host: NCCL's topology XML and ``nvidia-smi topo -m``; which NIC is closest to which GPU."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence

from spanfit.errors import ConfigError
from spanfit.topology.reading import HostDevices, Reading, shown

_UNDERLINE = re.compile(r"\x1b\[[0-9;]*m")
_LEGEND = re.compile(r"^\s*(NIC\d+):\s*(\S+)\s*$", re.MULTILINE)
_DEVICE = re.compile(r"GPU\d+|NIC\d+|mlx\d+_\d+")
_CLOSENESS = ("PIX", "PXB", "PHB", "NODE", "SYS")


def parse_nccl_xml(text: str, origin: str) -> Reading:
    """Return the GPUs and NIC ports of a file that NCCL_TOPO_DUMP_FILE names; ConfigError where it is another XML."""
    if "<!" in re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL):
        raise ConfigError(
            f"{origin}: found a document type or CDATA; expected NCCL's plain XML with a <system> element"
        )
    try:
        root = ET.fromstring(text.strip())  # noqa: S314 no entities, see above
    except ET.ParseError as error:
        raise ConfigError(f"{origin}: not valid XML: {error}") from None
    if root.tag != "system":
        raise ConfigError(f"{origin}: found <{shown(root.tag)}>; expected a <system> element, as NCCL writes")
    found = list(_walk(root))
    gpus = [(f"GPU{element.get('dev')}", path, element) for path, element in found if element.tag == "gpu"]
    nics = [(element.get("name", ""), path) for path, element in found if element.tag == "net"]
    linked = [bool(element.findall("nvlink")) for _, _, element in gpus]
    host = HostDevices(
        gpus=tuple(name for name, _, _ in gpus),
        nics=tuple(name for name, _ in nics),
        closest_nics=tuple((name, _closest(path, nics)) for name, path, _ in gpus),
        numa=_by_numa((name, path[0].removeprefix("cpu ")) for name, path, _ in gpus if path),
        has_nvlink=any(linked),
        is_nvlink_full=all(linked) and len(gpus) > 1 and _reaches_all([element for _, _, element in gpus]),
    )
    return Reading(origin=origin, kind="nccl-topo-xml", host=host)


def _walk(root: ET.Element) -> Iterator[tuple[tuple[str, ...], ET.Element]]:
    """Yield every element below the root, in their order, with the CPU and the PCIe bridges above it."""
    waiting: list[tuple[tuple[str, ...], ET.Element]] = [((), child) for child in reversed(root)]
    while waiting:
        path, element = waiting.pop()
        yield path, element
        step = {"cpu": f"cpu {element.get('numaid')}", "pci": f"pci {element.get('busid')}"}.get(element.tag)
        below = (*path, step) if step else path
        waiting += [(below, child) for child in reversed(element)]


def _closest(path: Sequence[str], nics: Sequence[tuple[str, Sequence[str]]]) -> tuple[str, ...]:
    shared = {name: sum(1 for one, two in zip(path, other, strict=False) if one == two) for name, other in nics}
    return tuple(name for name, depth in shared.items() if depth == max(shared.values()))


def _by_numa(pairs: Iterator[tuple[str, str]]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    nodes: dict[str, list[str]] = {}
    for name, numa in pairs:
        nodes.setdefault(numa, []).append(name)
    return tuple((numa, tuple(names)) for numa, names in nodes.items())


def _reaches_all(gpus: Sequence[ET.Element]) -> bool:
    """Return whether NVLinks join all pairs: through switches (class 0x0680) all of them, else each other GPU."""
    for gpu in gpus:
        links = gpu.findall("nvlink")
        through_switches = any(link.get("tclass", "").startswith("0x0680") for link in links)
        if not through_switches and len({link.get("target") for link in links}) < len(gpus) - 1:
            return False
    return True


def parse_topo_matrix(text: str, origin: str) -> Reading:
    """Return the GPUs and NICs of ``nvidia-smi topo -m``; ConfigError where a row has too few cells or GPUs lack."""
    plain = _UNDERLINE.sub("", text)
    table, _, legend = plain.partition("Legend:")
    lines = [line.split("\t") for line in table.splitlines() if line.strip()]
    heads = [cell.strip() for cell in lines[0]] if lines else []
    devices = [cell for cell in heads if _DEVICE.fullmatch(cell)]
    names = dict(_LEGEND.findall(legend))
    rows = {line[0].strip(): [cell.strip() for cell in line[1 : len(heads)]] for line in lines[1:]}
    gpus = [device for device in devices if device.startswith("GPU")]
    if not gpus or any(len(rows.get(gpu, ())) < len(devices) for gpu in gpus):
        raise ConfigError(f"{origin}: found no full row for each GPU; expected the table of nvidia-smi topo -m")
    cells = {gpu: dict(zip(heads[1:], rows[gpu], strict=False)) for gpu in gpus}
    nics = [device for device in devices if not device.startswith("GPU")]
    links = [cells[one][two].startswith("NV") for one in gpus for two in gpus if one != two]
    host = HostDevices(
        gpus=tuple(gpus),
        nics=tuple(names.get(nic, nic) for nic in nics),
        closest_nics=tuple((gpu, tuple(names.get(nic, nic) for nic in _nearest(cells[gpu], nics))) for gpu in gpus),
        numa=_by_numa((gpu, cells[gpu].get("NUMA Affinity", "")) for gpu in gpus),
        has_nvlink=any(links),
        is_nvlink_full=bool(links) and all(links),
    )
    return Reading(origin=origin, kind="nvidia-smi-topo", host=host)


def _nearest(cells: dict[str, str], nics: Sequence[str]) -> list[str]:
    ranks = {nic: _CLOSENESS.index(cells[nic]) for nic in nics if cells.get(nic) in _CLOSENESS}
    return [nic for nic, rank in ranks.items() if rank == min(ranks.values())]

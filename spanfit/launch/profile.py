"""Launch profiles: what a site's nodes need around a job, as its people write it in TOML: edge, reads the file."""

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path, PurePosixPath

from spanfit import files

DEFAULT_PORT = 29500
"""The port of torchrun's rendezvous, PyTorch's own default."""

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_GRES = re.compile(r"[A-Za-z0-9_-]+(?::[A-Za-z0-9_.-]+)?")
_MPI_PLUGIN = re.compile(r"[a-z0-9_]+")
_ORDERING = (
    *("nodes", "nodelist", "nodefile", "ntasks", "distribution", "exclude", "exclusive", "array", "job-name", "gres"),
    *("ntasks-per-node", "ntasks-per-gpu", "ntasks-per-socket", "ntasks-per-core", "spread-job", "use-min-nodes"),
)
_ORDERING_SHORT = {
    **{"N": "nodes", "w": "nodelist", "F": "nodefile", "n": "ntasks", "m": "distribution", "x": "exclude"},
    **{"a": "array", "J": "job-name"},
}
_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_DNS_LABEL = re.compile(_LABEL)
_DNS_NAME = re.compile(rf"(?=.{{1,253}}\Z){_LABEL}(?:\.{_LABEL})*")
_RESOURCE = re.compile(rf"(?=[^/]{{1,253}}/){_LABEL}(?:\.{_LABEL})*/[A-Za-z0-9](?:[A-Za-z0-9._-]{{0,61}}[A-Za-z0-9])?")


def is_dns_label(text: str) -> bool:
    """Return whether Kubernetes takes a text as the name of a service or a container: RFC 1123, up to 63 letters."""
    return bool(_DNS_LABEL.fullmatch(text))


def is_dns_name(text: str) -> bool:
    """Return whether Kubernetes takes a text as the name of a node: labels of RFC 1123 joined by dots, up to 253."""
    return bool(_DNS_NAME.fullmatch(text))


class Runtime(StrEnum):
    """What runs a container: a plug-in of srun, or a command on the node."""

    PYXIS = "pyxis"
    ENROOT = "enroot"
    APPTAINER = "apptainer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """A folder of the node, or a claim of Kubernetes, as the container sees it."""

    __pydantic_config__ = files.CONFIG

    target: str
    source: str | None = None
    claim: str | None = None
    read_only: bool = False

    def __post_init__(self) -> None:
        """Refuse paths that no runtime can carry, and a mount of nothing or of two things."""
        faults = [
            f"{key}: found {value!r}, expected an absolute path without blanks, quotes, commas and colons"
            for key, value in (("target", self.target), ("source", self.source))
            if value is not None and not _is_path(value)
        ]
        if (self.source is None) == (self.claim is None):
            faults.append("expected one of source (a path of the node) and claim (a PersistentVolumeClaim)")
        if self.claim is not None and not is_dns_name(self.claim):
            faults.append(f"claim: found {self.claim!r}, expected the name of a PersistentVolumeClaim")
        if faults:
            raise ValueError("\n".join(faults))


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """The container that the job runs in.

    Attributes
    ----------
    image : str
        As the runtime takes it: a reference, or the path of a file; enroot without pyxis needs a path.
    runtime : Runtime or None
        What runs it on nodes of Slurm or under plain torchrun; Kubernetes has its own.
    mounts : tuple of Mount
    workdir : str or None
        Where the command starts, in the container.
    options : tuple of str
        More options of the runtime, such as ``--nv`` for apptainer; pyxis has them on srun's command line.
    """

    __pydantic_config__ = files.CONFIG

    image: str
    runtime: Runtime | None = None
    mounts: tuple[Mount, ...] = ()
    workdir: str | None = None
    options: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse an image or a folder that no command line and no manifest carries."""
        faults = [
            f"{key}: found {value!r}, expected printable text that does not begin with '-'"
            for key, value in (("image", self.image), *(("options", option) for option in self.options))
            if not value.isprintable() or not value or (key == "image" and value.startswith("-"))
        ]
        if self.workdir is not None and not _is_path(self.workdir):
            faults.append(f"workdir: found {self.workdir!r}, expected an absolute path without blanks and colons")
        if self.runtime is Runtime.ENROOT and not self.image.startswith("/"):
            faults.append(f"image: found {self.image!r}, expected the path of a .sqsh file, which enroot starts")
        if self.runtime is Runtime.PYXIS:
            faults += [
                f"options: found {option!r}, expected an option of pyxis, such as '--no-container-mount-home'"
                for option in self.options
                if not option.startswith(("--container-", "--no-container-"))
            ]
        if faults:
            raise ValueError("\n".join(faults))


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmSettings:
    """What an sbatch script needs at a site.

    Attributes
    ----------
    options : tuple of str
        More options of sbatch, such as ``--partition=train``, each a line of ``#SBATCH``.
    gres : str or None
        What GPUs are called, such as ``gpu`` or ``gpu:h100``; the job asks each node for all that it uses.
    mpi : str or None
        ``--mpi`` of srun, such as ``pmix`` or ``none``.
    shell : str
        What runs the script, after ``#!``.
    commands : tuple of str
        Lines of shell that run once, on the first node, before the step, such as ``module load cuda``.
    """

    __pydantic_config__ = files.CONFIG

    options: tuple[str, ...] = ()
    gres: str | None = None
    mpi: str | None = None
    shell: str = "/bin/sh"
    commands: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse options that would undo the order of ranks, and what no line can carry."""
        if faults := [*self._option_faults(), *_line_faults("commands", self.commands)]:
            raise ValueError("\n".join(faults))

    def _option_faults(self) -> Iterator[str]:
        for option in self.options:
            if not _is_one_option(option):
                yield f"options: found {option!r}, expected one option of sbatch a line, such as '--partition=train'"
            elif name := _ordering_option(option):
                yield f"options: found {option!r}; spanfit writes --{name} itself or ranks would lose their order"
        if self.gres is not None and not _GRES.fullmatch(self.gres):
            yield f"gres: found {self.gres!r}, expected a name without a count, such as 'gpu' or 'gpu:h100'"
        if self.mpi is not None and not _MPI_PLUGIN.fullmatch(self.mpi):
            yield f"mpi: found {self.mpi!r}, expected what 'srun --mpi=list' names, such as 'pmix'"
        if not re.fullmatch(r"/[!-~]+(?: [!-~]+)?", self.shell):
            yield f"shell: found {self.shell!r}, expected a path and at most one option, such as '/bin/bash -l'"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    """What every node does before torchrun starts, in the container if there is one.

    Attributes
    ----------
    commands : tuple of str
        Lines of shell, such as ``ulimit -l unlimited``; the node's start ends where one fails.
    environment : mapping of str to str
    port : int
        Of torchrun's rendezvous on the node of rank 0.
    """

    __pydantic_config__ = files.CONFIG

    commands: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    port: int = DEFAULT_PORT

    def __post_init__(self) -> None:
        """Refuse variables and ports that do not exist."""
        faults = [*_line_faults("commands", self.commands)]
        faults += [
            f"environment.{name}: found {value!r}, expected a name of letters and digits, and printable text"
            for name, value in self.environment.items()
            if not _VARIABLE.fullmatch(name) or not value.isprintable()
        ]
        if not 0 < self.port < 65536:
            faults.append(f"port: found {self.port}, expected 1 to 65535")
        if faults:
            raise ValueError("\n".join(faults))


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesSettings:
    """What pods need at a site.

    Attributes
    ----------
    namespace : str
    host_network : bool
        Pods use the node's own network, as RDMA without a device plug-in needs.
    shm : int or None
        Size of /dev/shm [bytes]; the default of 64 MiB is too small for most data loaders.
    gpu_resource : str
        What GPUs are called.
    resources : mapping of str to int
        More of each node, such as ``rdma/hca = 1``.
    capabilities : tuple of str
        Such as IPC_LOCK, which RDMA needs.
    tolerations : tuple of str
        Keys of taints that the pods tolerate.
    service_account, image_pull_secret : str or None
    kueue_queue : str or None
        The LocalQueue whose quota the job waits for.
    volcano_queue : str or None
        The queue of Volcano, which then starts all pods of the job or none.
    """

    __pydantic_config__ = files.CONFIG

    namespace: str = "default"
    host_network: bool = False
    shm: files.SizeBytes | None = None
    gpu_resource: str = "nvidia.com/gpu"
    resources: Mapping[str, files.Count] = field(default_factory=dict)
    capabilities: tuple[str, ...] = ()
    tolerations: tuple[str, ...] = ()
    service_account: str | None = None
    image_pull_secret: str | None = None
    kueue_queue: str | None = None
    volcano_queue: str | None = None

    def __post_init__(self) -> None:
        """Refuse names that Kubernetes refuses, and two queues."""
        if faults := [*self._name_faults()]:
            raise ValueError("\n".join(faults))

    def _name_faults(self) -> Iterator[str]:
        names = ("namespace", "service_account", "image_pull_secret", "kueue_queue", "volcano_queue")
        for key in names:
            value = getattr(self, key)
            if value is not None and not (is_dns_label if key == "namespace" else is_dns_name)(value):
                yield f"{key}: found {value!r}, expected a name of lower-case letters, digits and dashes"
        for resource in (self.gpu_resource, *self.resources):
            if not _RESOURCE.fullmatch(resource):
                yield f"resources: found {resource!r}, expected a name such as 'rdma/hca' or 'nvidia.com/gpu'"
        for capability in self.capabilities:
            if not re.fullmatch(r"[A-Z][A-Z0-9_]*", capability):
                yield f"capabilities: found {capability!r}, expected a name such as 'IPC_LOCK'"
        for key in self.tolerations:
            if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,316}", key):
                yield f"tolerations: found {key!r}, expected the key of a taint, such as 'nvidia.com/gpu'"
        if self.kueue_queue and self.volcano_queue:
            yield "kueue_queue: found beside volcano_queue; a job waits in one of them, leave the other out"


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchProfile:
    """What a site's nodes need around any job."""

    __pydantic_config__ = files.CONFIG

    container: Container | None = None
    slurm: SlurmSettings = field(default_factory=SlurmSettings)
    node: NodeSettings = field(default_factory=NodeSettings)
    kubernetes: KubernetesSettings = field(default_factory=KubernetesSettings)


def read_profile(path: Path) -> LaunchProfile:
    """Return the profile of a TOML file; ConfigError lists every wrong key with file, key, found and expected."""
    return files.read_toml(path, LaunchProfile)


def _is_path(text: str) -> bool:
    return PurePosixPath(text).is_absolute() and not set(text) & set(",:'\"\\$` ") and text.isprintable()


def _is_one_option(text: str) -> bool:
    """Return whether sbatch reads one option in a line, with the value that follows it."""
    if not re.fullmatch(r"--?[A-Za-z][^\x00-\x1f\x7f#]*", text):
        return False
    try:
        _, *values = shlex.split(text)
    except ValueError:
        return False
    return not any(value.startswith("-") for value in values)


def _ordering_option(option: str) -> str:
    """Return which option of sbatch that spanfit writes itself this one is, "" where it is none of them.

    sbatch takes ``-N2`` for ``-N 2``, and the first letters of a long name for all of it.
    """
    if not option.startswith("--"):
        return _ORDERING_SHORT.get(option[1], "")
    name = re.split(r"[= ]", option[2:], maxsplit=1)[0]
    return next((known for known in _ORDERING if name == known or (len(name) > 2 and known.startswith(name))), "")


def _line_faults(key: str, lines: tuple[str, ...]) -> Iterator[str]:
    for line in lines:
        if set(line) & set("\n\r\0") or not line.strip() or line == "END_OF_PREPARE":
            yield f"{key}: found {line!r}, expected one line of shell an entry"

"""What a running Slurm says of its nodes, through its own commands: edge; what is run changes nothing.

Slurm's releases differ in what they print. Each question has several ways to ask it, the best first; one that the
installed release does not know is passed over.
"""

import os
import pwd
import re
import subprocess
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from spanfit.errors import ConfigError, LaunchError, TimedOutError
from spanfit.topology.readers.documents import load_json, load_yaml
from spanfit.topology.readers.slurm_nodes import choose_topology, parse_nodes_json, parse_show_nodes, parse_sinfo
from spanfit.topology.readers.slurm_reservations import parse_reservations_json, parse_show_reservation
from spanfit.topology.readers.slurm_show import parse_show_topology
from spanfit.topology.readers.slurm_yaml import parse_topology_yaml
from spanfit.topology.reading import Finding, Reading, printable, shown

TIMEOUT_S = 30.0
"""How long a command may take; Slurm's own waits for a controller that is down are longer."""

_DROPPED = ("SLURM_TOPO_LEN", "SLURM_TIME_FORMAT", "POSIXLY_CORRECT")  # they cut or change what is printed
_SHOWN_LINES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way to ask Slurm something.

    Attributes
    ----------
    argv : tuple of str
    mark : str
        A pattern that the answer must hold to be one.
    read : callable
        From the text, what messages call it, the time (seconds since 1970) and the topology asked for to what it says.
    """

    argv: tuple[str, ...]
    mark: str
    read: Callable[[str, str, float, str | None], Reading]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a command said, and how it ended."""

    argv: tuple[str, ...]
    code: int
    out: str
    err: str

    @property
    def complaint(self) -> str:
        """The first lines of what it complained about, printable."""
        lines = (self.err.strip() or self.out.strip()).splitlines()[:_SHOWN_LINES]
        return "; ".join(printable(line.strip()) for line in lines) or f"nothing, exit code {self.code}"


TOPOLOGY = (
    Way(
        argv=("scontrol", "show", "topoconf"),
        mark=r"(?m)^\s*- topology:",
        read=lambda text, origin, _, topology: parse_topology_yaml(load_yaml(text, origin)[0], origin, topology),
    ),
    Way(
        argv=("scontrol", "show", "topology"),
        mark=r"(?m)^\s*(?:SwitchName|BlockName|AggregatedBlock)=",
        read=lambda text, origin, _, topology: _shown_topology(text, origin, topology),
    ),
)
NODES = (
    Way(
        argv=("scontrol", "show", "nodes", "--json"),
        mark=r"\A\s*\{",
        read=lambda text, origin, _, topology: choose_topology(
            parse_nodes_json(load_json(text, origin), origin), topology
        ),
    ),
    Way(
        argv=("scontrol", "show", "nodes", "--oneliner"),
        mark=r"(?m)^NodeName=",
        read=lambda text, origin, _, __: parse_show_nodes(text, origin),
    ),
    Way(
        argv=("sinfo", "--Node", "--format=%N %T %P %G %E"),
        mark=r"\bNODELIST\b",
        read=lambda text, origin, _, __: parse_sinfo(text, origin),
    ),
)
RESERVATIONS = (
    Way(
        argv=("scontrol", "show", "reservation", "--json"),
        mark=r"\A\s*\{",
        read=lambda text, origin, now_s, _: parse_reservations_json(load_json(text, origin), origin, now_s),
    ),
    Way(
        argv=("scontrol", "show", "reservation", "--oneliner"),
        mark=r"(?m)^ReservationName=|^No reservations in the system",
        read=lambda text, origin, now_s, _: parse_show_reservation(text, origin, now_s),
    ),
)


def read_slurm(now_s: float, topology: str | None = None) -> tuple[Reading, ...]:
    """Return what the Slurm of this machine says of its topology, its nodes and their reservations.

    Parameters
    ----------
    now_s : float
        The time, seconds since 1970, at which reservations hold.
    topology : str or None
        Which of several topologies counts; None for Slurm's default.

    Raises
    ------
    LaunchError
        If Slurm's commands are missing, its controller does not answer, or no way of asking for nodes is answered.
    TimedOutError
        If a command does not end in its time.
    """
    _check_controller()
    fabric = _ask(TOPOLOGY, now_s, topology)
    nodes = _ask(NODES, now_s, topology)
    if isinstance(nodes, list):
        raise LaunchError(
            "\n".join(["Slurm does not list its nodes:", *_said(nodes), "ask its operator for the right"])
        )
    held = _ask(RESERVATIONS, now_s, topology)
    found = [_unread("flat-topology", "says nothing of switches", fabric) if isinstance(fabric, list) else fabric]
    more = _unread("reservations-unread", "does not tell its reservations", held) if isinstance(held, list) else held
    return (*found, nodes, more)


def _check_controller() -> None:
    """Raise LaunchError where Slurm's controller does not answer; every other command would wait for it in vain."""
    answer = run_slurm(("scontrol", "ping"))
    if answer.code or " is UP" not in answer.out:
        raise LaunchError(
            f"scontrol ping: found {answer.complaint}; expected a Slurm controller that is up; run this on a node of "
            "the cluster, such as its login node, and check that sinfo works there"
        )


def _ask(ways: Iterable[Way], now_s: float, topology: str | None) -> Reading | list[Answer]:
    """Return what the first way that is answered says; where none is, what each said instead."""
    unanswered = []
    for way in ways:
        answer = run_slurm(way.argv)
        if answer.code == 0 and re.search(way.mark, answer.out):
            return way.read(answer.out, " ".join(way.argv), now_s, topology)
        unanswered.append(answer)
    return unanswered


def _shown_topology(text: str, origin: str, topology: str | None) -> Reading:
    if topology:
        raise ConfigError(f"{origin}: prints one topology only, found none named {shown(topology)}; leave the name out")
    return parse_show_topology(text, origin)


def _unread(code: str, what: str, answers: Iterable[Answer]) -> Reading:
    text = f"Slurm {what}: {'; '.join(line.strip() for line in _said(answers))}"
    return Reading(origin="scontrol", kind="slurm", findings=(Finding(code=code, text=text),))


def _said(answers: Iterable[Answer]) -> list[str]:
    return [f"  {' '.join(answer.argv)}: {answer.complaint}" for answer in answers]


def run_slurm(argv: tuple[str, ...], timeout_s: float = TIMEOUT_S, text: str = "") -> Answer:
    """Run one of Slurm's commands, with a text to read, and return what it said.

    Raises
    ------
    LaunchError
        If there is no such program, or the caller may not run it.
    TimedOutError
        If it does not end in its time; it is then ended.
    """
    try:
        done = subprocess.run(
            argv, input=text.encode(), capture_output=True, check=False, timeout=timeout_s, env=_environment()
        )
    except (FileNotFoundError, PermissionError):
        raise LaunchError(
            f"{argv[0]} is not on PATH; run this where Slurm's commands are, such as a login node, or read what they "
            "print elsewhere from files: spanfit topology import FILE..."
        ) from None
    except subprocess.TimeoutExpired:
        raise TimedOutError(
            f"{' '.join(argv)}: no answer within {timeout_s:.0f} s; check with scontrol ping that Slurm's controller "
            "is up, and that SLURM_CONF names its slurm.conf, and try again"
        ) from None
    out, err = (text.decode(errors="replace") for text in (done.stdout, done.stderr))
    return Answer(argv=argv, code=done.returncode, out=out, err=err)


def _environment(given: Mapping[str, str] = os.environ) -> dict[str, str]:
    return {name: value for name, value in given.items() if name not in _DROPPED} | {"LC_ALL": "C"}


def user_name() -> str:
    """Return whom Slurm takes the caller for: the name of the effective user, or its number where it has none."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())

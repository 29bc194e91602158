import shlex

import pytest

from spanfit.launch.render.slurm import ReservationFlag, SlurmReservation, reservation_argv
from spanfit.topology.hostlist import expand_hostlist
from tests.unit.launch.stage import HOSTILE_NAMES

NAMES = ("n10", "n9", "n011", "login")


def test_the_command_line_names_the_nodes_as_a_set_and_keeps_them() -> None:
    argv = reservation_argv(SlurmReservation(name="r", node_names=NAMES, users=("ada",), duration_s=5401.0))
    assert argv == (
        "scontrol",
        "create",
        "reservation",
        "ReservationName=r",
        "StartTime=now",
        "Duration=91",
        "Users=ada",
        "Nodes=login,n[9-10,011]",
        "Flags=STATIC_ALLOC",
    )
    assert set(expand_hostlist(argv[7].removeprefix("Nodes="))) == set(NAMES)


def test_a_reservation_without_an_end_says_so() -> None:
    flags = (ReservationFlag.STATIC_ALLOC, ReservationFlag.IGNORE_JOBS)
    text = shlex.join(
        reservation_argv(SlurmReservation(name="r", node_names=("a",), users=("ada", "bob"), flags=flags))
    )
    assert text == (
        "scontrol create reservation ReservationName=r StartTime=now Duration=UNLIMITED Users=ada,bob Nodes=a "
        "Flags=STATIC_ALLOC,IGNORE_JOBS"
    )


@pytest.mark.parametrize("name", [*HOSTILE_NAMES, "a\nb", "", "n1,n2", "n[1-2]"])
def test_names_that_slurm_would_read_otherwise_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="a Slurm reservation cannot carry the host name"):
        reservation_argv(SlurmReservation(name="r", node_names=("n1", name), users=("ada",)))
    for keys in ({"name": name, "users": ("ada",)}, {"name": "r", "users": (name,)}):
        with pytest.raises(ValueError, match=r"reservation: (name is|found)"):
            SlurmReservation(node_names=("n1",), **keys)  # type: ignore[arg-type]


def test_every_fault_is_told() -> None:
    with pytest.raises(ValueError, match="reservation") as error:
        SlurmReservation(name="r;", node_names=("a", "a"), users=(), duration_s=5.0)
    assert [line.split(" ", 2)[1:] for line in str(error.value).splitlines()] == [
        ["name", "is 'r;'; expected letters, digits, dots, dashes and underscores"],
        ["found", "2 nodes, expected at least one, each once"],
        ["found", "no users, expected who may use it"],
        ["duration", "is 5.0 s; expected at least a minute, Slurm's unit"],
    ]

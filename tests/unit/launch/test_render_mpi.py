from pathlib import Path

import pytest

from spanfit.launch.render.mpi import (
    Mpi,
    parse_version,
    render_hostfile,
    render_hosts,
    render_hydra,
    render_rankfile,
    render_seqfile,
)
from spanfit.topology.model import RankMap
from tests.unit.launch.stage import HOSTILE_NAMES

GOLDEN = Path(__file__).parents[2] / "data/golden"
PLAIN = RankMap(node_names=("n12", "n3", "n11"), ngpus_per_node=2)
RENDERERS = (render_hostfile, render_rankfile, render_seqfile, render_hydra)


def entries(text: str) -> list[str]:
    return [line for line in text.splitlines() if not line.startswith("#")]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("hostfile.txt", render_hostfile(PLAIN)),
        ("rankfile.txt", render_rankfile(PLAIN)),
        ("seqfile.txt", render_seqfile(PLAIN)),
        ("mpich.txt", render_hydra(PLAIN)),
    ],
)
def test_golden(name: str, text: str) -> None:
    assert text == (GOLDEN / name).read_text()


def test_every_format_gives_the_same_host_to_each_rank() -> None:
    expected = [name for name in PLAIN.node_names for _ in range(PLAIN.ngpus_per_node)]
    hosts = [line.split(" slots=") for line in entries(render_hostfile(PLAIN))]
    assert [name for name, slots in hosts for _ in range(int(slots))] == expected
    hydra = [line.split(":") for line in entries(render_hydra(PLAIN))]
    assert [name for name, slots in hydra for _ in range(int(slots))] == expected
    assert entries(render_seqfile(PLAIN)) == expected
    assert entries(render_rankfile(PLAIN)) == [
        f"rank {rank}={host} slot={rank % 2}" for rank, host in enumerate(expected)
    ]


def test_a_file_names_the_command_line_of_each_version_it_is_for() -> None:
    assert "# Open MPI 4: mpirun -n 6 --mca rmaps seq --bind-to none --hostfile FILE COMMAND" in render_seqfile(PLAIN)
    assert "# Open MPI 5: mpirun -n 6 --map-by seq --bind-to none --hostfile FILE COMMAND" in render_seqfile(PLAIN)
    assert "# Open MPI 4: mpirun -n 6 --hostfile HOSTFILE --rankfile FILE COMMAND" in render_rankfile(PLAIN)
    assert "# Open MPI 5: mpirun -n 6 --hostfile HOSTFILE --map-by rankfile:file=FILE COMMAND" in render_rankfile(PLAIN)
    assert "# MPICH: mpirun -n 6 -bind-to none -f FILE COMMAND" in render_hydra(PLAIN)


@pytest.mark.parametrize("name", [*HOSTILE_NAMES, "a\n", "a#b", "n[1-2]", "+n0", "user@h", "1101", "9a.b", "", "long"])
def test_no_file_carries_what_its_reader_would_take_for_something_else(name: str) -> None:
    name = "n " * 32768 if name == "long" else name
    for render in RENDERERS:
        with pytest.raises(ValueError, match="cannot carry the host name") as error:
            render(RankMap(node_names=("n1", name), ngpus_per_node=8))
        assert len(str(error.value)) < 400


@pytest.mark.parametrize("name", ["slots", "max-slots", "rank", "cpu"])
def test_open_mpi_s_own_words_are_no_hosts(name: str) -> None:
    rank_map = RankMap(node_names=("n1", name), ngpus_per_node=8)
    for render in (render_hostfile, render_rankfile, render_seqfile):
        with pytest.raises(ValueError, match="no word of the format"):
            render(rank_map)
    assert f"\n{name}:8\n" in render_hydra(rank_map)


@pytest.mark.parametrize("name", ["n1", "9a", "10.0.0.1", "n1.dom.ain", "slots1", "node_1"])
def test_host_names_are_carried(name: str) -> None:
    for render in RENDERERS:
        assert name in render(RankMap(node_names=(name,), ngpus_per_node=8)).splitlines()[-1]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mpirun (Open MPI) 4.1.4\n\nReport bugs to http://www.open-mpi.org/community/help/", Mpi.OPEN_MPI_4),
        ("mpirun (Open MPI) 5.0.11\n", Mpi.OPEN_MPI_5),
        ("HYDRA build details:\n    Version:                                 4.0.2\n", Mpi.MPICH),
    ],
)
def test_the_kind_of_mpirun_follows_from_its_version(text: str, expected: Mpi) -> None:
    assert parse_version(text) is expected


@pytest.mark.parametrize("text", ["", "mpirun (Open MPI) 3.1.3", "Intel(R) MPI Library for Linux* OS, Version 2021"])
def test_another_mpirun_is_refused_with_what_it_said(text: str) -> None:
    with pytest.raises(ValueError, match="expected Open MPI 4 or 5, or MPICH") as error:
        parse_version(text)
    assert text in str(error.value)


def test_hosts_are_in_rank_order_and_each_library_s_form() -> None:
    rank_map = RankMap(node_names=("n10", "n2"), ngpus_per_node=2)
    assert render_hosts(Mpi.OPEN_MPI_4, rank_map) == render_hosts(Mpi.OPEN_MPI_5, rank_map) == "n10\nn10\nn2\nn2\n"
    assert render_hosts(Mpi.MPICH, rank_map) == "n10:2\nn2:2\n"

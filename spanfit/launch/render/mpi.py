"""mpirun: what each library takes for a fixed order of ranks, and the command line that its file belongs to.

Open MPI 4 and 5 and MPICH differ in nearly every option; each spelling is in one table here.
"""

import re
from enum import StrEnum

from spanfit.launch.render.names import check_names, check_rank_map
from spanfit.topology.model import RankMap

_MPI_NAME = re.compile(r"(?:[0-9]{1,3}\.){3}[0-9]{1,3}|[A-Za-z][A-Za-z0-9_.-]*|(?![0-9]+$)[0-9][A-Za-z0-9_-]*")
# Words that Open MPI's readers take for keys (hostfile_lex.l, rmaps_rank_file_lex.l), dashes as underscores.
_MPI_WORD = re.compile(
    "boards|(?:cores|sockets)(?:_per_(?:socket|board))?|(?:max_)?(?:count|cpu|slots?)|(?:count|cpu|slots)_max|cpu_set|"
    "rank|user_?name"
)


class Mpi(StrEnum):
    """The libraries whose mpirun is understood."""

    OPEN_MPI_4 = "Open MPI 4"
    OPEN_MPI_5 = "Open MPI 5"
    MPICH = "MPICH"


ORDERED: dict[Mpi, tuple[str, ...]] = {
    Mpi.OPEN_MPI_4: ("--mca", "rmaps", "seq", "--bind-to", "none", "--hostfile"),
    Mpi.OPEN_MPI_5: ("--map-by", "seq", "--bind-to", "none", "--hostfile"),
    Mpi.MPICH: ("-bind-to", "none", "-f"),
}
"""What makes the ranks follow the hosts file that is named next, unbound, since a rank has threads besides."""

_RANKFILE: dict[Mpi, str] = {
    Mpi.OPEN_MPI_4: "--hostfile HOSTFILE --rankfile FILE",
    Mpi.OPEN_MPI_5: "--hostfile HOSTFILE --map-by rankfile:file=FILE",
}


def parse_version(text: str) -> Mpi:
    """Return which mpirun printed this as its version.

    Raises
    ------
    ValueError
        If it is none that is understood.
    """
    if found := re.match(r"mpirun \(Open MPI\) ([45])\.", text):
        return {"4": Mpi.OPEN_MPI_4, "5": Mpi.OPEN_MPI_5}[found[1]]
    if text.startswith("HYDRA build details:"):
        return Mpi.MPICH
    raise ValueError(f"found {text.splitlines()[0] if text else 'nothing'!r}, expected Open MPI 4 or 5, or MPICH")


def render_hosts(mpi: Mpi, rank_map: RankMap) -> str:
    """Return the hosts file in rank order: a line a rank for Open MPI's sequential mapper, a line a host for MPICH."""
    per_node = rank_map.ngpus_per_node
    if mpi is Mpi.MPICH:
        return "".join(f"{name}:{per_node}\n" for name in rank_map.node_names)
    return "".join(f"{name}\n" * per_node for name in rank_map.node_names)


def render_hostfile(rank_map: RankMap) -> str:
    """Return an Open MPI hostfile: a line ``host slots=N`` for each node, in node-rank order.

    The format lists resources and does not fix the order of ranks; the text says what does. ValueError names what
    the format cannot carry.
    """
    _check_open_mpi(rank_map)
    lines = [
        "# Open MPI hostfile: each host and its slots, in node-rank order.",
        "# It lists resources; mpirun may fill them in another order (the host it runs on often comes first).",
        "# Where the order of ranks matters use a rankfile, or a seqfile, which has one line per rank.",
        *(f"{name} slots={rank_map.ngpus_per_node}" for name in rank_map.node_names),
    ]
    return "\n".join(lines) + "\n"


def render_seqfile(rank_map: RankMap) -> str:
    """Return the hosts file of Open MPI's sequential mapper: rank i runs on the host of line i, unbound.

    ValueError names what the format cannot carry.
    """
    _check_open_mpi(rank_map)
    return _head(
        "Open MPI's sequential mapper: rank i runs on the host of line i. The versions call it otherwise:",
        *(f"{mpi}: {_ordered_command(mpi, rank_map)}" for mpi in (Mpi.OPEN_MPI_4, Mpi.OPEN_MPI_5)),
    ) + render_hosts(Mpi.OPEN_MPI_5, rank_map)


def render_hydra(rank_map: RankMap) -> str:
    """Return the hosts file of MPICH's hydra: a line ``host:N`` for each node, which takes the next N ranks.

    ValueError names what the format cannot carry.
    """
    check_rank_map(rank_map)
    check_names(rank_map.node_names, lambda name: bool(_MPI_NAME.fullmatch(name)), "an MPICH hosts file")
    return _head(
        "MPICH (hydra) hosts file: each host takes the next ranks, in this order.",
        f"{Mpi.MPICH}: {_ordered_command(Mpi.MPICH, rank_map)}",
    ) + render_hosts(Mpi.MPICH, rank_map)


def render_rankfile(rank_map: RankMap) -> str:
    """Return an Open MPI rankfile: a line ``rank N=host slot=CORE`` for each rank, from rank 0 upwards.

    Local rank i is bound to core i, so that the ranks of a node are disjoint; this assumes at least
    ``ngpus_per_node`` cores in each host. ValueError names what the format cannot carry.
    """
    _check_open_mpi(rank_map)
    per_node = rank_map.ngpus_per_node
    return _head(
        "Open MPI rankfile. The versions call it otherwise:",
        *(f"{mpi}: mpirun -n {rank_map.nranks} {option} COMMAND" for mpi, option in _RANKFILE.items()),
        "HOSTFILE is what spanfit launch hostfile prints; in an allocation of Slurm's leave it out.",
        f"Assumes at least {per_node} cores in each host: local rank i is bound to core i.",
        "Where ranks need more cores, give each its own range, such as slot=0-7 and slot=8-15.",
    ) + "".join(
        f"rank {node_rank * per_node + local_rank}={name} slot={local_rank}\n"
        for node_rank, name in enumerate(rank_map.node_names)
        for local_rank in range(per_node)
    )


def _ordered_command(mpi: Mpi, rank_map: RankMap) -> str:
    return f"mpirun -n {rank_map.nranks} {' '.join(ORDERED[mpi])} FILE COMMAND"


def _head(*lines: str) -> str:
    return "".join(f"# {line}\n" for line in lines)


def _check_open_mpi(rank_map: RankMap) -> None:
    check_rank_map(rank_map)
    check_names(rank_map.node_names, _is_open_mpi_name, "an Open MPI host file or rankfile")


def _is_open_mpi_name(name: str) -> bool:
    return bool(_MPI_NAME.fullmatch(name)) and not _MPI_WORD.fullmatch(name.replace("-", "_"))

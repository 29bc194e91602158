"""Launch files: a rank map as the texts that start its ranks in exactly that order.

Host names come from files of others, so every name and argument that reaches a shell is quoted, and a name that a
format cannot carry is refused.
"""

import re
import shlex

from spanfit.topology.hostlist import fold_hostlist
from spanfit.topology.model import RankMap

DEFAULT_PORT = 29500
"""The port of torchrun's rendezvous, PyTorch's own default."""

_SLURM_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")
_MPI_NAME = re.compile(r"(?:[0-9]{1,3}\.){3}[0-9]{1,3}|[A-Za-z][A-Za-z0-9_.-]*|(?![0-9]+$)[0-9][A-Za-z0-9_-]*")
_ADDRESS = re.compile(r"(?:[0-9]+\.)+[0-9]+|.*:.*")
# Words that Open MPI's readers take for keys (hostfile_lex.l, rmaps_rank_file_lex.l), dashes as underscores.
_MPI_WORD = re.compile(
    "boards|(?:cores|sockets)(?:_per_(?:socket|board))?|(?:max_)?(?:count|cpu|slots?)|(?:count|cpu|slots)_max|cpu_set|"
    "rank|user_?name"
)


def render_hostfile(rank_map: RankMap) -> str:
    """Return an Open MPI hostfile: a line ``host slots=N`` for each node, in node-rank order.

    The format lists resources and does not fix the order of ranks; the text says what does. ValueError names what
    the format cannot carry.
    """
    _check_mpi(rank_map)
    lines = [
        "# Open MPI hostfile: each host and its slots, in node-rank order.",
        "# It lists resources; mpirun may fill them in another order (the host it runs on often comes first).",
        "# Where the order of ranks matters use the rankfile, or, with one process per host, --map-by seq, which",
        "# takes one line per process and ignores slots.",
        *(f"{name} slots={rank_map.ngpus_per_node}" for name in rank_map.node_names),
    ]
    return "\n".join(lines) + "\n"


def render_rankfile(rank_map: RankMap) -> str:
    """Return an Open MPI rankfile: a line ``rank N=host slot=CORE`` for each rank, from rank 0 upwards.

    Local rank i is bound to core i, so that the ranks of a node are disjoint; this assumes at least
    ``ngpus_per_node`` cores in each host. ValueError names what the format cannot carry.
    """
    _check_mpi(rank_map)
    lines = [
        "# Open MPI rankfile. v4: mpirun --rankfile FILE; v5: mpirun --map-by rankfile:file=FILE.",
        f"# Assumes at least {rank_map.ngpus_per_node} cores in each host: local rank i is bound to core i.",
        "# Where ranks need more cores, give each its own range, such as slot=0-7 and slot=8-15.",
    ]
    for node_rank, name in enumerate(rank_map.node_names):
        for local_rank in range(rank_map.ngpus_per_node):
            lines.append(f"rank {node_rank * rank_map.ngpus_per_node + local_rank}={name} slot={local_rank}")
    return "\n".join(lines) + "\n"


def render_torchrun(rank_map: RankMap, command: tuple[str, ...], port: int = DEFAULT_PORT) -> str:
    """Return a sh script to run on every node: it finds its node rank by its short host name and starts torchrun.

    Rendezvous is torchrun's static one, since the others number nodes by themselves. On a host that the table lacks
    the script says so and ends with 2.

    Parameters
    ----------
    rank_map : RankMap
    command : tuple of str
        What torchrun starts on each GPU: a script and its arguments, or ``-m``, a module and its arguments.
    port : int
        Of the rendezvous, on the host with node rank 0.

    Raises
    ------
    ValueError
        If a name is an address or holds a control character, two names are the same up to the first dot, a node
        appears twice, the command is empty, or the port is none.
    """
    _check(rank_map, command)
    if not 0 < port < 65536:
        raise ValueError(f"port is {port}; expected 1 to 65535")
    table = "\n".join(
        f"    {shlex.quote(name)}) node_rank={node_rank} ;;" for node_rank, name in enumerate(_short_names(rank_map))
    )
    return f"""\
#!/bin/sh
# Run this on every node of the job; each finds its node rank by its short host name.
set -eu
host=$(uname -n)
host=${{host%%.*}}
case $host in
{table}
    *) printf '%s\\n' "host $host is not in the table of this launch script; it must not start" >&2; exit 2 ;;
esac
exec torchrun {_torchrun_options(rank_map, port)} --node-rank="$node_rank" \\
    --master-addr={shlex.quote(rank_map.node_names[0])} \\
    {shlex.join(command)}
"""


def render_slurm(rank_map: RankMap, command: tuple[str, ...], job_name: str) -> str:
    """Return an sbatch script that starts torchrun once on each node, in the order of the rank map.

    ``--nodelist`` names a set only. The order comes from SLURM_HOSTFILE with ``--distribution=arbitrary`` on the
    step, where ``-N`` and ``--ntasks-per-node`` are refused or ignored; the node rank is SLURM_PROCID, since
    SLURM_NODEID stays sorted. Names with text after their number are folded as Slurm reads them from 23.11.

    Raises
    ------
    ValueError
        If a host name or the job's name holds more than letters, digits, dots, dashes and underscores, or the
        command is empty.
    """
    _check(rank_map, command)
    _refuse([name for name in rank_map.node_names if not _SLURM_NAME.fullmatch(name)], "a Slurm host file")
    if not _SLURM_NAME.fullmatch(job_name):
        raise ValueError(f"job name is {job_name!r}; expected letters, digits, dots, dashes and underscores")
    nnodes = len(rank_map.node_names)
    hosts = " \\\n    ".join(rank_map.node_names)
    step = (
        f"master_addr=$1; shift; exec torchrun {_torchrun_options(rank_map, DEFAULT_PORT)} "
        '--node-rank="$SLURM_PROCID" --master-addr="$master_addr" "$@"'
    )
    return f"""\
#!/bin/sh
#SBATCH --job-name={job_name}
#SBATCH --nodes={nnodes}
#SBATCH --nodelist={fold_hostlist(sorted(rank_map.node_names, key=_natural))}
#SBATCH --exclusive
set -eu
# Slurm takes --nodelist as a set and numbers tasks by name; the host file numbers them in this order instead.
SLURM_HOSTFILE=$(mktemp)
export SLURM_HOSTFILE
trap 'rm -f "$SLURM_HOSTFILE"' EXIT
printf '%s\\n' \\
    {hosts} > "$SLURM_HOSTFILE"
master_addr=$(head -n 1 "$SLURM_HOSTFILE")
srun -n {nnodes} --distribution=arbitrary \\
    sh -c {shlex.quote(step)} \\
    torchrun "$master_addr" {shlex.join(command)}
"""


def _torchrun_options(rank_map: RankMap, port: int) -> str:
    nnodes, ngpus = len(rank_map.node_names), rank_map.ngpus_per_node
    return f"--nnodes={nnodes} --nproc-per-node={ngpus} --master-port={port}"


def _check(rank_map: RankMap, command: tuple[str, ...]) -> None:
    _check_names(rank_map)
    if not command or any("\0" in argument for argument in command):
        raise ValueError(f"command is {command!r}; expected a script and its arguments, none holding NUL")


def _check_names(rank_map: RankMap) -> None:
    names = rank_map.node_names
    if not names or rank_map.ngpus_per_node < 1:
        raise ValueError(f"{len(names)} nodes with {rank_map.ngpus_per_node} GPUs; expected at least one of each")
    twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    if twice:
        raise ValueError(f"nodes {', '.join(twice)} have two node ranks; expected one each")


def _check_mpi(rank_map: RankMap) -> None:
    _check_names(rank_map)
    bad = [
        name
        for name in rank_map.node_names
        if not _MPI_NAME.fullmatch(name) or _MPI_WORD.fullmatch(name.replace("-", "_"))
    ]
    _refuse(bad, "an Open MPI host file or rankfile")


def _refuse(names: list[str], format_name: str) -> None:
    if names:
        raise ValueError(
            f"{format_name} cannot carry the host name {', '.join(map(repr, names))}; expected letters, digits, dots, "
            "dashes and underscores, starting with a letter or digit, and no word of the format"
        )


def _short_names(rank_map: RankMap) -> tuple[str, ...]:
    bad = [name for name in rank_map.node_names if _ADDRESS.fullmatch(name) or not name.isprintable()]
    shorts = [name.partition(".")[0] for name in rank_map.node_names]
    bad += [name for name, short in zip(rank_map.node_names, shorts, strict=True) if not short]
    if bad:
        raise ValueError(f"no short host name in {', '.join(map(repr, bad))}; expected host names, not addresses")
    if len(set(shorts)) < len(shorts):
        same = sorted({short for short in shorts if shorts.count(short) > 1})
        raise ValueError(f"several hosts are called {', '.join(same)} up to the first dot; expected different ones")
    return tuple(shorts)


def _natural(name: str) -> list[tuple[int, str, int]]:
    """Return a sort key that puts node10 after node9, so that ranges fold."""
    return [(1, "", int(part)) if part.isdigit() else (0, part, 0) for part in re.split(r"([0-9]+)", name) if part]

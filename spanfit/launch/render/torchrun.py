"""torchrun: a script for every node of a job, and what starts torchrun in a site's container."""

import shlex

from spanfit.launch.profile import Container, LaunchProfile, Runtime
from spanfit.launch.render.names import check_command, check_rank_map, short_names
from spanfit.topology.model import RankMap

_END = "END_OF_PREPARE"


def render_torchrun(rank_map: RankMap, command: tuple[str, ...], profile: LaunchProfile | None = None) -> str:
    """Return a sh script to run on every node: it finds its node rank by its short host name and starts torchrun.

    Rendezvous is torchrun's static one, since the others number nodes by themselves. On a host that the table lacks
    the script says so and ends with 2.

    Parameters
    ----------
    rank_map : RankMap
    command : tuple of str
        What torchrun starts on each GPU: a script and its arguments, or ``-m``, a module and its arguments.
    profile : LaunchProfile, optional
        Its container, and what nodes do before.

    Raises
    ------
    ValueError
        If a name is an address or holds a control character, two names are the same up to the first dot, a node
        appears twice, the command is empty, or the container is one that only srun starts.
    """
    profile = profile or LaunchProfile()
    check_rank_map(rank_map)
    check_command(command)
    if profile.container is not None and profile.container.runtime is Runtime.PYXIS:
        raise ValueError("pyxis is a plug-in of srun; expected a container.runtime of enroot or apptainer, or none")
    table = "\n".join(
        f"    {shlex.quote(name)}) node_rank={node_rank} ;;" for node_rank, name in enumerate(short_names(rank_map))
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
{prepare_block(profile)}exec {in_container(profile)}torchrun \\
    {torchrun_options(rank_map, profile)} --node-rank="$node_rank" \\
    --master-addr={shlex.quote(rank_map.node_names[0])} \\
    {shlex.join(command)}
"""


def torchrun_options(rank_map: RankMap, profile: LaunchProfile) -> str:
    """Return the options that are the same on every node."""
    nnodes, ngpus = len(rank_map.node_names), rank_map.ngpus_per_node
    return f"--nnodes={nnodes} --nproc-per-node={ngpus} --master-port={profile.node.port}"


def in_container(profile: LaunchProfile) -> str:
    """Return what stands before a command in sh so that it runs in the container, after what nodes do before.

    The script must hold :func:`prepare_block`. "" where there is neither; pyxis is no part of it.
    """
    words = shlex.join(container_argv(profile.container))
    return (f"{words} " if words else "") + ('sh -c "$prepare" sh ' if preparation(profile) else "")


def prepare_block(profile: LaunchProfile) -> str:
    """Return the lines of a script that put what nodes do before torchrun into a variable, "" where they do nothing."""
    lines = preparation(profile)
    return f"prepare=$(cat <<'{_END}'\n{lines}{_END}\n)\n" if lines else ""


def container_argv(container: Container | None) -> list[str]:
    """Return the command line that enters a container on a node, up to the command; [] where srun or nothing does."""
    if container is None or container.runtime in (None, Runtime.PYXIS):
        return []
    found = mounts(container)
    if container.runtime is Runtime.APPTAINER:
        binds = [
            f"--bind={source}:{target}" + (":ro" if is_read_only else "") for source, target, is_read_only in found
        ]
        workdir = [f"--pwd={container.workdir}"] if container.workdir else []
        return ["apptainer", "exec", *binds, *workdir, *container.options, container.image]
    # The fields of a line of fstab, with colons between.
    binds = [
        f"--mount={source}:{target}:none:x-create=auto,bind," + ("ro" if is_read_only else "rw")
        for source, target, is_read_only in found
    ]
    return ["enroot", "start", *binds, *container.options, container.image]


def mounts(container: Container) -> list[tuple[str, str, bool]]:
    """Return the source, target and whether it is read only of each mount; ValueError for a claim of Kubernetes."""
    if claims := [mount.claim for mount in container.mounts if mount.claim is not None]:
        raise ValueError(
            f"container.mounts: claim {', '.join(claims)} is a volume of Kubernetes; "
            "expected a source, a path of the node"
        )
    return [(mount.source or "", mount.target, mount.read_only) for mount in container.mounts]


def preparation(profile: LaunchProfile) -> str:
    """Return the script that a node runs with torchrun as its arguments, "" where there is nothing to do before."""
    node, container = profile.node, profile.container
    lines = [
        *(f"export {name}={shlex.quote(value)}" for name, value in sorted(node.environment.items())),
        *node.commands,
    ]
    # enroot has no option for the folder that a command starts in.
    if container is not None and container.runtime is Runtime.ENROOT and container.workdir:
        lines.append(f"cd {shlex.quote(container.workdir)}")
    return "".join(f"{line}\n" for line in ("set -e", *lines, 'exec "$@"')) if lines else ""

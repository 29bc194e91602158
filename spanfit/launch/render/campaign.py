"""A campaign as a job of Slurm or Kubernetes, which starts it once its nodes are free."""

import shlex
from dataclasses import dataclass
from pathlib import PurePosixPath

from spanfit.launch.profile import LaunchProfile, is_dns_label, is_dns_name
from spanfit.launch.render.names import check_names, check_slurm_job_name, is_slurm_name, listed
from spanfit.launch.render.pods import Object, affinity, dump, literal, metadata, pod_template
from spanfit.launch.render.slurm import directives

INTERRUPT_S = 60
"""How long before its time limit a job is interrupted, so that it ends by itself and loses nothing [s]."""

KEY_SECRET = "spanfit-ssh"  # noqa: S105
"""The Secret whose key opens the pods of a campaign to one another."""

_SSH_PORT = 2222
_KEYS = "/etc/spanfit-ssh"
_MAX_POD_NAME = 56


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignJob:
    """A campaign that waits for nodes.

    Attributes
    ----------
    name : str
        The job's.
    node_names : tuple of str
        The nodes it needs, all of them.
    ranks_per_node : int
    command : tuple of str
        What runs once, on one of them, and starts the ranks on all.
    folder : str
        Where Slurm keeps what it prints.
    time_limit_s : float or None
        None takes the system's own [s].
    """

    name: str
    node_names: tuple[str, ...]
    ranks_per_node: int
    command: tuple[str, ...]
    folder: str
    time_limit_s: float | None = None


def render_campaign_slurm(job: CampaignJob, profile: LaunchProfile) -> str:
    """Return an sbatch script that runs a campaign once all its nodes are free.

    The command takes the place of the script's shell, so that the interrupt that Slurm sends before the time limit
    reaches it.

    Raises
    ------
    ValueError
        If a name or the folder holds what a line of ``#SBATCH`` cannot carry, or the profile has a container: the
        ranks of a campaign are steps of its job, which srun starts as the campaign file says.
    """
    check_names(job.node_names, is_slurm_name, "a Slurm job")
    check_slurm_job_name(job.name)
    if not job.folder.isprintable() or set(job.folder) & set(" \"'\\#%"):
        raise ValueError(
            f"an sbatch script cannot carry the folder {job.folder!r}; expected no blanks, quotes, # and %"
        )
    if profile.container is not None:
        raise ValueError(
            "container: found one, expected none: start spanfit in it, on Slurm a campaign starts ranks itself"
        )
    limit = () if job.time_limit_s is None else (f"--time={max(1, -int(-job.time_limit_s // 60))}",)
    own = (f"--chdir={job.folder}", f"--output={job.folder}/slurm-%j.out", f"--signal=B:INT@{INTERRUPT_S}", *limit)
    commands = "".join(f"{line}\n" for line in profile.slurm.commands)
    return (
        f"#!{profile.slurm.shell}\n{directives(job.node_names, job.ranks_per_node, job.name, profile, own)}\n"
        f"set -e\n{commands}exec {shlex.join(job.command)}\n"
    )


_HEAD = f"""\
# A campaign on its nodes: a pod each, which reach one another by ssh; that of index 0 runs the campaign. Once:
#   ssh-keygen -q -t ed25519 -N '' -f key
#   kubectl create secret generic {KEY_SECRET} --from-file=id=key --from-file=id.pub=key.pub
# The image needs spanfit, ssh, ssh-keygen and sshd. The job ends with pod 0 from Kubernetes 1.31 on.
"""
_START = f"""\
set -eu
umask 077
# ssh takes the home of the user's entry, whatever HOME says.
HOME=$(getent passwd "$(id -u)" | cut -d: -f6)
mkdir -p "$HOME/.ssh" /run/sshd
cp {_KEYS}/id "$HOME/.ssh/id"
ssh-keygen -q -t ed25519 -N '' -f "$HOME/.ssh/host" < /dev/null
printf '%s\\n' 'Host *' 'Port {_SSH_PORT}' "IdentityFile $HOME/.ssh/id" 'StrictHostKeyChecking no' \\
    'UserKnownHostsFile /dev/null' 'LogLevel ERROR' > "$HOME/.ssh/config"
"$(command -v sshd || echo /usr/sbin/sshd)" -D -e -p {_SSH_PORT} -h "$HOME/.ssh/host" -o StrictModes=no \\
    -o PidFile=none -o PasswordAuthentication=no -o AuthorizedKeysFile={_KEYS}/id.pub &
[ "$JOB_COMPLETION_INDEX" = 0 ] || {{ wait; exit; }}
for host in $1; do
    until ssh -o BatchMode=yes -o ConnectTimeout=5 "$host" -- true; do sleep 2; done
done
shift
exec "$@"
"""


def render_campaign_pods(job: CampaignJob, profile: LaunchProfile) -> str:
    """Return an Indexed Job with a pod on each of a campaign's nodes.

    A world's ranks find their hosts by name, so which index sits on which node makes no difference.

    Raises
    ------
    ValueError
        For names that Kubernetes refuses, and for a profile without a container, without the node's own network, or
        without a mount that holds the campaign and its store.
    """
    _check_pods(job, profile)
    words = [literal(word) for word in (_START, "sh", " ".join(job.node_names), *job.command)]
    pod = pod_template(job.ranks_per_node, ["sh", "-c", *words], job.name, profile)
    apart = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"spanfit/campaign": job.name}}}
    pod.setdefault("metadata", {})["labels"] = {"spanfit/campaign": job.name}
    pod["spec"]["affinity"] = affinity(job.node_names) | {
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}
    }
    pod["spec"].setdefault("volumes", []).append({"name": "keys", "secret": {"secretName": KEY_SECRET}})
    (main,) = pod["spec"]["containers"]
    main.setdefault("volumeMounts", []).append({"name": "keys", "mountPath": _KEYS, "readOnly": True})
    npods = len(job.node_names)
    spec: Object = {"completionMode": "Indexed", "completions": npods, "parallelism": npods, "backoffLimit": 0}
    spec["successPolicy"] = {"rules": [{"succeededIndexes": "0"}]}
    if job.time_limit_s is not None:
        spec["activeDeadlineSeconds"] = int(job.time_limit_s)
    named = metadata(job.name, profile.kubernetes)
    return _HEAD + dump(
        [{"apiVersion": "batch/v1", "kind": "Job", "metadata": named, "spec": spec | {"template": pod}}]
    )


def _check_pods(job: CampaignJob, profile: LaunchProfile) -> None:
    check_names(job.node_names, is_dns_name, "Kubernetes")
    faults = []
    if not is_dns_label(job.name) or len(job.name) > _MAX_POD_NAME:
        faults.append(
            f"job name is {listed((job.name,))}; expected at most {_MAX_POD_NAME} lower-case letters, digits, dashes"
        )
    if profile.container is None:
        faults.append("container.image: missing; pods need one; give --profile FILE with a [container] table")
    else:
        targets = [PurePosixPath(mount.target) for mount in profile.container.mounts]
        for path in (word for word in job.command if word.startswith("/")):
            if not any(PurePosixPath(path).is_relative_to(target) for target in targets):
                faults.append(
                    f"container.mounts: none holds {path}; expected a mount that pods share, at the same path"
                )
    if not profile.kubernetes.host_network:
        faults.append(
            "kubernetes.host_network: found false, expected true: pods reach one another by their nodes' names"
        )
    if faults:
        raise ValueError("\n".join(faults))

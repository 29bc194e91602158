"""The pinner of Kubernetes: a script around kubectl that gives the gated pods of a job their nodes."""

import json
import shlex

from spanfit.launch.profile import LaunchProfile
from spanfit.launch.render.kubernetes import GATE, Workload, check_placed
from spanfit.launch.render.pods import affinity
from spanfit.topology.model import RankMap

_POLL_S = 2


def render_pinner(workload: Workload, rank_map: RankMap, job_name: str, profile: LaunchProfile) -> str:
    """Return a sh script that gives each gated pod of a job its node, until the job has ended.

    A pod that is made again after a failure is gated again, so the script runs as long as the job.

    Raises
    ------
    ValueError
        For names that Kubernetes refuses, and for a JobSet, which needs no pinner.
    """
    if workload is Workload.JOBSET:
        raise ValueError("a jobset names the node of each pod itself; expected indexed-job or pytorchjob")
    check_placed(rank_map, job_name)
    kind, selector, role, index, ended = _PINNED[workload]
    table = "\n".join(f"        {key}) node={name} ;;" for key, name in _pods(workload, rank_map))
    fields = f'{{.metadata.name}}{{" "}}{role}{{"-"}}{index}{{"\\n"}}'
    gated = shlex.quote(f"{{range .items[?(@.spec.schedulingGates)]}}{fields}{{end}}")
    return f"""\
#!/bin/sh
# Gives each gated pod of {kind} {job_name} its node. Run it beside the job; it ends when the job does.
set -eu
kubectl() {{ command kubectl --namespace={profile.kubernetes.namespace} "$@" < /dev/null; }}
pin() {{
    case $2 in
{table}
        *) echo "pod $1 is pod $2 of the job, which has no node in this pinner" >&2; return 1 ;;
    esac
    kubectl patch pod "$1" --patch="$(printf '{_patch()}' "$node")"
}}
while :; do
    # What fails now may work the next time, and a failed patch leaves the gate.
    pods=$(kubectl get pods --selector={selector.format(name=job_name)} \\
        --output=jsonpath={gated}) || pods=
    printf '%s\\n' "$pods" | while read -r pod which; do
        [ -z "$pod" ] || pin "$pod" "$which" || echo "pod $pod keeps its gate" >&2
    done
    if job=$(kubectl get {kind} {job_name} --ignore-not-found --output=jsonpath={shlex.quote(_CONDITIONS)}); then
        case $job in
            '') echo "there is no {kind} {job_name}; create it first" >&2; exit 1 ;;
            *' {ended} '*|*' Failed '*) exit 0 ;;
        esac
    fi
    sleep {_POLL_S}
done
"""


_CONDITIONS = '{.metadata.name}{" "}{range .status.conditions[?(@.status=="True")]}{.type}{" "}{end}'
_PINNED = {
    Workload.INDEXED_JOB: (
        "job.batch",
        "batch.kubernetes.io/job-name={name}",
        '{"pod"}',
        r"{.metadata.annotations.batch\.kubernetes\.io/job-completion-index}",
        "Complete",
    ),
    Workload.PYTORCHJOB: (
        "pytorchjob.kubeflow.org",
        "training.kubeflow.org/job-name={name}",
        r"{.metadata.labels.training\.kubeflow\.org/replica-type}",
        r"{.metadata.labels.training\.kubeflow\.org/replica-index}",
        "Succeeded",
    ),
}
"""For each: its kind, the selector of its pods, where a pod says its role and its index, and how it ends well."""


def _pods(workload: Workload, rank_map: RankMap) -> list[tuple[str, str]]:
    """Return role and index of the pod of each node rank, and its node."""
    if workload is Workload.INDEXED_JOB:
        return [(f"pod-{node_rank}", name) for node_rank, name in enumerate(rank_map.node_names)]
    first, *others = rank_map.node_names
    return [("master-0", first), *((f"worker-{index}", name) for index, name in enumerate(others))]


def _patch() -> str:
    patch = {"spec": {"affinity": affinity(["%s"]), "schedulingGates": [{"$patch": "delete", "name": GATE}]}}
    return json.dumps(patch)

#!/bin/sh
# Gives each gated pod of job.batch pretrain-7b its node. Run it beside the job; it ends when the job does.
set -eu
kubectl() { command kubectl --namespace=ml "$@" < /dev/null; }
pin() {
    case $2 in
        pod-0) node=n12 ;;
        pod-1) node=n3.rack2.example ;;
        pod-2) node=n11 ;;
        *) echo "pod $1 is pod $2 of the job, which has no node in this pinner" >&2; return 1 ;;
    esac
    kubectl patch pod "$1" --patch="$(printf '{"spec": {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["%s"]}]}]}}}, "schedulingGates": [{"$patch": "delete", "name": "spanfit/placed"}]}}' "$node")"
}
while :; do
    # What fails now may work the next time, and a failed patch leaves the gate.
    pods=$(kubectl get pods --selector=batch.kubernetes.io/job-name=pretrain-7b \
        --output=jsonpath='{range .items[?(@.spec.schedulingGates)]}{.metadata.name}{" "}{"pod"}{"-"}{.metadata.annotations.batch\.kubernetes\.io/job-completion-index}{"\n"}{end}') || pods=
    printf '%s\n' "$pods" | while read -r pod which; do
        [ -z "$pod" ] || pin "$pod" "$which" || echo "pod $pod keeps its gate" >&2
    done
    if job=$(kubectl get job.batch pretrain-7b --ignore-not-found --output=jsonpath='{.metadata.name}{" "}{range .status.conditions[?(@.status=="True")]}{.type}{" "}{end}'); then
        case $job in
            '') echo "there is no job.batch pretrain-7b; create it first" >&2; exit 1 ;;
            *' Complete '*|*' Failed '*) exit 0 ;;
        esac
    fi
    sleep 2
done

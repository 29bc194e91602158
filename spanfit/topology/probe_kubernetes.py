"""What a Kubernetes API server says of its nodes, through the official client: edge; only lists, which changes nothing.

Nodes, the pods that use them and, where the server has any, Topologies (Kueue, KAI) and HyperNodes (Volcano) are
fetched page by page and handed to the readers of files.
"""

import os
import ssl
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

from spanfit.errors import LaunchError, TimedOutError
from spanfit.topology.readers.documents import Place, load_json
from spanfit.topology.readers.sources import kubernetes_readings
from spanfit.topology.reading import Finding, Reading, shown

CONNECT_S = 5.0
READ_S = 60.0
"""How long a connection, and a page, may take."""
PAGE_ITEMS = 500

_RUNNING = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"
_TOPOLOGIES = (
    ("kueue.x-k8s.io", "topologies"),
    ("kai.scheduler", "topologies"),
    ("topology.volcano.sh", "hypernodes"),
)
_UNREAD = {
    "metadata": ("annotations", "managedFields", "ownerReferences"),
    "spec": ("volumes", "tolerations", "initContainers", "affinity"),
    "status": ("images", "containerStatuses", "initContainerStatuses", "volumesAttached", "volumesInUse"),
}
_HOME = Path("~/.kube/config")
_IN_CLUSTER = "KUBERNETES_SERVICE_HOST"
_GONE = 410
_FORBIDDEN = (403, 404)
_NEXT_STEPS = {
    401: "the credentials are refused or have expired: log in again until kubectl get nodes works",
    403: "ask for the right to list nodes (kubectl auth can-i list nodes); or have somebody who has it write "
    "kubectl get nodes -o json to a file",
    404: "the address is no API server's, or a proxy's: check cluster.server in the kubeconfig",
    429: "the server is overloaded: try again later",
}

Fetch = Callable[..., Any]


def read_kubernetes(tolerated: Collection[str] = ()) -> tuple[Reading, ...]:
    """Return what the API server of the current context says: the kubeconfig's, or the own cluster's inside a pod.

    Parameters
    ----------
    tolerated : collection of str
        Keys of taints that do not speak against a node, as the pods that are placed tolerate them.

    Raises
    ------
    LaunchError
        If the client is not installed or has no configuration, or the server refuses or cannot be reached.
    TimedOutError
        If the server does not answer in time.
    ConfigError
        If an object has another shape than expected.
    """
    client, config = _modules()
    with client.ApiClient(_configuration(client, config)) as api:
        origin = f"Kubernetes at {shown(api.configuration.host)}"
        core = client.CoreV1Api(api)
        lists = [Place(origin, "", _untainted(page, tolerated)) for page in _pages(core.list_node, origin)]
        findings: list[Finding] = []
        for what, fetch in _optional(client, api, origin):
            pages = _allowed(what, fetch, origin)
            if isinstance(pages, Finding):
                findings.append(pages)
            else:
                lists += [Place(origin, "", page) for page in pages]
    return kubernetes_readings(lists, findings)


def _modules() -> tuple[Any, Any]:
    """Return the client's modules ``client`` and ``config``."""
    try:
        from kubernetes import client, config
    except ImportError:
        raise LaunchError(
            "the Kubernetes client is not installed; install it with pip install 'spanfit[live]', or read "
            "kubectl get nodes -o json from a file"
        ) from None
    return client, config


def _configuration(client: Any, config: Any) -> Any:
    from yaml import YAMLError

    settings = client.Configuration()
    settings.retries = 0
    # Named here, as the client keeps the variable's value of when it was first imported.
    path = os.environ.get("KUBECONFIG") or str(_HOME.expanduser())
    try:
        if os.environ.get(_IN_CLUSTER) and not ("KUBECONFIG" in os.environ or _HOME.expanduser().exists()):
            config.load_incluster_config(client_configuration=settings)
        else:
            config.load_kube_config(config_file=path, client_configuration=settings, persist_config=False)
    except (config.ConfigException, YAMLError, OSError) as error:
        said = shown(str(error).partition("\n")[0])
        raise LaunchError(
            f"no way to an API server: {said}; expected a kubeconfig (KUBECONFIG or {_HOME}) with a current context "
            "that kubectl get nodes works with, or to run in a pod with a service account"
        ) from None
    return settings


def _optional(client: Any, api: Any, origin: str) -> Iterator[tuple[str, Fetch]]:
    """Yield what may be there beside nodes: its name, and the call that lists it."""

    def pods(**options: Any) -> Any:
        return client.CoreV1Api(api).list_pod_for_all_namespaces(field_selector=_RUNNING, **options)

    yield "pods", pods
    served = _served_versions(client, api, origin)
    for group, plural in _TOPOLOGIES:
        if group in served:
            yield f"{plural}.{group}", _custom(client, api, group, served[group], plural)


def _custom(client: Any, api: Any, group: str, version: str, plural: str) -> Fetch:
    def objects(**options: Any) -> Any:
        return client.CustomObjectsApi(api).list_cluster_custom_object(group, version, plural, **options)

    return objects


def _served_versions(client: Any, api: Any, origin: str) -> dict[str, str]:
    """Return the preferred version of each group of the API."""
    document = _fetch(client.ApisApi(api).get_api_versions, origin)
    groups = Place(origin, "", document).get("groups").items()
    return {group.get("name").name(): group.get("preferredVersion").get("version").text() for group in groups}


def _allowed(what: str, fetch: Fetch, origin: str) -> list[Any] | Finding:
    """Return the pages of a list; where the caller may not read it, what that means."""
    from kubernetes.client import ApiException

    try:
        return [*_pages(fetch, origin)]
    except LaunchError as error:
        if not (isinstance(error.__cause__, ApiException) and error.__cause__.status in _FORBIDDEN):
            raise
    means = "nodes that pods use count as free" if what == "pods" else "places come from labels alone"
    text = f"{origin}: may not list {what}: {means}; ask for the right to list them (kubectl auth can-i list {what} -A)"
    return Finding(code="list-forbidden", subject=what, text=text)


def _pages(fetch: Fetch, origin: str) -> Iterator[Any]:
    """Return the pages of a list; a list that grew too old while it was read is read again, once."""
    from kubernetes.client import ApiException

    try:
        return iter([*_whole_list(fetch, origin)])
    except LaunchError as error:
        if not (isinstance(error.__cause__, ApiException) and error.__cause__.status == _GONE):
            raise
    return _whole_list(fetch, origin)


def _whole_list(fetch: Fetch, origin: str) -> Iterator[Any]:
    """Yield a list's pages, without the marks that they are pages."""
    token = ""
    seen: set[str] = set()
    while True:
        document = _fetch(fetch, origin, limit=PAGE_ITEMS, **({"_continue": token} if token else {}))
        metadata = Place(origin, "", document).get("metadata").table()
        token = str(metadata.get("continue") or "")
        if token in seen:
            raise LaunchError(f"{origin}: gave the same page twice; expected the next one; try again")
        seen.add(token)
        yield {**document, "metadata": {}, "items": _lean(document.get("items"))}
        if not token:
            return


def _lean(items: Any) -> Any:
    """Return objects without what no reader asks for; of pods and nodes it is the most, and many are kept at once."""
    for item in items if isinstance(items, list) else ():
        for part, keys in _UNREAD.items():
            table = item.get(part) if isinstance(item, dict) else None
            if isinstance(table, dict):
                for key in keys:
                    table.pop(key, None)
    return items


def _fetch(fetch: Fetch, origin: str, **options: Any) -> Any:
    """Return the document that a call of the client gets; LaunchError or TimedOutError where it gets none."""
    from kubernetes.client import ApiException
    from urllib3.exceptions import HTTPError

    try:
        answer = fetch(_preload_content=False, _request_timeout=(CONNECT_S, READ_S), **options)
        return load_json(answer.data.decode(errors="replace"), origin)
    except ApiException as error:
        raise LaunchError(f"{origin}: {_refusal(error)}") from error
    except (HTTPError, ssl.SSLError, OSError) as error:
        raise _unreachable(error, origin) from error


def _refusal(error: Any) -> str:
    reason = shown(" ".join(str(error.reason).split()))
    if not error.status:  # the client's own words for what TLS refused
        return f"{reason}; check certificate-authority in the kubeconfig, and that no proxy is between"
    step = _NEXT_STEPS.get(error.status, "ask the cluster's operator, or try again later")
    return f"answered {error.status} {reason}; {step}"


def _unreachable(error: Exception, origin: str) -> LaunchError | TimedOutError:
    from urllib3.exceptions import ConnectTimeoutError, NewConnectionError, ReadTimeoutError, SSLError

    cause = getattr(error, "reason", None) or error
    if isinstance(cause, SSLError | ssl.SSLError):
        text = f"{shown(str(cause))}; check certificate-authority in the kubeconfig, and that no proxy is between"
        return LaunchError(f"{origin}: {text}")
    # A refused connection is, for urllib3, a kind of time-out.
    if isinstance(cause, ConnectTimeoutError | ReadTimeoutError) and not isinstance(cause, NewConnectionError):
        return TimedOutError(
            f"{origin}: no answer within {CONNECT_S:.0f} s to connect and {READ_S:.0f} s to read; check the network "
            "and the server's address (kubectl cluster-info), and try again"
        )
    said = shown(str(cause).rpartition(": ")[2])
    return LaunchError(f"{origin}: cannot be reached: {said}; check the network and cluster.server in the kubeconfig")


def _untainted(page: Any, tolerated: Collection[str]) -> Any:
    """Return a list of nodes without the taints of some keys."""
    items = page.get("items")
    for node in items if isinstance(items, list) else ():
        spec = node.get("spec") if isinstance(node, dict) else None
        if isinstance(spec, dict) and isinstance(taints := spec.get("taints"), list):
            spec["taints"] = [one for one in taints if not (isinstance(one, dict) and one.get("key") in tolerated)]
    return page

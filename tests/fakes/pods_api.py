"""An API server of Kubernetes in this process that has the pods of one job, and takes patches of them."""

import contextlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

_KINDS = {"v1": ("pods", "Pod"), "batch/v1": ("jobs", "Job"), "kubeflow.org/v1": ("pytorchjobs", "PyTorchJob")}


@dataclass(slots=True, kw_only=True)
class Pods:
    """The pods of a job by name, the job, and what it is once no pod is gated any more.

    Attributes
    ----------
    job : dict
        ``apiVersion``, ``kind`` and ``metadata`` with name and namespace.
    ended : str
        The condition of the job at its end.
    selectors, patches : list
        What was asked for, and the content type and body of each patch.
    """

    pods: dict[str, dict[str, Any]]
    job: dict[str, Any]
    ended: str
    selectors: list[str] = field(default_factory=list)
    patches: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    url: str = ""

    def get(self, path: str, query: dict[str, list[str]]) -> dict[str, Any] | None:
        """Return what is at a path, None where there is nothing."""
        parts = path.strip("/").split("/")
        if parts == ["api"]:
            return {"kind": "APIVersions", "versions": ["v1"]}
        if parts == ["apis"]:
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [*map(_group, _KINDS)][1:]}
        version = "/".join(parts[1 : 2 if parts[0] == "api" else 3])
        if version in _KINDS and "namespaces" not in parts:
            return _resources(version)
        if parts[-1] == "pods":
            self.selectors += query.get("labelSelector", [])
            return {"kind": "PodList", "apiVersion": "v1", "items": [*self.pods.values()]}
        if parts[-2] == "pods":
            return self.pods.get(parts[-1])
        if parts[-1] == self.job["metadata"]["name"]:
            gated = any(pod["spec"].get("schedulingGates") for pod in self.pods.values())
            conditions = [] if gated else [{"type": self.ended, "status": "True"}]
            return self.job | {"status": {"conditions": conditions}}
        return None

    def patch(self, path: str, content_type: str, body: dict[str, Any]) -> dict[str, Any]:
        """Take a patch of a pod's affinity and gates, merged as the server does."""
        self.patches.append((content_type, body))
        spec = self.pods[path.rpartition("/")[2]]["spec"]
        spec["affinity"] = body["spec"]["affinity"]
        gone = {gate["name"] for gate in body["spec"]["schedulingGates"] if gate.get("$patch") == "delete"}
        spec["schedulingGates"] = [gate for gate in spec["schedulingGates"] if gate["name"] not in gone]
        return self.pods[path.rpartition("/")[2]]


def _group(version: str) -> dict[str, Any]:
    one = {"groupVersion": version, "version": version.rpartition("/")[2]}
    return {"name": version.partition("/")[0], "versions": [one], "preferredVersion": one}


def _resources(version: str) -> dict[str, Any]:
    plural, kind = _KINDS[version]
    verbs = ["get", "list", "patch"]
    resource = {"name": plural, "singularName": kind.lower(), "namespaced": True, "kind": kind, "verbs": verbs}
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": [resource]}


@contextlib.contextmanager
def serving(pods: Pods) -> Iterator[Pods]:
    """Serve pods on a port of its own for the time of the block; its address is their ``url``."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            found = pods.get(parts.path, parse_qs(parts.query))
            self._send(found or {"kind": "Status", "code": 404, "reason": "NotFound"}, 200 if found else 404)

        def do_PATCH(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self._send(pods.patch(urlsplit(self.path).path, self.headers["Content-Type"], body), 200)

        def _send(self, document: dict[str, Any], code: int) -> None:
            text = json.dumps(document).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        pods.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield pods
        finally:
            server.shutdown()
            thread.join()

"""A Kubernetes API server in this process: it lists what a test gives it, page by page, and fails where it is told."""

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

TOKEN = "right-token"
_MOST_ITEMS = 500


@dataclass(slots=True, kw_only=True)
class Api:
    """What the server has, and what it was asked.

    Attributes
    ----------
    lists : dict
        Objects by path, such as ``/api/v1/nodes``.
    groups : dict
        The version of each group that /apis tells.
    failing : dict
        By path, what it answers instead: a status, text that is no JSON, or a number of seconds to say nothing.
    expiring : dict
        By path, how many continue tokens are too old.
    page_items : int
        The most objects of a page, whatever was asked for.
    asked : list
        Path and query of each request.
    port : int
    """

    lists: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    groups: dict[str, str] = field(default_factory=dict)
    failing: dict[str, int | float | str] = field(default_factory=dict)
    expiring: dict[str, int] = field(default_factory=dict)
    page_items: int = _MOST_ITEMS
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    port: int = 0

    def answer(self, path: str, query: dict[str, str], token: str) -> tuple[int, Any]:
        """Return status and document, or text, of a request."""
        self.asked.append((path, query))
        failure = self.failing.get(path)
        if isinstance(failure, float):
            time.sleep(failure)
        if isinstance(failure, str):
            return 200, failure
        if isinstance(failure, int):
            return failure, _status(failure)
        if token != f"Bearer {TOKEN}":
            return 401, _status(401)
        if path == "/apis":
            return 200, self._groups()
        if path not in self.lists:
            return 404, _status(404)
        return self._page(path, query)

    def _groups(self) -> dict[str, Any]:
        versions = {
            name: {"groupVersion": f"{name}/{version}", "version": version} for name, version in self.groups.items()
        }
        groups = [{"name": name, "versions": [one], "preferredVersion": one} for name, one in versions.items()]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}

    def _page(self, path: str, query: dict[str, str]) -> tuple[int, Any]:
        if "continue" in query and self.expiring.get(path):
            self.expiring[path] -= 1
            return 410, _status(410)
        start = int(query.get("continue", "token-0").removeprefix("token-"))
        end = start + min(int(query.get("limit", _MOST_ITEMS)), self.page_items)
        items = self.lists[path]
        left = len(items) - end
        more = {"continue": f"token-{end}", "remainingItemCount": left} if left > 0 else {}
        kind = {"nodes": "Node", "pods": "Pod", "topologies": "Topology", "hypernodes": "HyperNode"}[
            path.rpartition("/")[2]
        ]
        return 200, {
            "kind": f"{kind}List",
            "apiVersion": "v1",
            "metadata": {"resourceVersion": "7", **more},
            "items": items[start:end],
        }


def _status(code: int) -> dict[str, Any]:
    return {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": f"refused with {code}", "code": code}


@contextlib.contextmanager
def serving(api: Api, kubeconfig: Path) -> Iterator[Api]:
    """Serve an API on a port of its own for the time of the block, and write the kubeconfig that leads there."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            query = {key: values[0] for key, values in parse_qs(parts.query, keep_blank_values=True).items()}
            code, document = api.answer(parts.path.rstrip("/"), query, self.headers.get("Authorization", ""))
            text = (document if isinstance(document, str) else json.dumps(document)).encode()
            with contextlib.suppress(ConnectionError):
                self.send_response(code)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        api.port = server.server_address[1]
        write_kubeconfig(kubeconfig, f"http://127.0.0.1:{api.port}")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield api
        finally:
            server.shutdown()
            thread.join()


def write_kubeconfig(path: Path, server: str, token: str = TOKEN) -> None:
    """Write a kubeconfig of one cluster and one user."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {"token": token}}],
    }
    path.write_text(json.dumps(document))


def make_node(name: str, leaf: str, spine: str = "s0", *, ngpus: int = 8, **more: Any) -> dict[str, Any]:
    """Return a Node that is ready, with topograph's labels; ``more`` goes into its spec."""
    labels = {
        "fabric.topograph.run/tier-0": leaf,
        "fabric.topograph.run/tier-1": spine,
        "nvidia.com/gpu.product": "H200",
    }
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": more,
        "status": {
            "allocatable": {"nvidia.com/gpu": str(ngpus)},
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        },
    }


def make_pod(name: str, node: str, ngpus: int = 8) -> dict[str, Any]:
    """Return a Pod that runs on a node and uses GPUs of it."""
    resources = {"limits": {"nvidia.com/gpu": str(ngpus)}}
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"nodeName": node, "containers": [{"name": "c", "resources": resources}]},
        "status": {"phase": "Running"},
    }

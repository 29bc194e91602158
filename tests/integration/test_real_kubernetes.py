"""A real Kubernetes API server: its nodes read, its refusals, and our manifests sent to it without effect.

``make live`` builds and starts the server (tools/live-kubernetes) and runs these tests; they are skipped elsewhere.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from spanfit.cli.main import spanfit
from spanfit.errors import LaunchError
from spanfit.topology import probe_kubernetes
from spanfit.topology.merge import Merged, merge
from spanfit.topology.probe import LiveSource, read_live
from tests.fakes.kubernetes_api import make_node

FOLDER = os.environ.get("SPANFIT_REAL_KUBERNETES", "")
pytestmark = pytest.mark.skipif(not FOLDER, reason="no real API server; make live builds and starts one")

JOB = """name = "train"
dp = 2
pp = 2
tp = 8
ngpus_per_node = 8
command = ["train.py", "--config", "a b"]
"""


@pytest.fixture
def core(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Give the client's core API of an administrator; eight nodes are there for the time of the test."""
    client = pytest.importorskip("kubernetes.client")
    config = pytest.importorskip("kubernetes.config")
    monkeypatch.setenv("KUBECONFIG", f"{FOLDER}/admin.kubeconfig")
    with config.new_client_from_config(f"{FOLDER}/admin.kubeconfig") as api:
        core = client.CoreV1Api(api)
        names = [f"n{index}" for index in range(8)]
        for index, name in enumerate(names):
            node = make_node(name, f"l{index // 2}", f"s{index // 4}")
            core.create_node({"metadata": node["metadata"]})
            # An admission plugin taints new nodes until they are ready, which a controller would end.
            core.patch_node(name, {"spec": {"taints": None}})
            core.patch_node_status(name, {"status": node["status"]})
        yield core
        for name in names:
            core.delete_node(name)


def read(own: str = "") -> Merged:
    return merge(read_live(LiveSource.KUBERNETES, 0.0, own=own), "live")


def states(merged: Merged) -> dict[str, str]:
    return {node.name: node.state.value for node in merged.cluster.nodes}


def test_labels_gpus_and_states_are_read_page_by_page(core: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe_kubernetes, "PAGE_ITEMS", 3)
    core.patch_node("n1", {"spec": {"unschedulable": True}})
    own = {"key": "spanfit/train", "value": "reserved", "effect": "NoSchedule"}
    core.patch_node("n2", {"spec": {"taints": [own]}})
    core.patch_node_status("n3", {"status": {"conditions": [{"type": "Ready", "status": "False", "reason": "Gone"}]}})
    pod = {
        "metadata": {"name": "p"},
        "spec": {
            "nodeName": "n4",
            "containers": [{"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "8"}}}],
        },
    }
    core.create_namespaced_pod("default", pod)
    try:
        merged = read()
        assert states(merged) == {
            "n0": "idle",
            "n1": "drained",
            "n2": "reserved",
            "n3": "down",
            "n4": "allocated",
            "n5": "idle",
            "n6": "idle",
            "n7": "idle",
        }
        assert states(read("train"))["n2"] == "idle"
        assert {node.name: node.fabric for node in merged.cluster.nodes}["n5"] == ("l2", "s1")
        assert {(node.ngpus, node.gpu_model) for node in merged.cluster.nodes} == {(8, "H200")}
    finally:
        core.delete_namespaced_pod("p", "default", grace_period_seconds=0)


def test_who_has_no_rights_is_refused_with_the_next_step(core: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", f"{FOLDER}/plain.kubeconfig")
    with pytest.raises(LaunchError, match="answered 403 Forbidden; ask for the right to list nodes"):
        read()


def test_wrong_credentials_and_unknown_certificates_are_refused(
    core: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    text = Path(FOLDER, "admin.kubeconfig").read_text()
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    (tmp_path / "kubeconfig").write_text(text.replace("admin-token", "old-token"))
    with pytest.raises(LaunchError, match="answered 401 Unauthorized"):
        read()
    line = next(line for line in text.splitlines() if line.startswith("clusters"))
    bare = yaml.safe_load(line)
    del bare["clusters"][0]["cluster"]["certificate-authority"]
    (tmp_path / "kubeconfig").write_text(text.replace(line, yaml.safe_dump(bare)))
    with pytest.raises(LaunchError, match=r"CERTIFICATE_VERIFY_FAILED.*; check certificate-authority"):
        read()


def test_a_job_is_placed_and_its_manifests_are_accepted(core: Any, tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text(JOB)
    (tmp_path / "site.toml").write_text('[container]\nimage = "registry.example/train:1"\n')
    seen = 0
    for kind in ("jobset", "indexed-job", "pytorchjob"):
        words = ["place", str(tmp_path / "job.toml"), "--alpha", "0.5", "--live", "kubernetes", "--emit", kind]
        done = CliRunner().invoke(spanfit, [*words, "--profile", str(tmp_path / "site.toml")])
        assert done.exit_code == 0, done.output
        for document in yaml.safe_load_all(done.stdout):
            seen += send(core, document)
    assert seen >= 3


def send(core: Any, document: dict[str, Any]) -> int:
    """Send a manifest, and each pod template in it as a pod, with no effect; return how many pods were accepted."""
    client: Any = pytest.importorskip("kubernetes.client")
    if document["kind"] == "Job":
        client.BatchV1Api(core.api_client).create_namespaced_job("default", document, dry_run="All")
    if document["kind"] == "Service":
        core.create_namespaced_service("default", document, dry_run="All")
    templates = list(pod_templates(document))
    for index, template in enumerate(templates):
        # What pods of a job are given by its controller; a gate is younger than this server.
        spec = {key: value for key, value in template["spec"].items() if key != "schedulingGates"}
        pod = {"metadata": {**template.get("metadata", {}), "name": f"pod-{index}"}, "spec": spec}
        answer = core.create_namespaced_pod("default", pod, dry_run="All", _preload_content=False)
        kept = json.loads(answer.data)["spec"]
        lost = [key for key in spec if key not in kept]
        assert not lost, f"{document['kind']}: the server knows no {', '.join(lost)}"
    return len(templates)


def pod_templates(value: Any) -> Iterator[dict[str, Any]]:
    """Yield the pod templates anywhere in a manifest."""
    if isinstance(value, dict):
        template = value.get("template")
        if isinstance(template, dict) and "containers" in template.get("spec", {}):
            yield template
        for inner in value.values():
            yield from pod_templates(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from pod_templates(inner)

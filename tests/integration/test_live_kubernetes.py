"""The official Kubernetes client against an API server in this process, from its pages to a placement."""

import json
import shlex
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from spanfit.cli.main import spanfit
from spanfit.errors import ConfigError, InfeasibleError, LaunchError, SpanfitError, TimedOutError
from spanfit.topology import probe_kubernetes
from spanfit.topology.merge import Merged, merge
from spanfit.topology.probe import LiveSource, read_live
from tests.fakes.kubernetes_api import Api, make_node, make_pod, serving, write_kubeconfig

pytest.importorskip("kubernetes", reason="the Kubernetes client is missing; install the extra 'live'")

NODES, PODS = "/api/v1/nodes", "/api/v1/pods"
JOB = """name = "train"
ngpus_per_node = 8
dp = 2
pp = 2
tp = 8
"""


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    """Serve eight nodes under two spines, all free, to whatever asks the current context."""
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    nodes = [make_node(f"n{index}", f"l{index // 2}", f"s{index // 4}") for index in range(8)]
    with serving(Api(lists={NODES: nodes, PODS: []}), tmp_path / "kubeconfig") as api:
        yield api


def read(own: str = "") -> Merged:
    return merge(read_live(LiveSource.KUBERNETES, 0.0, own=own), "live")


def states(merged: Merged) -> dict[str, str]:
    return {node.name: node.state.value for node in merged.cluster.nodes}


def codes(merged: Merged) -> list[str]:
    return [finding.label for finding in merged.findings]


def run(*arguments: object) -> Result:
    return CliRunner().invoke(spanfit, [str(one) for one in arguments])


def test_nodes_and_pods_are_read_page_by_page(api: Api) -> None:
    api.page_items = 3
    api.lists[PODS] = [make_pod(f"p{index}", "n5") for index in range(4)] + [make_pod("cpu", "n6", 0)]
    api.lists[NODES][1]["spec"] = {"unschedulable": True}
    merged = read()
    assert states(merged) == {f"n{index}": "idle" for index in range(8)} | {"n1": "drained", "n5": "allocated"}
    assert [node.fabric for node in merged.cluster.nodes][3] == ("l1", "s0")
    assert codes(merged) == ["node-cordoned:n1", "islands:2"]
    pages = [query.get("continue") for path, query in api.asked if path == NODES]
    assert pages == [None, "token-3", "token-6"]
    assert all(query["limit"] == "500" for path, query in api.asked if path in (NODES, PODS))
    selectors = {query["fieldSelector"] for path, query in api.asked if path == PODS}
    assert selectors == {"spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"}


def test_a_list_that_grew_too_old_is_read_again_once(api: Api) -> None:
    api.page_items, api.expiring = 3, {NODES: 1}
    assert len(read().cluster.nodes) == 8
    api.expiring = {NODES: 2}
    with pytest.raises(LaunchError, match="answered 410 Gone"):
        read()


@pytest.mark.parametrize(
    ("path", "failure", "kind", "text"),
    [
        (NODES, 401, LaunchError, "answered 401 Unauthorized; the credentials are refused"),
        (NODES, 403, LaunchError, "answered 403 Forbidden; ask for the right to list nodes"),
        (NODES, 404, LaunchError, "answered 404 Not Found; the address is no API server's"),
        (NODES, 503, LaunchError, "answered 503 Service Unavailable; ask the cluster's operator, or try again later"),
        (PODS, 500, LaunchError, "answered 500"),
        (NODES, "<html>login</html>", ConfigError, "not valid JSON"),
        (NODES, '{"items": 3, "kind": "NodeList", "metadata": {}}', ConfigError, "items: found 3; expected a list"),
        (NODES, "[]", ConfigError, "found a list; expected a table with metadata"),
        (NODES, '{"items": [], "kind": "NodeList", "metadata": {"continue": "x"}}', LaunchError, "the same page twice"),
        (NODES, '{"items": [], "kind": "NodeList", "metadata": {}}', ConfigError, "found no Node"),
    ],
)
def test_a_server_that_refuses_is_one_message(
    api: Api, path: str, failure: int | str, kind: type[SpanfitError], text: str
) -> None:
    api.failing[path] = failure
    with pytest.raises(kind, match=text) as found:
        read()
    assert f"Kubernetes at http://127.0.0.1:{api.port}" in str(found.value)


def test_a_server_that_says_nothing_times_out(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe_kubernetes, "READ_S", 0.2)
    api.failing[NODES] = 1.0
    with pytest.raises(TimedOutError, match="no answer within 5 s to connect and 0 s to read"):
        read()
    assert [path for path, _ in api.asked] == [NODES], "a busy server is not asked again and again"


def test_a_server_that_is_not_there_and_one_without_tls(api: Api, tmp_path: Path) -> None:
    write_kubeconfig(tmp_path / "kubeconfig", f"https://127.0.0.1:{api.port}")
    with pytest.raises(LaunchError, match=r"(?i)ssl.*; check certificate-authority in the kubeconfig"):
        read()
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        write_kubeconfig(tmp_path / "kubeconfig", f"http://127.0.0.1:{closed.getsockname()[1]}")
        with pytest.raises(LaunchError, match=r"cannot be reached: .*refused.*; check the network and cluster.server"):
            read()


@pytest.mark.parametrize("text", [None, "{", "apiVersion: v1\nkind: Config\n"])
def test_without_a_configuration_the_message_says_what_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    if text is not None:
        (tmp_path / "kubeconfig").write_text(text)
    with pytest.raises(LaunchError, match=r"no way to an API server: .*expected a kubeconfig"):
        read()


def test_a_pod_without_a_service_account_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.delenv("KUBERNETES_SERVICE_PORT", raising=False)
    with pytest.raises(LaunchError, match=r"no way to an API server: Service host/port is not set"):
        read()


def test_who_may_not_list_pods_is_told_what_that_means(api: Api) -> None:
    api.failing[PODS] = 403
    merged = read()
    assert set(states(merged).values()) == {"idle"}
    assert codes(merged)[0] == "list-forbidden:pods"
    assert "nodes that pods use count as free" in merged.findings[0].text


def test_topologies_and_hypernodes_are_read_where_they_are_served(api: Api) -> None:
    api.groups = {"kueue.x-k8s.io": "v1beta2", "apps": "v1"}
    levels = [{"nodeLabel": "example.com/hall"}, {"nodeLabel": "kubernetes.io/hostname"}]
    path = "/apis/kueue.x-k8s.io/v1beta2/topologies"
    api.lists[path] = [{"kind": "Topology", "metadata": {"name": "halls"}, "spec": {"levels": levels}}]
    for index, node in enumerate(api.lists[NODES]):
        node["metadata"]["labels"]["example.com/hall"] = f"hall{index % 2}"
    assert {node.fabric for node in read().cluster.nodes} == {("hall0",), ("hall1",)}
    api.failing[path] = 403
    merged = read()
    assert len({node.fabric for node in merged.cluster.nodes}) == 4
    assert codes(merged)[0] == "list-forbidden:topologies.kueue.x-k8s.io"
    api.groups = {"topology.volcano.sh": "v1alpha1"}
    member = {"type": "Node", "selector": {"regexMatch": {"pattern": "n[0-7]"}}}
    hyper = {"kind": "HyperNode", "metadata": {"name": "h"}, "spec": {"tier": 1, "members": [member]}}
    api.lists["/apis/topology.volcano.sh/v1alpha1/hypernodes"] = [hyper]
    assert {node.fabric for node in read().cluster.nodes} == {("h",)}


def test_the_own_taint_holds_nodes_for_the_job_only(api: Api) -> None:
    own = {"key": "spanfit/train", "effect": "NoSchedule", "value": "reserved"}
    for index in (0, 1):
        api.lists[NODES][index]["spec"] = {"taints": [own]}
    api.lists[NODES][1]["spec"]["taints"] = [own, {"key": "other", "effect": "NoSchedule"}]
    assert states(read())["n0"] == states(read())["n1"] == "reserved"
    assert (states(read("train"))["n0"], states(read("train"))["n1"]) == ("idle", "reserved")


def test_nodes_with_a_taint_that_is_tolerated_are_free(api: Api, tmp_path: Path) -> None:
    for node in api.lists[NODES]:
        node["spec"] = {"taints": [{"key": "dedicated", "effect": "NoSchedule", "value": "train"}]}
    assert isinstance(placement(tmp_path).exception, InfeasibleError)
    assert placement(tmp_path, "--tolerate", "dedicated").exit_code == 0
    done = placement(tmp_path, "--use-reserved")
    assert (done.exit_code, "--tolerate KEY adds nodes with a taint" in " ".join(done.stderr.split())) == (2, True)


def placement(folder: Path, *more: object) -> Result:
    (folder / "job.toml").write_text(JOB)
    return run("place", folder / "job.toml", "--alpha", 0.5, "--live", "kubernetes", *more)


def test_a_job_is_placed_and_nothing_is_changed(api: Api, tmp_path: Path) -> None:
    api.lists[PODS] = [make_pod("p", "n0")]
    done = placement(tmp_path, "--reserve", "unlimited", "-o", tmp_path / "p.json")
    assert done.exit_code == 0, done.output
    assert "7 of 8 nodes are free for the job; not free:\n  n0: allocated\n" in done.stdout
    names = json.loads((tmp_path / "p.json").read_text())["rank_map"]["node_names"]
    assert len(names) == 4 and "n0" not in names
    taint = next(line for line in done.stdout.splitlines() if line.startswith("  kubectl taint"))
    assert shlex.split(taint) == ["kubectl", "taint", "nodes", *names, "spanfit/train=reserved:NoSchedule"]
    assert '  in the profile of its pods: [kubernetes] tolerations = ["spanfit/train"]\n' in done.stdout
    assert {path for path, _ in api.asked} == {NODES, PODS, "/apis"}, "only lists were asked for"


def test_a_node_that_is_cordoned_after_placing_is_noticed(api: Api, tmp_path: Path) -> None:
    placement(tmp_path, "-o", tmp_path / "p.json")
    check = ("place", "--check", tmp_path / "p.json", "--live", "kubernetes")
    done = run(*check)
    assert (done.exit_code, done.stdout) == (0, f"{tmp_path / 'p.json'}: all 4 nodes of job train are free\n")
    name = json.loads((tmp_path / "p.json").read_text())["rank_map"]["node_names"][2]
    next(node for node in api.lists[NODES] if node["metadata"]["name"] == name)["spec"] = {"unschedulable": True}
    done = run(*check)
    assert done.exit_code == 1
    assert name in done.stdout and "drained" in done.stdout
    assert f"--failed {name} --live kubernetes" in done.stderr
    found = json.loads(run(*check, "--json").stdout)["findings"]
    assert found == [{"node": name, "node_rank": 2, "fault": "drained"}]
    repaired = run("place", "--repair", tmp_path / "p.json", "--failed", name, "--live", "kubernetes", "--json")
    assert repaired.exit_code == 0, repaired.output
    assert name not in json.loads(repaired.stdout)["placement"]["rank_map"]["node_names"]


def test_what_kubernetes_cannot_reserve_is_refused(api: Api, tmp_path: Path) -> None:
    for options, text in (
        (["--reserve", "12h"], "no reservation with an owner and an end"),
        (["--reserve", "unlimited", "--apply"], "a taint has no end and no owner"),
        (["--apply"], "belong to --reserve"),
    ):
        done = placement(tmp_path, *options)
        assert done.exit_code == 2
        assert text in " ".join(done.stderr.split())
    assert api.asked == []


def test_hostile_names_and_labels_reach_no_shell_and_no_terminal(api: Api, tmp_path: Path) -> None:
    evil = ["$(touch pwned)", "a'; rm -rf x #", 'q"uote', "new\nline", "\x1b[2J", "x" * 65_536, "--all", "-n"]
    api.lists[NODES] += [make_node(name, "l9") for name in evil]
    for index, label in enumerate(evil[:5]):
        api.lists[NODES][index]["metadata"]["labels"]["fabric.topograph.run/tier-0"] = label
    api.lists[NODES][7]["metadata"]["labels"]["fabric.topograph.run/tier-1"] = "y" * 65_536
    done = placement(tmp_path, "--reserve", "unlimited", "-o", tmp_path / "p.json")
    assert done.exit_code == 0, done.output
    assert "\x1b" not in done.output
    taint = next(line for line in done.stdout.splitlines() if line.startswith("  kubectl taint"))
    words = shlex.split(taint)
    assert all(word in {f"n{index}" for index in range(8)} for word in words[3:-1])
    assert "unusable-name" in done.stderr
    assert max(map(len, done.stderr.splitlines())) < 1000
    assert not [line for line in done.output.splitlines() if line.startswith("line")]


def test_topology_commands_read_the_running_cluster(api: Api, tmp_path: Path) -> None:
    api.lists[PODS] = [make_pod("p", "n0")]
    done = run("topology", "import", "kubernetes:live", "--out", tmp_path / "c.toml")
    assert done.exit_code == 0, done.output
    assert 'name = "kubernetes"' in (tmp_path / "c.toml").read_text()
    assert run("topology", "diff", tmp_path / "c.toml", "kubernetes:live").exit_code == 0
    api.lists[PODS] = []
    changes = json.loads(run("topology", "diff", tmp_path / "c.toml", "kubernetes:live", "--json").stdout)["changes"]
    assert [(one["key"], one["names"]) for one in changes] == [("state", ["n0"])]


def test_the_switches_of_a_file_count_beside_live_states(api: Api, tmp_path: Path) -> None:
    unlabelled: list[dict[str, Any]] = [make_node(f"n{index}", "l") for index in range(8)]
    for node in unlabelled:
        node["metadata"]["labels"] = {}
    api.lists[NODES] = unlabelled
    api.lists[NODES][7]["spec"] = {"unschedulable": True}
    (tmp_path / "c.toml").write_text('name = "own"\n[[nodes]]\nnames = "n[0-7]"\nswitches = ["m"]\n')
    done = placement(tmp_path, "--cluster", tmp_path / "c.toml", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["cluster"] == "own"
    assert "n7: drained" in done.stderr

"""Lists of instances with the switches above them: topograph's graph and AWS's DescribeInstanceTopology."""

from spanfit.topology.readers.documents import Place
from spanfit.topology.readers.kubernetes_labels import accelerator_domain
from spanfit.topology.reading import (
    Finding,
    NodeFacts,
    Reading,
    depth_findings,
    parent_findings,
    shown,
    unplaced_finding,
)


def parse_topograph_graph(document: object, origin: str) -> Reading:
    """Return what topograph's graph engine writes: instances with ``network_layers``, the closest first.

    ConfigError says where the document has another shape.
    """
    nodes, findings = [], []
    for item in Place(origin, "", document).get("instances").items():
        name, layers = item.get("id").name(), item.get("network_layers").texts()
        labels = {key: value for key, value in item.get("labels").table().items() if isinstance(value, str)}
        attributes = item.get("attributes")  # before labels were written
        domain = accelerator_domain(labels) or (attributes.get("nvlink").text() if attributes.value else "")
        nodes.append(NodeFacts(name=name, fabric=layers or None, accelerator_domain=domain or None))
        if not layers:
            findings.append(unplaced_finding(name, "has no network_layers"))
    more = (*findings, *parent_findings(nodes), *depth_findings(nodes))
    return Reading(origin=origin, kind="topograph-graph", nodes=tuple(nodes), findings=more)


def parse_instance_topology(document: object, origin: str) -> Reading:
    """Return what ``aws ec2 describe-instance-topology`` prints: NetworkNodes are the top first, nodes instance ids.

    ConfigError says where the document has another shape.
    """
    nodes, findings = [], []
    root = Place(origin, "", document)
    for item in root.get("Instances").items():
        name, layers = item.get("InstanceId").name(), item.get("NetworkNodes").texts()
        nodes.append(NodeFacts(name=name, fabric=layers[::-1] or None))
        if not layers:
            text = f"{shown(name)} has no NetworkNodes; it is left out of the tree"
            findings.append(Finding(code="empty-network-nodes", subject=name, text=text))
    if root.get("NextToken").value:
        text = "the list goes on (NextToken); fetch the other pages and give them too"
        findings.append(Finding(code="truncated", subject="NextToken", text=text))
    more = (*findings, *parent_findings(nodes), *depth_findings(nodes))
    return Reading(origin=origin, kind="aws-instance-topology", nodes=tuple(nodes), findings=more)

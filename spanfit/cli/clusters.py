"""Clusters as every command reads them: what was left out of a file, or merged, is told."""

from collections.abc import Sequence
from pathlib import Path

from spanfit.cli.output import talk
from spanfit.topology.model import Cluster
from spanfit.topology.reading import Finding

MAX_FINDINGS = 10
"""Findings of one code that are told; the rest share one line, and --json of topology check has all."""


def load_cluster(path: Path) -> Cluster:
    """Return the cluster of a file of any kind, and tell what is odd in it; ConfigError where it cannot be read."""
    from spanfit.topology.readers.cluster_file import read_cluster_with_findings

    cluster, findings = read_cluster_with_findings(path)
    tell_findings(findings)
    return cluster


def tell_findings(findings: Sequence[Finding]) -> None:
    """Print findings as warnings, beside what a command prints."""
    for line in finding_lines(findings):
        talk(f"warning: {line}")


def finding_lines(findings: Sequence[Finding]) -> list[str]:
    """Return a line for each finding, of each code no more than a person reads."""
    by_code: dict[str, list[Finding]] = {}
    for finding in findings:
        by_code.setdefault(finding.code, []).append(finding)
    lines = []
    for code, found in by_code.items():
        lines += [str(finding) for finding in found[:MAX_FINDINGS]]
        if len(found) > MAX_FINDINGS:
            lines.append(f"{code}: {len(found) - MAX_FINDINGS} more of these; --json has them all")
    return lines

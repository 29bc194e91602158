"""Clusters as every command reads them: what was left out of a file, or merged, is told."""

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from spanfit.cli.output import talk
from spanfit.topology.model import Cluster
from spanfit.topology.reading import Finding, Reading

if TYPE_CHECKING:
    from spanfit.topology.merge import Merged

MAX_FINDINGS = 10
"""Findings of one code that are told; the rest share one line, and --json of topology check has all."""


def load_cluster(path: Path) -> Cluster:
    """Return the cluster of a file of any kind, and tell what is odd in it; ConfigError where it cannot be read."""
    merged = merge_sources([path])
    tell_findings(merged.findings)
    return merged.cluster


def merge_sources(sources: Sequence[Path]) -> "Merged":
    """Return the cluster of all sources, files or live, called after the first, and what is odd."""
    from spanfit.topology.merge import merge

    return merge(read_all(sources), source_name(sources[0]))


def read_all(sources: Sequence[Path], topology: str | None = None) -> tuple[Reading, ...]:
    """Return what sources say in their order: files, and ``slurm:live`` or ``kubernetes:live``, which run."""
    import time

    from spanfit.topology.probe import live_source, read_live
    from spanfit.topology.readers.sources import read_sources

    now_s = time.time()
    readings: list[Reading] = []
    for live, group in groupby(sources, key=lambda source: live_source(str(source))):
        found = (
            read_sources(list(group), now_s, topology) if live is None else read_live(live, now_s, topology=topology)
        )
        readings += found
    return tuple(readings)


def source_name(source: Path) -> str:
    """Return what a cluster is called after its source."""
    from spanfit.topology.probe import live_source

    live = live_source(str(source))
    return live.value if live else source.stem


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

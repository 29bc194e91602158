"""The cluster of one file, whatever the file is: spanfit's own TOML or any other source [edge: reads the clock]."""

import time
from pathlib import Path

from spanfit.topology.merge import merge
from spanfit.topology.model import Cluster
from spanfit.topology.readers.sources import read_sources
from spanfit.topology.reading import Finding


def read_cluster(path: Path) -> Cluster:
    """Return the cluster of a TOML cluster file or another source; ConfigError lists every mistake."""
    return read_cluster_with_findings(path)[0]


def read_cluster_with_findings(path: Path) -> tuple[Cluster, tuple[Finding, ...]]:
    """Return a cluster and what is odd about its file, though not wrong; ConfigError lists every mistake."""
    merged = merge(read_sources([path], time.time()), path.stem)
    return merged.cluster, merged.findings

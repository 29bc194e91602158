"""What was not the same when two runs were measured: it may be why their times differ."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spanfit.results.schema import RunInfo

ABSENT = "none"
_OF_A_CASE = {"collectives": ("skew", "graph"), "overlap": ("matrix", "products")}
"""Settings of a campaign that change what a case is, and that its rows do not hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast:
    """A thing that two runs do not share; ``ABSENT`` where a run does not say."""

    what: str
    a: str
    b: str


def contrasts(a: RunInfo, b: RunInfo) -> tuple[Contrast, ...]:
    """Return what differs in the engines, machines, settings and versions of two runs, and in what their cases mean."""
    of_a, of_b = _facts(a), _facts(b)
    nodes = [_nodes(a, b)] if set(a.node_names) != set(b.node_names) else []
    return (
        *(
            Contrast(what=what, a=of_a.get(what, ABSENT), b=of_b.get(what, ABSENT))
            for what in dict.fromkeys([*of_a, *of_b])
            if of_a.get(what, ABSENT) != of_b.get(what, ABSENT)
        ),
        *nodes,
    )


def _facts(info: RunInfo) -> dict[str, str]:
    facts = {
        "engine": info.engine,
        "backend": info.backend,
        "transport": info.transport,
        "GPU model": info.gpu_model,
        "ranks on each node": str(info.ngpus_per_node),
        "cluster": f"{info.cluster} ({info.cluster_hash[:12]})",
        "git commit": info.git_commit,
    }
    facts |= {f"version: {name}": version for name, version in sorted(info.versions.items())}
    facts |= {f"environment: {name}": value for name, value in sorted(info.environment.items())}
    facts |= {f"truth: {name}": f"{rate:.6g} bit/s" for name, rate in sorted(info.truth.items())}
    return facts | dict(_meanings(info.spec))


def _meanings(spec: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Yield the settings of a campaign that a case's rows do not tell; nothing of an imported run."""
    if "seed" in spec:
        yield "seed, which draws the nodes", str(spec["seed"])
    for table, keys in _OF_A_CASE.items():
        settings = spec.get(table)
        if isinstance(settings, Mapping):
            yield from ((f"{table}.{key}", str(settings[key])) for key in keys if key in settings)
    for job in _tables(spec, "jobs"):
        for key, value in sorted(job.items()):
            yield f"job {job['name']}: {key}", str(value)
    for noise in _tables(spec, "noise"):
        drawn = "; ".join(f"{job} on {', '.join(nodes)}" for job, nodes in noise["drawn"].items())
        for key, value in sorted({**noise, "drawn": drawn}.items()):
            yield f"noise {noise['name']}: {key}", str(value)


def _tables(spec: Mapping[str, object], key: str) -> Sequence[Mapping[str, Any]]:
    tables = spec.get(key)
    return tables if isinstance(tables, list | tuple) else ()


def _nodes(a: RunInfo, b: RunInfo) -> Contrast:
    nodes_a, nodes_b = set(a.node_names), set(b.node_names)
    return Contrast(
        what="nodes",
        a=f"{len(nodes_a)}, {len(nodes_a - nodes_b)} of them not in B",
        b=f"{len(nodes_b)}, {len(nodes_b - nodes_a)} of them not in A",
    )

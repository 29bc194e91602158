"""Alpha of a job by a weights file, the same for placing it and for asking how far its placement hangs on alpha."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spanfit.cli.output import talk

if TYPE_CHECKING:
    from pathlib import Path

    from spanfit.placer.model import JobSpec
    from spanfit.placer.rules import Rules
    from spanfit.topology.model import Cluster
    from spanfit.weights.model import WeightEntry, WeightSet
    from spanfit.weights.scaling import Shape


def chosen_entry(
    path: Path,
    weights: WeightSet,
    name: str | None,
    job: JobSpec,
    cluster: Cluster,
    rules: Rules,
    *,
    accept_stale: bool,
) -> tuple[WeightEntry, tuple[str, ...]]:
    """Return the entry for a job and why it was stale, and warn of both; ConfigError unless that is accepted."""
    from datetime import UTC, datetime

    from spanfit.placer.constraints import free_nodes
    from spanfit.placer.place import choose_weights
    from spanfit.weights.model import remarks
    from spanfit.weights.stale import accept, reasons

    chosen = choose_weights(weights, job, name)
    models = {node.gpu_model for node in free_nodes(job, cluster, rules)} | {job.gpu_model}
    known = [model for model in models if model]
    found = reasons(weights, now=datetime.now(UTC), gpu_models=known, entry=chosen)
    accepted = accept(str(path), found, accept_stale=accept_stale)
    for remark in (*accepted, *remarks(chosen)):
        talk(f"warning: weights of {chosen.job}: {remark}")
    return chosen, accepted


def scaling_target(
    scaling: str, job_file: Path, entry: WeightEntry, job: JobSpec, cluster: Cluster, rules: Rules
) -> tuple[Shape, int | None] | None:
    """Return the shape to scale an entry's alpha to and the fewest minipods that hold the job, if that is known.

    None where the entry's own alpha is to be taken: with scaling ``paper``, and without the job's ``[step]`` or the
    entry's volumes.
    """
    from spanfit.bench.job_file import read_training_job
    from spanfit.placer.constraints import free_nodes
    from spanfit.weights.scaling import Scaling, fewest_minipods, shape_of

    if Scaling(scaling) is Scaling.PAPER or job.edges is None or entry.volumes is None:
        return None

    shape = shape_of(read_training_job(job_file), job.ngpus_per_node)
    free = map(len, cluster.minipods(free_nodes(job, cluster, rules)).values())
    return shape, fewest_minipods(free, shape.dp * shape.pp)

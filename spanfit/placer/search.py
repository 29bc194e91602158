"""Solves every way in which its rules let a job be placed, or says in numbers why there is none."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from spanfit.errors import InfeasibleError
from spanfit.placer.constraints import by_minipod, ep_nodes, shortage
from spanfit.placer.joint import Weighing, solve_zone
from spanfit.placer.model import JobSpec, Solution
from spanfit.placer.offers import Ground, Offer
from spanfit.placer.rules import ACCELERATOR, OneModel, Rules
from spanfit.topology.model import Cluster, Node


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A job, the nodes that it may take and what it must respect.

    Attributes
    ----------
    job : JobSpec
    cluster : Cluster
    rules : Rules
    nodes : tuple of Node
        Those that the job may take.
    """

    job: JobSpec
    cluster: Cluster
    rules: Rules
    nodes: tuple[Node, ...]

    def ground(self, rules: Rules) -> Ground:
        """Return the grid in units under some rules."""
        unit = ep_nodes(self.job) if rules.ep_within else 1
        nrows, ncolumns = self.job.layout.grid(self.job.ngpus_per_node)
        minipods = tuple(self.cluster.minipods())
        return Ground(
            cluster=self.cluster, rules=rules, nrows=nrows // unit, ncolumns=ncolumns, unit=unit, minipods=minipods
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A solved way to place a job.

    Attributes
    ----------
    ground : Ground
    offer : Offer
    solution : Solution
        Of the grid of units, without EP groups.
    bound : float
        No placement of this way is below, EP groups included.
    """

    ground: Ground
    offer: Offer
    solution: Solution
    bound: float

    @property
    def certificate(self) -> str:
        """How the bound was proven, in words: that of DP and PP groups, and what EP groups add at least."""
        added = self.bound - self.solution.bound
        return f"{self.solution.certificate}; EP groups add {added:.4g}" if added > 0 else self.solution.certificate


def solve_ways(task: Task, weighing: Weighing) -> list[Found]:
    """Return the solution of every way that has room.

    Raises
    ------
    InfeasibleError
        If there is none; its text says what is missing and the nearest changes.

    Notes
    -----
    Where EP groups are weighed, either none leaves its minipod, so whole groups are the cells of the grid, or the
    largest EP spread is at least 2; both are solved, and the lower bound of the two holds for all placements.
    """
    grounds = [(task.ground(rules), floor) for rules, floor in _ways(task, weighing.ep_weight)]
    zones = [(ground, floor, zone) for ground, floor in grounds for zone in ground.zones(task.nodes)]
    roomy = [each for each in zones if any(offer.is_possible for offer in each[2].offers)]
    if not roomy:
        raise InfeasibleError(_shortage(task, grounds[-1][0], [offer for *_, zone in zones for offer in zone.offers]))
    each = replace(weighing, time_limit_s=weighing.time_limit_s / len(roomy))
    return [
        Found(
            ground=ground,
            offer=found.offer,
            solution=found.solution,
            bound=found.solution.bound + weighing.ep_weight * weighing.reading.of(floor),
        )
        for ground, floor, zone in roomy
        for found in solve_zone(zone, each)
    ]


def _ways(task: Task, ep_weight: float) -> Iterator[tuple[Rules, int]]:
    """Yield the rules of each kind of grid with the least EP spread that its placements can have."""
    if not ep_weight or task.rules.ep_within or ep_nodes(task.job) == 1:
        yield task.rules, 1
        return
    yield replace(task.rules, ep_within="minipod"), 1
    yield task.rules, 2


def _shortage(task: Task, ground: Ground, offers: list[Offer]) -> str:
    job, rules = task.job, task.rules
    ncells = ground.nrows * ground.ncolumns
    if with_room := [offer.left_out for offer in offers if not offer.missing]:
        return (
            f"job {job.name}: at least {min(with_room)} of its {len(rules.pinned)} pinned nodes cannot be used under "
            "its other rules; pin fewer nodes or drop a rule on spares, models, zones or EP domains"
        )
    nearest = min(offers, key=lambda offer: offer.missing, default=None)
    missing = ncells if nearest is None else nearest.missing
    model = f" of {job.gpu_model}" if job.gpu_model else ""
    listed = by_minipod(task.cluster, task.nodes)
    found = f"{len(task.nodes)} free{model}" + (f" ({listed})" if listed else "")
    if nearest is not None and (nearest.label or ground.unit > 1 or rules.spares or rules.stage_models):
        have = sum(min(sum(block.free), block.size) for block in nearest.blocks)
        found += f", {have * ground.unit} of them usable{f' at most, by {nearest.label}' if nearest.label else ''}"
    needs = _needs(job, rules, ncells, ground.unit)
    return shortage(job, task.cluster, rules, needs=needs, found=found, missing=missing, unit=ground.unit)


def _needs(job: JobSpec, rules: Rules, ncells: int, unit: int) -> str:
    words = [f"{ncells * unit} nodes of {job.ngpus_per_node} GPUs"]
    if job.gpu_model:
        words.append(f"with {job.gpu_model}")
    if unit > 1:
        domain = f"one {rules.ep_within}" + (" domain" if rules.ep_within == ACCELERATOR else "")
        words.append(f"as {ncells} EP groups of {unit}, each in {domain}")
    if rules.within:
        words.append(f"under one {rules.within}")
    if rules.one_model:
        what = "the job" if rules.one_model is OneModel.JOB else f"each {rules.one_model.upper()} group"
        words.append(f"of one GPU model for {what}")
    for name in sorted(set(rules.stage_models)):
        count = rules.stage_models.count(name)
        stages = f"{count} stage" if count == 1 else f"{count} stages"
        words.append(f"{count * ncells * unit // job.layout.pp} of {name} for {stages}")
    return ", ".join(words)

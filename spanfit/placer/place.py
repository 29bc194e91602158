"""A job on the free nodes of a cluster: from the cluster to the problem, and from its grid back to nodes and ranks."""

import time
from collections.abc import Sequence

from spanfit.errors import ConfigError
from spanfit.placer.baselines import best_fit
from spanfit.placer.choose import GOALS, OF_BYTES, Goal, Judge, Preference, StepTime
from spanfit.placer.constraints import check_rules, ep_nodes, free_nodes
from spanfit.placer.joint import Weighing
from spanfit.placer.model import (
    SCHEMA_VERSION,
    Crossing,
    Grid,
    JobSpec,
    Placement,
    PlacementStatus,
    Reading,
    column_spreads,
    row_spreads,
)
from spanfit.placer.rules import NO_RULES, Rules
from spanfit.placer.search import Task, solve_ways
from spanfit.placer.seats import Seated, ep_spreads, stretched
from spanfit.placer.solve import Solver
from spanfit.placer.traffic import crossings, traffic
from spanfit.topology.model import Cluster
from spanfit.weights.model import WeightEntry, WeightSet
from spanfit.weights.stale import same_gpu

_SAME = 1e-9


def place(
    job: JobSpec,
    cluster: Cluster,
    *,
    alpha: float,
    beta: float,
    ep_weight: float = 0.0,
    reading: Reading = Reading.COUNTED,
    rules: Rules = NO_RULES,
    goals: Sequence[Goal] | None = None,
    tolerance: float = 0.0,
    step_time_s: StepTime | None = None,
    weights_hash: str = "",
    accepted_stale: tuple[str, ...] = (),
    solver: Solver = Solver.FAST,
    time_limit_s: float = 10.0,
    seed: int = 0,
) -> Placement:
    """Return a job's nodes in node-rank order, with what is known of the placement's objective.

    Parameters
    ----------
    job : JobSpec
    cluster : Cluster
    alpha, beta, ep_weight : float
        Weights of the largest DP (column), PP (row) and EP spread, shares of one that sum to 1.
    reading : Reading
        Of the spreads in the objective: as they count, or the paper's D as printed.
    rules : Rules
        Hard constraints.
    goals : sequence of Goal, optional
        What chooses among placements that count as equals, in this order; unless given all that the job has, bytes
        between minipods first.
    tolerance : float
        By which share an objective may be above the lowest found and still count as equal.
    step_time_s : callable, optional
        Where given, the predicted step chooses among equals, for as long as time is left.
    weights_hash : str
        SHA-256 of the weights file, "" where the weights were given by hand.
    accepted_stale : tuple of str
        Why the weights were stale, where they were used all the same.
    solver : Solver
    time_limit_s : float
        Wall-clock seconds for solving and choosing.
    seed : int

    Raises
    ------
    InfeasibleError
        If too few nodes are free for the job and its rules.
    ConfigError
        If the weights are no shares of one, rules name what there is not, or goals need bytes that the job does not
        tell.
    """
    if min(alpha, beta, ep_weight) < 0 or abs(alpha + beta + ep_weight - 1) > _SAME:
        third = f", ep_weight is {ep_weight}" if ep_weight else ""
        raise ConfigError(f"alpha is {alpha}, beta is {beta}{third}; expected shares of one that sum to 1")
    check_rules(job, cluster, rules)
    preference = _preference(job, goals, tolerance)
    start = time.perf_counter()
    task = Task(job=job, cluster=cluster, rules=rules, nodes=free_nodes(job, cluster, rules))
    weighing = Weighing(
        alpha=alpha,
        beta=beta,
        ep_weight=ep_weight,
        reading=reading,
        time_limit_s=time_limit_s,
        seed=seed,
        solver=solver,
    )
    found = solve_ways(task, weighing)
    judge = Judge(
        preference=preference,
        step_time_s=step_time_s,
        is_over=lambda: time.perf_counter() - start >= time_limit_s,
    )
    best = judge.best(task, found, weighing)
    bound = min(each.bound for each in found)
    peer = _best_fit(task, best, weighing)
    is_optimal = best.objective - bound <= _SAME
    return Placement(
        schema_version=SCHEMA_VERSION,
        job=job,
        cluster=cluster.name,
        rank_map=best.rank_map,
        cells=best.cells,
        minipods=best.labels,
        dp_spreads=best.dp_spreads,
        pp_spreads=best.pp_spreads,
        objective=best.objective,
        bound=best.objective if is_optimal else bound,
        status=PlacementStatus.OPTIMAL if is_optimal else PlacementStatus.FEASIBLE,
        certificate=min(found, key=lambda each: each.bound).certificate,
        solver=best.found.solution.solver,
        solve_s=time.perf_counter() - start,
        best_fit_objective=peer[0],
        best_fit_dp_spread=peer[1],
        best_fit_pp_spread=peer[2],
        alpha=alpha,
        beta=beta,
        weights_hash=weights_hash,
        accepted_stale=accepted_stale,
        rules=rules,
        choice=best.found.offer.label,
        spares=best.spares,
        ep_weight=ep_weight,
        ep_spreads=best.ep_spreads,
        crossing=crossing_of(best.grid, job, best.names),
        step_s=step_time_s(best.rank_map) if step_time_s else None,
        reading=reading,
    )


def _preference(job: JobSpec, goals: Sequence[Goal] | None, tolerance: float) -> Preference:
    if goals is None:
        goals = (*OF_BYTES, *GOALS) if job.edges else GOALS
    if job.edges is None and (unknown := [goal for goal in goals if goal in OF_BYTES]):
        raise ConfigError(
            f"goals: found {', '.join(unknown)} for job {job.name}, which does not tell what a step moves; expected a "
            "[step] table in the job file and two stages or more; add it or leave them out"
        )
    if tolerance < 0:
        raise ConfigError(f"tolerance is {tolerance}; expected 0 or a share above it, such as 0.1")
    return Preference(goals=tuple(goals), edges=job.edges, tolerance=tolerance)


def _best_fit(task: Task, best: Seated, weighing: Weighing) -> tuple[float, int, int]:
    """Return the objective and the DP and PP spread of best-fit on the nodes of the same zone, whatever their model."""
    ground = best.found.ground
    problem = weighing.problem(ground.nrows, ground.ncolumns, best.found.offer.pool.free)
    grid = stretched(best_fit(problem), ground.unit)
    a, b = max(column_spreads(grid)), max(row_spreads(grid))
    e = max(ep_spreads(grid, ep_nodes(task.job))) if best.ep_spreads else 1
    return weighing.value(a, b, e), a, b


def crossing_of(grid: Grid, job: JobSpec, names: Sequence[str]) -> Crossing:
    """Return what a grid sends between minipods, whose names are given by their index."""
    found = crossings(grid, len(names))
    if job.edges is None:
        return Crossing(rings=found.rings, chains=found.chains, ranked_rings=found.ranked_rings)
    load = traffic(found, job.edges)
    return Crossing(
        rings=found.rings,
        chains=found.chains,
        ranked_rings=found.ranked_rings,
        busiest=names[load.busiest] if load.busiest_bytes else "",
        busiest_bytes=load.busiest_bytes,
        total_bytes=load.total_bytes,
    )


def choose_weights(weights: WeightSet, job: JobSpec, entry: str | None = None) -> WeightEntry:
    """Return the entry of a name; unless a name is given the only entry, or the only one of the job's GPU model.

    Raises
    ------
    ConfigError
        If no entry fits, or several do.
    """
    found = [each for each in weights.entries if entry is None or each.job == entry]
    if len(found) > 1:
        found = [each for each in found if job.gpu_model and same_gpu(each.gpu_model, job.gpu_model)]
    if len(found) == 1:
        return found[0]
    known = ", ".join(f"{each.job} ({each.gpu_model})" for each in found or weights.entries) or "none"
    wanted = f"named {entry}" if entry else f"of GPU model {job.gpu_model or 'unknown'}"
    if found:
        raise ConfigError(f"weights have {len(found)} entries {wanted}: {known}; choose one with --entry")
    raise ConfigError(f"weights have no entry {wanted}; they have {known}; choose one with --entry")

"""What one case of a campaign is, and the launch that measures many of them; standard library only, for the ranks."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

from spanfit.workload.job import Job, StepJob, load_job


class CaseKind(StrEnum):
    """What a case times; ``startup`` makes communicators, ``overlap`` runs matrix products beside a collective."""

    COLLECTIVE = "collective"
    PAIRS = "pairs"
    STARTUP = "startup"
    OVERLAP = "overlap"
    STEP = "step"


class RankOrder(StrEnum):
    """How the ranks of a group that spans minipods are numbered; a ring hides or shows the core by it."""

    SORTED = "sorted"
    ALTERNATING = "alternating"
    JOB = "job"


class Concurrency(StrEnum):
    """Whether a group runs alone, beside one other, or with all the groups of its kind."""

    ALONE = "alone"
    PAIR = "pair"
    ALL = "all"


COMMUNICATION = "/communication"
"""Behind the name of a job, what rows call the seconds in which the slowest rank of a step waited for bytes."""

ALL_GPUS = -1
"""The ``rail`` of a case whose groups hold every GPU of their nodes."""
EACH_RAIL = -2
"""The ``rail`` of a case in which every rail of the nodes has groups of its own, all of them at once."""


def on_rail(rail: int) -> str:
    """Return the words that a rail adds to what is said of a case, "" where every GPU takes part."""
    return {ALL_GPUS: "", EACH_RAIL: ", all rails at once"}.get(rail, f", rail {rail}")


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchCase:
    """One thing to measure, on stated nodes in a stated order.

    Attributes
    ----------
    operation : str
        A collective, or the name of a job whose step is run.
    size_bytes : int
        S of nccl-tests; the gradient bytes of a step.
    groups : tuple of tuple of int
        Node ranks of each group, in rank order. A step's first group is the node rank of each cell of its grid, by
        rows; then comes that of each job of ``noise``.
    tier : str
        The tier whose switches are counted as the span.
    span : int
        Switches of that tier, such as minipods, that each group touches.
    draw : int
        Which random choice of nodes.
    arm : str
        Which placement of the step, or which limit of CTAs (``cta-8``); "" for collectives.
    warmup : int
        Iterations at most before timing.
    skew : float
        Of all_to_all_v: the largest share in terms of the mean; 1 is even.
    graph : bool
        Whether the operation is captured as a CUDA graph and replayed.
    cta : int
        Of an overlap or a step: thread blocks that a communicator may use on each GPU; 0 leaves it to the library.
    matrix, products : int
        Of an overlap: rows of the square matrices, and products in a row.
    rail : int
        The local rank that alone takes part on each node; or ``ALL_GPUS``, or ``EACH_RAIL``.
    step : TrainingJob, StepJob or None
    noise : tuple of StepJob
        Jobs whose steps run beside the one that is timed, one after the other from its warm-up to its end.
    """

    kind: CaseKind
    operation: str
    size_bytes: int
    dtype: str
    redop: str
    in_place: bool
    groups: tuple[tuple[int, ...], ...]
    tier: str
    span: int
    rank_order: RankOrder
    concurrency: Concurrency
    draw: int
    arm: str
    warmup: int
    repetitions: int
    skew: float = 1.0
    graph: bool = False
    cta: int = 0
    matrix: int = 0
    products: int = 0
    rail: int = ALL_GPUS
    step: Job | None = None
    noise: tuple[StepJob, ...] = ()

    @property
    def case_id(self) -> str:
        """Return a name made from the content, equal for equal cases of any run."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:12]

    def label(self) -> str:
        """Return the case in a few words, for progress and messages."""
        if self.kind is CaseKind.STEP:
            return f"step of {self.operation}, {self.arm}"
        if self.kind is CaseKind.STARTUP:
            return f"start of a communicator of {len(self.groups[0])} nodes"
        where = f"{self.span} {self.tier}{'s' * (self.span > 1)}, {self.rank_order}, {self.concurrency}"
        where += on_rail(self.rail)
        beside = f" beside products of {self.matrix}" if self.kind is CaseKind.OVERLAP else ""
        return f"{self.operation} {self.size_bytes} B{beside} over {where}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """A case at its place in the random order of a launch; ``block`` counts the passes over all cases."""

    position: int
    block: int
    case: BenchCase


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchPlan:
    """Everything that the ranks of one launch must know.

    Attributes
    ----------
    launch, attempt : int
        Which replication, and how often it has been started.
    node_names : tuple of str
        Node rank -> host name; the world refuses to run elsewhere or in another order.
    timeout_s : float
        After this long a collective that does not end is an error.
    shard : str
        The file that rank 0 appends a line to after every case.
    heartbeats : str
        The folder where every rank says where it is, "" where nobody watches.
    node_ranks : tuple of int
        The campaign's node rank of each of ``node_names``, where the world lacks some of the campaign's nodes.
    local_environment : tuple of dict
        Of each local rank the variables that it sets before it joins the world; empty where none differ.
    stacks_after_s : float
        After this long in a phase a rank writes its stacks beside its heartbeat; 0: never.
    """

    run_id: str
    launch: int
    attempt: int
    backend: str
    node_names: tuple[str, ...]
    ngpus_per_node: int
    timeout_s: float
    shard: str
    visits: tuple[Visit, ...]
    heartbeats: str = ""
    node_ranks: tuple[int, ...] = ()
    local_environment: tuple[dict[str, str], ...] = ()
    stacks_after_s: float = 0.0

    def seat(self, case: BenchCase) -> BenchCase:
        """Return a case of the campaign with the node ranks of this world in its groups."""
        if not self.node_ranks:
            return case
        seats = {node_rank: seat for seat, node_rank in enumerate(self.node_ranks)}
        return replace(case, groups=tuple(tuple(seats[node] for node in group) for group in case.groups))

    def unseat(self, rows: Sequence[list[float]]) -> list[list[float]]:
        """Return what each rank of this world gave, by the campaign's ranks; nothing for those that are not here."""
        per_node = self.ngpus_per_node
        node_ranks = self.node_ranks or range(len(self.node_names))
        found: list[list[float]] = [[] for _ in range((max(node_ranks) + 1) * per_node)]
        for rank, row in enumerate(rows):
            seat, local_rank = divmod(rank, per_node)
            found[node_ranks[seat] * per_node + local_rank] = row
        return found

    @property
    def comm_id(self) -> str:
        """Return what names the communicators of this launch."""
        return f"{self.launch}.{self.attempt}"


def dump_launch(plan: LaunchPlan) -> str:
    """Return a launch plan as JSON text."""
    return json.dumps(asdict(plan))


def load_launch(text: str) -> LaunchPlan:
    """Return the launch plan that :func:`dump_launch` wrote."""
    document = json.loads(text)
    visits = tuple(Visit(**{**visit, "case": load_case(visit["case"])}) for visit in document.pop("visits"))
    tuples = {key: tuple(document[key]) for key in ("node_names", "node_ranks", "local_environment")}
    return LaunchPlan(**{**document, **tuples, "visits": visits})


def load_case(document: dict[str, Any]) -> BenchCase:
    """Return the case whose plain data these are."""
    step = document["step"]
    return BenchCase(
        **{
            **document,
            "kind": CaseKind(document["kind"]),
            "groups": tuple(tuple(group) for group in document["groups"]),
            "rank_order": RankOrder(document["rank_order"]),
            "concurrency": Concurrency(document["concurrency"]),
            "step": load_job(step) if step else None,
            "noise": tuple(map(_load_noise, document["noise"])),
        }
    )


def _load_noise(document: dict[str, Any]) -> StepJob:
    job = load_job(document)
    assert isinstance(job, StepJob), "noise is known by its volumes"
    return job

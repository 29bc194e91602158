"""What one case of a campaign is, and the launch that measures many of them; standard library only, for the ranks."""

import hashlib
import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from spanfit.workload.step import ComputeMode, Schedule, StepJob


class CaseKind(StrEnum):
    """Whether a case times a collective or a training step."""

    COLLECTIVE = "collective"
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
        Node ranks of each group, in rank order. A step has one group: the node rank of each cell of its grid, by rows.
    tier : str
        The tier whose switches are counted as the span.
    span : int
        Switches of that tier, such as minipods, that each group touches.
    draw : int
        Which random choice of nodes.
    arm : str
        Which placement of the step, "" for collectives.
    step : StepJob or None
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
    step: StepJob | None = None

    @property
    def case_id(self) -> str:
        """Return a name made from the content, equal for equal cases of any run."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:12]

    def label(self) -> str:
        """Return the case in a few words, for progress and messages."""
        if self.kind is CaseKind.STEP:
            return f"step of {self.operation}, {self.arm}"
        where = f"{self.span} {self.tier}{'s' * (self.span > 1)}, {self.rank_order}, {self.concurrency}"
        return f"{self.operation} {self.size_bytes} B over {where}"


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
    return LaunchPlan(**{**document, "node_names": tuple(document["node_names"]), "visits": visits})


def load_case(document: dict[str, Any]) -> BenchCase:
    """Return the case whose plain data these are."""
    step = document["step"]
    if step is not None:
        step = StepJob(
            **{**step, "schedule": Schedule(step["schedule"]), "compute": ComputeMode(step["compute"])},
        )
    return BenchCase(
        **{
            **document,
            "kind": CaseKind(document["kind"]),
            "groups": tuple(tuple(group) for group in document["groups"]),
            "rank_order": RankOrder(document["rank_order"]),
            "concurrency": Concurrency(document["concurrency"]),
            "step": step,
        }
    )

"""What a rank does in one training step: the list of operations that the proxies execute."""

from dataclasses import dataclass
from enum import StrEnum


class Schedule(StrEnum):
    """The order of microbatches in a pipeline."""

    GPIPE = "gpipe"
    ONE_F_ONE_B = "1f1b"


class ComputeMode(StrEnum):
    """How a proxy spends the time of compute; results of two modes are never mixed."""

    WAIT = "wait"
    NONE = "none"


class OperationKind(StrEnum):
    """One thing a rank does in a step."""

    FORWARD = "forward"
    BACKWARD = "backward"
    RECEIVE_ACTIVATION = "receive_activation"
    SEND_ACTIVATION = "send_activation"
    RECEIVE_GRADIENT = "receive_gradient"
    SEND_GRADIENT = "send_gradient"
    REDUCE_GRADIENTS = "reduce_gradients"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepJob:
    """A DP + PP training step over a grid of nodes, by its volumes and its compute.

    Attributes
    ----------
    name : str
    dp, pp : int
        Rows (PP groups) and columns (DP groups, one a stage) of nodes.
    nmicrobatches : int
    activation_bytes : int
        Sent between neighbouring stages, for each microbatch and direction.
    gradient_bytes : int
        All-reduced in each DP group at the end of the step.
    forward_s, backward_s : float
        Compute of a microbatch on a stage [s].
    schedule : Schedule
    compute : ComputeMode
    """

    name: str
    dp: int
    pp: int
    nmicrobatches: int
    activation_bytes: int
    gradient_bytes: int
    forward_s: float
    backward_s: float
    schedule: Schedule = Schedule.GPIPE
    compute: ComputeMode = ComputeMode.WAIT


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of a step; ``microbatch`` is -1 where it has none."""

    kind: OperationKind
    microbatch: int = -1


def schedule_order(
    schedule: Schedule, stage: int, nstages: int, nmicrobatches: int
) -> tuple[tuple[OperationKind, int], ...]:
    """Return the forwards and backwards of a stage in order, as (kind, microbatch)."""
    forwards = [(OperationKind.FORWARD, m) for m in range(nmicrobatches)]
    backwards = [(OperationKind.BACKWARD, m) for m in range(nmicrobatches)]
    if schedule is Schedule.GPIPE:
        return tuple(forwards + backwards)
    ahead = min(nmicrobatches, nstages - 1 - stage)
    order = forwards[:ahead]
    for forward, backward in zip(forwards[ahead:], backwards, strict=False):
        order += [forward, backward]
    return tuple(order + backwards[nmicrobatches - ahead :])


def plan_step(job: StepJob, stage: int) -> tuple[Operation, ...]:
    """Return the operations of a rank of a stage in one step, in order."""
    plan: list[Operation] = []
    is_first, is_last = stage == 0, stage == job.pp - 1
    for kind, microbatch in schedule_order(job.schedule, stage, job.pp, job.nmicrobatches):
        if kind is OperationKind.FORWARD:
            receive, receives = OperationKind.RECEIVE_ACTIVATION, not is_first
            send, sends = OperationKind.SEND_ACTIVATION, not is_last
        else:
            receive, receives = OperationKind.RECEIVE_GRADIENT, not is_last
            send, sends = OperationKind.SEND_GRADIENT, not is_first
        plan += [Operation(receive, microbatch)] * receives
        plan.append(Operation(kind, microbatch))
        plan += [Operation(send, microbatch)] * sends
    if job.dp > 1:
        plan.append(Operation(OperationKind.REDUCE_GRADIENTS))
    return tuple(plan)

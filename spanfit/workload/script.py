"""What all ranks of a job do in a step: one program a stage, and who its names are for each rank.

The ranks of a stage do the same and differ only in whom they name: their neighbours in the pipeline are the ranks of
their own chain, their groups those of an axis in which they are. So one program a stage is planned, and a job of
thousands of ranks is written down in little more time than one of eight.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from spanfit.collectives import Collective
from spanfit.workload.job import Job, StepJob
from spanfit.workload.program import Axis, Collect, Operation, Program, Receive, Send
from spanfit.workload.strategies import plan_job


class Kind(NamedTuple):
    """What collectives have in common that move the same in groups of one axis."""

    axis: Axis
    collective: Collective
    size_bytes: int


def kind_of(operation: Collect) -> Kind:
    """Return the kind of a collective."""
    return Kind(operation.axis, operation.collective, operation.size_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """What a program names.

    Attributes
    ----------
    peers : frozenset of int
        Stages that it sends to or receives from.
    sent_bytes : dict of int to int
        What it sends to each stage.
    calls : dict of Kind to int
        How often it calls each kind of collective.
    beside : frozenset of Axis
        Axes along which a collective runs beside what follows it.
    """

    peers: frozenset[int]
    sent_bytes: dict[int, int]
    calls: dict[Kind, int]
    beside: frozenset[Axis]


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """The programs of all ranks of a job.

    Attributes
    ----------
    programs : tuple of Program
        Of each stage, in the names of the first chain.
    chains : tuple of tuple of int
        The ranks that hold the stages of each replica, by stage; chains in the order of their first ranks.
    groups : dict of Axis to tuple of tuple of int
        All groups of each axis that programs name, in the order of their first ranks.
    outlines : tuple of Outline
        Of each program.

    Examples
    --------
    >>> from spanfit.workload.job import StepJob
    >>> job = StepJob(name="job", dp=2, pp=2, nmicrobatches=1, activation_bytes=8, gradient_bytes=8,
    ...               forward_s=0.1, backward_s=0.2)
    >>> script = write_script(job)
    >>> script.nranks, len(script.programs), script.chains, script.groups[Axis.DP]
    (4, 2, ((0, 1), (2, 3)), ((0, 2), (1, 3)))
    """

    programs: tuple[Program, ...]
    chains: tuple[tuple[int, ...], ...]
    groups: dict[Axis, tuple[tuple[int, ...], ...]]
    outlines: tuple[Outline, ...] = field(init=False, repr=False, compare=False)
    _seats: dict[int, tuple[int, int]] = field(init=False, repr=False, compare=False)
    _group_of: dict[Axis, dict[int, tuple[int, ...]]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Note each rank's chain and stage, and its groups."""
        seats = {rank: (number, stage) for number, chain in enumerate(self.chains) for stage, rank in enumerate(chain)}
        object.__setattr__(self, "_seats", seats)
        group_of = {axis: {rank: group for group in groups for rank in group} for axis, groups in self.groups.items()}
        object.__setattr__(self, "_group_of", group_of)
        object.__setattr__(self, "outlines", tuple(map(self._outline, self.programs)))

    @property
    def nranks(self) -> int:
        """Number of ranks."""
        return len(self._seats)

    def stage(self, rank: int) -> int:
        """Return the stage of a rank."""
        return self._seats[rank][1]

    def peer(self, rank: int, named: int) -> int:
        """Return whom a rank means where the program of its stage names a rank of the first chain."""
        return self.at(rank, self.stage(named))

    def at(self, rank: int, stage: int) -> int:
        """Return the rank that holds a stage of the same replica as a rank."""
        return self.chains[self._seats[rank][0]][stage]

    def group(self, rank: int, axis: Axis) -> tuple[int, ...]:
        """Return a rank's group along an axis that programs name."""
        return self._group_of[axis][rank]

    def _outline(self, program: Program) -> Outline:
        messages = [each for each in program if isinstance(each, Send | Receive)]
        collects = [each for each in program if isinstance(each, Collect)]
        sent_bytes: Counter[int] = Counter()
        for each in messages:
            sent_bytes[self.stage(each.peer)] += each.size_bytes if isinstance(each, Send) else 0
        return Outline(
            peers=frozenset(sent_bytes),
            sent_bytes={stage: size_bytes for stage, size_bytes in sent_bytes.items() if size_bytes},
            calls=Counter(map(kind_of, collects)),
            beside=frozenset(each.axis for each in collects if each.handle is not None),
        )


def write_script(job: Job, ngpus_per_node: int = 1) -> Script:
    """Return the programs of all ranks of the nodes that a job uses.

    A job that is known by its volumes only has one rank a node, and runs once for each of the ``ngpus_per_node``.
    """
    nlanes = ngpus_per_node if isinstance(job, StepJob) else 1
    chains = sorted(job.groups(Axis.PP))
    programs = tuple(plan_job(job, rank) for rank in chains[0])
    axes = dict.fromkeys(each.axis for program in programs for each in program if isinstance(each, Collect))
    return Script(
        programs=tuple(tuple(_widened(program, nlanes)) for program in programs),
        chains=_side_by_side(chains, nlanes),
        groups={axis: _side_by_side(sorted(job.groups(axis)), nlanes) for axis in axes},
    )


def _widened(program: Program, nlanes: int) -> Iterator[Operation]:
    """Yield a program in the names of the first of the ranks side by side."""
    for operation in program:
        if isinstance(operation, Send | Receive):
            yield replace(operation, peer=operation.peer * nlanes)
        elif isinstance(operation, Collect):
            yield replace(operation, group=tuple(rank * nlanes for rank in operation.group))
        else:
            yield operation


def _side_by_side(groups: Iterable[tuple[int, ...]], nlanes: int) -> tuple[tuple[int, ...], ...]:
    """Return the groups of all local ranks where each does with its like what one is told to."""
    return tuple(sorted(tuple(rank * nlanes + lane for rank in group) for group in groups for lane in range(nlanes)))

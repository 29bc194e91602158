"""What a placement must respect besides the nodes that are free."""

from dataclasses import dataclass
from enum import StrEnum

ACCELERATOR = "accelerator"
"""The domain that an NVLink fabric spans, beside the names of tiers."""


class OneModel(StrEnum):
    """What must not mix GPU models: the whole job, each DP group (column) or each PP group (row)."""

    JOB = "job"
    DP = "dp"
    PP = "pp"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Hard constraints of a placement; the default has none.

    Attributes
    ----------
    excluded : tuple of str
        Nodes that are not used.
    pinned : tuple of str
        Nodes that must be used, in whatever cell.
    spares : int
        Free nodes that stay in each minipod that the job uses, so that a failed node has a neighbour to replace it; in
        each domain that it uses where EP groups may not leave theirs, and of each GPU model where rules bind models.
    use_reserved : bool
        Whether nodes in state reserved count as free, as they do for the job that they are reserved for.
    within : str or None
        A tier that the job must not leave, such as ``core``: all nodes under one switch of it.
    ep_within : str or None
        ``accelerator`` or a tier up to ``minipod`` whose domains no EP group leaves.
    one_model : OneModel or None
    stage_models : tuple of str
        The GPU model of each stage (column); () where stages may use any.
    """

    excluded: tuple[str, ...] = ()
    pinned: tuple[str, ...] = ()
    spares: int = 0
    use_reserved: bool = False
    within: str | None = None
    ep_within: str | None = None
    one_model: OneModel | None = None
    stage_models: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse rules that contradict each other."""
        if both := sorted(set(self.excluded) & set(self.pinned)):
            raise ValueError(f"nodes {', '.join(both)} are both excluded and pinned; expected one of them")
        if self.spares < 0:
            raise ValueError(f"spares is {self.spares}; expected at least 0")
        if self.one_model and self.stage_models:
            raise ValueError(f"one_model is {self.one_model} beside stage_models; expected one of them")

    @property
    def binds_models(self) -> bool:
        """Whether a node of another GPU model cannot replace a node."""
        return self.one_model is not None or bool(self.stage_models)


NO_RULES = Rules()

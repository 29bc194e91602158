"""Affinity weights: what a DP crossing and a PP crossing of minipods are worth against each other."""

from dataclasses import dataclass

from spanfit import units
from spanfit.results.schema import Estimate, format_estimate

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightEntry:
    """Weights of one job on one GPU model.

    Attributes
    ----------
    job : str
    gpu_model : str
    dp, pp : int
        The grid of nodes that was measured; alpha belongs to a job of this shape.
    alpha, beta : Estimate
        Weight of DP groups (columns) and of PP groups (rows); alpha + beta = 1.
    gain_dp, gain_pp : Estimate
        Throughput gain of the DP-aligned and the PP-aligned arm over the misaligned base, as shares of one.
    is_flat : bool
        Neither gain can be told from 0, so the weights are 0.5 and 0.5 with the interval [0, 1].
    is_provisional : bool
        Fewer than six units of replication.
    base_arms : tuple of str
        The misaligned arms whose median is the base.
    compute : str
        How compute was spent in the steps.
    launches : int
    dp_to_pp_volume : float
        r2 of the paper: the gradient bytes that a node reduces in a step over the bytes that cross one boundary of
        stages in a step, both directions and all microbatches together.
    """

    job: str
    gpu_model: str
    dp: int
    pp: int
    alpha: Estimate
    beta: Estimate
    gain_dp: Estimate
    gain_pp: Estimate
    is_flat: bool
    is_provisional: bool
    base_arms: tuple[str, ...]
    compute: str
    launches: int
    dp_to_pp_volume: float

    def __post_init__(self) -> None:
        """Refuse weights that are no shares of one."""
        if not (0 <= self.alpha.value <= 1 and abs(self.alpha.value + self.beta.value - 1) < 1e-9):
            raise ValueError(
                f"job {self.job}: alpha is {self.alpha.value}, beta is {self.beta.value}; "
                "expected shares of one that sum to 1"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightSet:
    """The content of ``weights.json``.

    Attributes
    ----------
    run_ids : tuple of str
        The runs whose measurements the weights come from.
    cluster : str
        Name of the cluster that was measured.
    transport : str
        What its traffic went over.
    created_at : str
        ISO 8601, UTC.
    spanfit_version : str
    entries : tuple of WeightEntry
    """

    schema_version: int
    run_ids: tuple[str, ...]
    cluster: str
    transport: str
    created_at: str
    spanfit_version: str
    entries: tuple[WeightEntry, ...]


def remarks(entry: WeightEntry) -> tuple[str, ...]:
    """Return what a person must know of an entry before trusting its weights, one sentence each."""
    found = []
    for gain, name, weight in ((entry.gain_dp, "DP", "alpha"), (entry.gain_pp, "PP", "beta")):
        if gain.value < 0:
            text = format_estimate(gain, units.format_percent)
            found.append(f"the {name}-aligned arm gains {text} over the base, which counts as none for {weight}")
    if entry.is_flat:
        found.append("neither gain can be told to be above 0, so the weights are 0.5 and 0.5 and may be anything")
    if entry.is_provisional:
        launches = "1 launch" if entry.launches == 1 else f"{entry.launches} launches"
        found.append(f"provisional: {launches}, at least 6 make a final claim")
    return tuple(found)

"""Affinity weights: what a DP crossing and a PP crossing of minipods are worth against each other."""

from dataclasses import dataclass

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A value with its 95% interval."""

    value: float
    ci_low: float
    ci_high: float


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
        r2 of the paper: DP bytes over PP bytes per node and step.
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

"""Where two sets of weights disagree beyond their intervals, such as measured ones and predicted ones of a job."""

from collections.abc import Callable
from dataclasses import dataclass

from spanfit.errors import ConfigError
from spanfit.results.schema import Estimate
from spanfit.weights.model import Source, WeightEntry, WeightSet
from spanfit.weights.stale import same_gpu


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One quantity of one job in both sets.

    Attributes
    ----------
    job, gpu_model : str
    dp, pp : int
        The grid of nodes that both are for.
    quantity : str
        ``alpha``, ``gain_dp`` or ``gain_pp``.
    a, b : Estimate
    source_a, source_b : Source
    is_apart : bool
        Whether their intervals, or values where there are none, have nothing in common.
    """

    job: str
    gpu_model: str
    dp: int
    pp: int
    quantity: str
    a: Estimate
    b: Estimate
    source_a: Source
    source_b: Source
    is_apart: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What two sets of weights say of each other's jobs.

    Attributes
    ----------
    differences : tuple of Difference
    only_a, only_b : tuple of str
        Jobs, with GPU model and grid, that the other set lacks.
    """

    differences: tuple[Difference, ...]
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]

    @property
    def apart(self) -> tuple[Difference, ...]:
        """Those that disagree beyond their intervals."""
        return tuple(each for each in self.differences if each.is_apart)


_QUANTITIES: dict[str, Callable[[WeightEntry], Estimate | None]] = {
    "alpha": lambda entry: entry.alpha,
    "gain_dp": lambda entry: entry.gain_dp,
    "gain_pp": lambda entry: entry.gain_pp,
}


def compare(a: WeightSet, b: WeightSet) -> Comparison:
    """Return how the entries for the same job, GPU model, grid and compute differ.

    A GPU model is the same by either spelling, and one that nobody tells is any, as is compute by hand. Raises
    ConfigError if the sets have no entry in common.
    """
    pairs = [(one, other) for one in a.entries for other in b.entries if _is_same(one, other)]
    if not pairs:
        names = (", ".join(map(_label, each.entries)) or "none" for each in (a, b))
        raise ConfigError("entries: found {} in one and {} in the other, expected one in common".format(*names))
    met = {id(entry) for pair in pairs for entry in pair}
    return Comparison(
        differences=tuple(each for one, other in pairs for each in _differences(one, other)),
        only_a=tuple(_label(entry) for entry in a.entries if id(entry) not in met),
        only_b=tuple(_label(entry) for entry in b.entries if id(entry) not in met),
    )


def _is_same(one: WeightEntry, other: WeightEntry) -> bool:
    if (one.job, one.dp, one.pp) != (other.job, other.dp, other.pp) or not same_gpu(one.gpu_model, other.gpu_model):
        return False
    return one.compute == other.compute or "" in (one.compute, other.compute)


def _label(entry: WeightEntry) -> str:
    return f"{entry.job} on {entry.gpu_model or 'any GPU'} ({entry.dp} x {entry.pp} nodes)"


def _differences(one: WeightEntry, other: WeightEntry) -> list[Difference]:
    found = []
    for quantity, value in _QUANTITIES.items():
        a, b = value(one), value(other)
        if a is not None and b is not None:
            found.append(
                Difference(
                    job=one.job,
                    gpu_model=one.gpu_model or other.gpu_model,
                    dp=one.dp,
                    pp=one.pp,
                    quantity=quantity,
                    a=a,
                    b=b,
                    source_a=one.source,
                    source_b=other.source,
                    is_apart=_are_apart(a, b),
                )
            )
    return found


def _are_apart(a: Estimate, b: Estimate) -> bool:
    (a_low, a_high), (b_low, b_high) = map(_bounds, (a, b))
    return a_high < b_low or b_high < a_low


def _bounds(estimate: Estimate) -> tuple[float, float]:
    """Return an interval, which of a bare value is that value alone."""
    if estimate.ci_low is None or estimate.ci_high is None:
        return estimate.value, estimate.value
    return estimate.ci_low, estimate.ci_high

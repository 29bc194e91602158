"""What a scan over pairs of nodes says, as values."""

from dataclasses import dataclass

import numpy as np

from spanfit.bench.case import ALL_GPUS
from spanfit.collectives import Collective
from spanfit.profiler.statistics import FloatArray, Verdict
from spanfit.results.schema import Estimate

HOST = "host"
"""The class of the links of hosts."""


def place_of(link_class: str, name: str, rail: int) -> str:
    """Return a link in words, such as ``rail 1 of host a``; what lies above the hosts has no rail."""
    on_rail = f"rail {rail} of " if link_class == HOST and rail != ALL_GPUS else ""
    return f"{on_rail}{link_class} {name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PairRate:
    """What one node sends another; ``tier`` is the closest with a switch above both, "" where there is none."""

    sender: str
    receiver: str
    tier: str
    concurrency: str
    rate_bytes_per_s: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkRate:
    """What a host's link, or the uplink of a switch, can carry in one direction.

    Attributes
    ----------
    name, link_class : str
        The host or the switch below the link, and ``host`` or the switch's tier.
    place : str
        The link in words, with its rail where the scan was of one.
    rate_bytes_per_s : Estimate
        Without an interval where the link was never full.
    is_bound : bool
        Nothing was held back by this link, so it can carry at least this.
    ties : tuple of str
        Other links that every flow crossed which this one held back: the measurement cannot tell which of them it was.
    against_class : Estimate or None
        1 - rate / median rate of the other links of its class; None where there is no other or the link is a bound.
    verdict : Verdict
        ``slower`` or ``cannot tell``, corrected over all links of the scan (Holm).
    """

    name: str
    link_class: str
    place: str
    rate_bytes_per_s: Estimate
    is_bound: bool
    ties: tuple[str, ...]
    against_class: Estimate | None
    verdict: Verdict
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassRate:
    """Links of one class: the geometric mean of those that are told, and their standard deviation as a share of it."""

    link_class: str
    rate_bytes_per_s: Estimate | None
    spread: float
    nlinks: int
    nbounds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TierRate:
    """Pairs whose closest common switch is of one tier.

    Attributes
    ----------
    spread : float
        Standard deviation between pairs, as a share of their mean.
    npartners : float
        Partners that a node met on average.
    standard_error : float
        Of a node's mean over its partners, as a share: the spread over the root of ``npartners``.
    """

    tier: str
    concurrency: str
    rate_bytes_per_s: Estimate
    spread: float
    npairs: int
    npartners: float
    standard_error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PairScan:
    """A scan with one operation at its largest size, of one rail or (-1) of all; links are sorted slow ones first."""

    operation: str
    dtype: str
    rail: int
    size_bytes: int
    node_names: tuple[str, ...]
    pairs: tuple[PairRate, ...]
    links: tuple[LinkRate, ...]
    classes: tuple[ClassRate, ...]
    tiers: tuple[TierRate, ...]
    nunits: int
    is_provisional: bool

    def matrix(self) -> FloatArray:
        """Return rates [bytes/s] by sender and receiver, NaN where a pair was not measured.

        Of a pair that was measured alone and in a round, the rate alone counts.
        """
        place = {name: index for index, name in enumerate(self.node_names)}
        rates = np.full((len(place), len(place)), np.nan)
        for pair in sorted(self.pairs, key=lambda pair: pair.concurrency == "alone"):
            rates[place[pair.sender], place[pair.receiver]] = pair.rate_bytes_per_s.value
            if self.operation != Collective.SEND:
                rates[place[pair.receiver], place[pair.sender]] = pair.rate_bytes_per_s.value
        return rates

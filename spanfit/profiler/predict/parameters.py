"""What the predictor knows of a fabric: how its links, messages and collectives behave, and where that comes from."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from spanfit import files
from spanfit.profiler.predict.collectives import Library
from spanfit.profiler.predict.network import Network
from spanfit.profiler.predict.sharing import Conduct

PARAMETERS_VERSION = 2
GIVEN = "given"
"""Where the value of a parameter comes from that somebody set after the fit."""
RATE = "rate of "
"""What the rate of a class of links is called, before the name of the class."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """How a fabric behaves.

    Attributes
    ----------
    rates_bytes_per_s : dict of str to float
        What a link of each class carries in one direction, in payload; a class that is missing never holds anything up.
    burst_bytes : float
        What a link carries above its rate after a rest, as a token bucket lets it.
    peak_bytes_per_s : float
        How fast a burst is, and what moves within a node.
    latency_s : float
        From the last byte of a message to the end of its wait [s].
    both_ways_efficiency : float
        Share of its rate that a link keeps where three flows or more load it both ways.
    spread : float
        Standard deviation of the logarithm of a connection's share; 0: shares are fair.
    redraw_s : float
        Mean time after which a connection's share changes [s].
    reduction_s_per_byte : float
        Of adding what a rank of a gloo ring has received [s/byte].
    call_s : float
        What each collective takes besides its bytes [s].
    start_s : float
        From the barrier before an operation or a step until all ranks are under way [s].
    """

    rates_bytes_per_s: dict[str, float]
    burst_bytes: float = 0.0
    peak_bytes_per_s: float = 2e9
    latency_s: float = 0.0
    both_ways_efficiency: float = 1.0
    spread: float = 0.0
    redraw_s: float = 0.1
    reduction_s_per_byte: float = 0.0
    call_s: float = 0.0
    start_s: float = 0.0

    def value(self, name: str) -> float:
        """Return a parameter by name; ``rate of CLASS`` names the rate of a class of links."""
        if name.startswith(RATE):
            return self.rates_bytes_per_s[name.removeprefix(RATE)]
        return float(getattr(self, name))

    def conduct(self, network: Network) -> Conduct:
        """Return how the links of a network behave."""
        rates = self.rates_bytes_per_s
        return Conduct(
            rates_bytes_per_s=tuple(rates.get(link.link_class, self.peak_bytes_per_s) for link in network.links),
            burst_bytes=self.burst_bytes,
            peak_bytes_per_s=self.peak_bytes_per_s,
            both_ways_efficiency=self.both_ways_efficiency,
            spread=self.spread,
            redraw_s=self.redraw_s,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Residual:
    """A micro-pattern as it was measured and as the fitted parameters give it.

    Attributes
    ----------
    left_out_s : float
        The time that parameters fitted without this pattern's curve would give.
    """

    pattern: str
    size_bytes: int
    measured_s: float
    fitted_s: float
    left_out_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ParametersFile:
    """Fitted parameters with their origin and their error.

    Attributes
    ----------
    run_ids, curves_hashes : tuple of str
        The runs whose curves were fitted, and the SHA-256 of the content of each ``curves.json``.
    cluster, cluster_hash : str
        The cluster that was measured.
    error : float
        What a prediction is off by, as a standard deviation of its logarithm, from ``residuals``.
    residuals : tuple of Residual
    not_fitted : dict of str to str
        The parameters that no micro-pattern decided, by name, and where their values come from.
    """

    __pydantic_config__ = files.CONFIG
    schema_version: int
    run_ids: tuple[str, ...]
    curves_hashes: tuple[str, ...]
    cluster: str
    cluster_hash: str
    library: Library
    parameters: Parameters
    error: float
    residuals: tuple[Residual, ...]
    not_fitted: dict[str, str]

    def fair(self) -> "ParametersFile":
        """Return the same fabric with fair shares, which are then given and not fitted."""
        return self._given(replace(self.parameters, spread=0.0), ("spread",))

    def with_rates(self, rates_bytes_per_s: dict[str, float]) -> "ParametersFile":
        """Return the same fabric with given rates of some classes of links, in payload [bytes/s]."""
        rates = self.parameters.rates_bytes_per_s | rates_bytes_per_s
        names = [f"{RATE}{kind}" for kind in rates_bytes_per_s]
        return self._given(replace(self.parameters, rates_bytes_per_s=rates), names)

    def _given(self, parameters: Parameters, names: Iterable[str]) -> "ParametersFile":
        return replace(self, parameters=parameters, not_fitted=self.not_fitted | dict.fromkeys(names, GIVEN))


def read_parameters(path: Path) -> ParametersFile:
    """Return the parameters of a file; ConfigError names every wrong key, and refuses other schema versions."""
    return files.read_json(path, ParametersFile, PARAMETERS_VERSION)


def write_parameters(path: Path, parameters: ParametersFile) -> None:
    """Write the parameters whole or not at all; ConfigError where the place cannot be written."""
    files.write_json(path, parameters)

"""Every layout of a trace that can be read, by the name that people type."""

from collections.abc import Callable, Mapping

from spanfit.queue.traces.acme import parse_acme
from spanfit.queue.traces.philly import parse_philly
from spanfit.queue.traces.reading import Trace
from spanfit.queue.traces.sacct import parse_sacct

PARSERS: Mapping[str, Callable[[str, str], Trace]] = {
    "sacct": parse_sacct,
    "philly": parse_philly,
    "acme": parse_acme,
}
"""From a text and what messages call it to its trace."""

"""Flows over shared links, followed exactly: what a perfectly fair network would take."""

import numpy as np

from spanfit.profiler.bottleneck import Load
from spanfit.profiler.statistics import FloatArray


def flow_times(load: Load, capacities: FloatArray) -> FloatArray:
    """Return when each flow ends [s] if all start at once and share max-min fairly, again whenever one has ended."""
    left = np.full(len(load.paths), load.volume_bytes)
    ends, now = np.zeros(len(left)), 0.0
    while (left > 0).any():
        active = np.flatnonzero(left > 0)
        rates = Load(paths=load.paths[active], volume_bytes=load.volume_bytes).fair_rates(capacities)
        span = float((left[active] / rates).min())
        now += span
        left[active] -= rates * span
        done = active[left[active] <= 1e-9 * load.volume_bytes]
        left[done], ends[done] = 0.0, now
    return ends

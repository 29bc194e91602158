"""The ``[startup]`` and ``[overlap]`` tables: what is measured on the first so many nodes of the world."""

from collections.abc import Iterator
from dataclasses import dataclass

from spanfit import files
from spanfit.bench.variants import cta_faults
from spanfit.collectives import Collective
from spanfit.workload.dtypes import Dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class StartupFile:
    """The ``[startup]`` table: what making a communicator costs, over the first so many nodes of the world."""

    __pydantic_config__ = files.CONFIG
    nodes_per_group: tuple[files.Count, ...]
    operation: Collective = Collective.ALL_REDUCE
    size: files.SizeBytes = 1 << 20
    dtype: Dtype = Dtype.FLOAT32
    repetitions: files.Count = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlapFile:
    """The ``[overlap]`` table: matrix products with a collective beside them.

    ``products`` is best chosen so that the products alone take about as long as the collective alone. ``ctas`` are the
    limits of thread blocks that the communicator gets in turn; 0 leaves it to the library.
    """

    __pydantic_config__ = files.CONFIG
    nodes_per_group: files.Count
    operation: Collective = Collective.ALL_REDUCE
    size: files.SizeBytes = 64 << 20
    dtype: Dtype = Dtype.FLOAT32
    matrix: files.Count = 1024
    products: files.Count = 10
    ctas: tuple[int, ...] = (0,)
    warmup: files.Count = 20
    repetitions: files.Count = 5

    def faults(self, backend: str) -> Iterator[str]:
        """Yield what of the table contradicts itself or is more than the backend can."""
        if self.operation is Collective.BARRIER:
            yield "overlap.operation: found 'barrier', expected a collective that moves bytes"
        yield from cta_faults("overlap.ctas", self.ctas, backend)

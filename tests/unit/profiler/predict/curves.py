"""Curves as a fabric of known parameters would give them."""

from collections.abc import Iterator, Sequence
from itertools import product

from spanfit import files
from spanfit.profiler.curves_file import CURVES_VERSION, Curve, CurvePoint, CurvesFile
from spanfit.profiler.predict.collectives import Library
from spanfit.profiler.predict.parameters import Parameters
from spanfit.profiler.predict.patterns import patterns, simulate_pattern
from spanfit.results.schema import Estimate
from spanfit.topology.model import Cluster

SIZES = (1 << 16, 1 << 18, 1 << 20, 1 << 22)


def _shapes() -> Iterator[tuple[str, int, int, str, str]]:
    for operation, span, concurrency in product(("send", "all_reduce"), (1, 2), ("alone", "all")):
        yield operation, 2, span, "sorted", concurrency
    for operation, concurrency in product(("send_recv", "all_reduce"), ("alone", "all")):
        for span, order in ((1, "sorted"), (2, "sorted"), (2, "alternating")):
            yield operation, 4, span, order, concurrency


def document(cluster: Cluster, curves: tuple[Curve, ...]) -> CurvesFile:
    return CurvesFile(
        schema_version=CURVES_VERSION,
        run_id="micro",
        cluster=cluster.name,
        cluster_hash=files.digest(cluster),
        ended_at="2026-01-02T03:04:05+00:00",
        backend="gloo",
        transport="simulated",
        gpu_model="cpu",
        curves=curves,
    )


def curve(operation: str, nnodes: int, span: int, order: str, concurrency: str, times_s: tuple[float, ...]) -> Curve:
    return Curve(
        operation=operation,
        dtype="float32",
        redop="sum",
        in_place=False,
        nranks=nnodes,
        nnodes=nnodes,
        rank_order=order,
        concurrency=concurrency,
        tier="minipod",
        span=span,
        points=tuple(
            CurvePoint(
                size_bytes=size,
                time_s=Estimate(value=time_s, ci_low=None, ci_high=None),
                busbw_bytes_per_s=None,
                nunits=1,
                is_provisional=True,
            )
            for size, time_s in zip(SIZES, times_s, strict=False)
        ),
        fit=None,
    )


SHAPES = tuple(_shapes())


def simulated(
    cluster: Cluster,
    truth: Parameters,
    library: Library,
    ndraws: int = 5,
    shapes: Sequence[tuple[str, int, int, str, str]] = SHAPES,
) -> CurvesFile:
    """Return curves over two campaigns' shapes with times of the model itself."""
    blank = document(cluster, tuple(curve(*shape, (1.0,) * len(SIZES)) for shape in shapes))
    times_s = [simulate_pattern(pattern, truth, library, ndraws) for pattern in patterns(blank, cluster)]
    rows = zip(*[iter(times_s)] * len(SIZES), strict=True)
    return document(cluster, tuple(curve(*shape, row) for shape, row in zip(shapes, rows, strict=True)))

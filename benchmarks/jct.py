"""Whether gradient boosting predicts runtimes better than a fairly tuned small net, and whether its upper bound holds.

Synthetic traces of two published shapes (they say nothing about a real cluster), several draws of each, and every trace
given with ``--trace KIND:FILE``. Each is split by time: what had ended before a moment trains, the last jobs are
forecast, each from what had ended when it was submitted. Both predictors see the same features and try as many
parameters, chosen by the deviance on jobs after those fitted to. The owner's past alone fits nothing. The truth is the
mean that the generator itself draws a job's runtime around: what it leaves is luck, and no predictor can do better.

``rmse_gbm`` and ``rmse_dnn``: root mean square errors in intervals of ten minutes, geometric means over the traces;
``traces`` has those of each with its interval, a bootstrap by days, and that of their ratio. Runtimes have heavy tails,
so a few long jobs decide these numbers: the deviance tells more. ``rmse_past_alone``: what the owner's past reaches;
``rmse_truth``: what the truth does, over the synthetic traces. ``coverage90``: share of jobs that end within the
calibrated 90% quantile, the mean over traces; ``coverage90_min`` and ``coverage90_max``.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean, geometric_mean
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from spanfit import files, units
from spanfit.queue.jct.compare import Comparison, compare
from spanfit.queue.jct.losses import bin_errors, deviance
from spanfit.queue.jct.metrics import divide
from spanfit.queue.jct.model import Floats, runtimes_s
from spanfit.queue.traces.kinds import PARSERS
from spanfit.queue.traces.reading import Trace, TraceJob, usable
from spanfit.queue.traces.synthetic import SyntheticShape, synthetic_trace, true_means_s
from spanfit.results.schema import Estimate, format_estimate

GBM, NET, PAST = range(3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A trace, and the true mean runtime of some of its jobs where it is known."""

    name: str
    trace: Trace
    truth_s: Callable[[Sequence[TraceJob]], Floats] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What came of a case; ``truth`` is the error and the deviance that the true means leave."""

    name: str
    found: Comparison
    truth: tuple[float, float] | None


def synthetic_cases(*, seed: int, ndraws: int, njobs: int, days: float) -> Iterator[Case]:
    """Yield draws of both shapes."""
    for shape in SyntheticShape:
        for draw in range(seed, seed + ndraws):
            trace = synthetic_trace(shape, njobs=njobs, days=days, seed=draw)
            truth_s = partial(true_means_s, shape, days=days, seed=draw)
            yield Case(name=f"synthetic {shape.value} {draw}", trace=trace, truth_s=truth_s)


def given_case(text: str) -> Case:
    """Return the trace of a file, given as KIND:FILE."""
    kind, _, path = text.partition(":")
    if kind not in PARSERS or not path:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected KIND:FILE with a kind of {', '.join(PARSERS)}")
    return Case(name=path, trace=PARSERS[kind](files.read_text(Path(path)), path))


def result(case: Case, *, ntried: int, seed: int, test_share: float) -> Result:
    """Return what came of a case."""
    found = compare(case.trace, ndraws=ntried, seed=seed, clock=time.perf_counter, test_share=test_share)
    if case.truth_s is None:
        return Result(name=case.name, found=found, truth=None)
    tested = usable(divide(case.trace.jobs, test_share).after)
    means_s, times_s = case.truth_s(tested), runtimes_s(tested)
    rmse = float(np.sqrt(np.mean(bin_errors(means_s, times_s) ** 2)))
    return Result(name=case.name, found=found, truth=(rmse, deviance(means_s, times_s)))


def rows(result: Result) -> Iterator[tuple[str, ...]]:
    """Yield the rows of a trace."""
    found = result.found
    for score in found.scores:
        ratio = format_estimate(found.rmse_ratio, "{:.3g}".format) if score is found.scores[GBM] else ""
        yield (
            result.name,
            score.name,
            format_estimate(score.rmse_bins, "{:.3g}".format),
            ratio,
            f"{score.mae_bins:.3g}",
            f"{score.deviance:.3g}",
            format_estimate(score.coverage, units.format_percent),
            f"{score.pinball_log:.3g}",
            score.target,
            f"{score.wall_s:.0f} s",
        )
    if result.truth is not None:
        rmse, left = result.truth
        yield (result.name, "the truth", f"{rmse:.3g}", "", "", f"{left:.3g}", "", "", "", "")


def figures(result: Result) -> dict[str, Any]:
    """Return the figures of a trace."""
    found = result.found
    gbm, net, past = found.scores
    return {
        "trace": result.name,
        "kind": found.kind,
        "ntrain": found.ntrain,
        "ntest": found.ntest,
        "rmse_gbm": _estimate(gbm.rmse_bins),
        "rmse_dnn": _estimate(net.rmse_bins),
        "rmse_past_alone": _estimate(past.rmse_bins),
        "rmse_truth": None if result.truth is None else round(result.truth[0], 3),
        "rmse_ratio": _estimate(found.rmse_ratio),
        "deviance": [round(score.deviance, 3) for score in found.scores],
        "pinball_log": [round(score.pinball_log, 4) for score in found.scores],
        "coverage90": _estimate(gbm.coverage),
        "coverage90_dnn": _estimate(net.coverage),
    }


def _estimate(estimate: Estimate) -> list[float | None]:
    bounds = (estimate.ci_low, estimate.ci_high)
    return [float(f"{estimate.value:.4g}"), *(None if bound is None else float(f"{bound:.4g}") for bound in bounds)]


def summary(results: Sequence[Result]) -> dict[str, Any]:
    """Return the figures over all traces."""

    def mean_rmse(which: int) -> float:
        return round(geometric_mean([each.found.scores[which].rmse_bins.value for each in results]), 3)

    covered = [each.found.scores[GBM].coverage.value for each in results]
    truths = [each.truth[0] for each in results if each.truth is not None]
    return {
        "rmse_gbm": mean_rmse(GBM),
        "rmse_dnn": mean_rmse(NET),
        "rmse_past_alone": mean_rmse(PAST),
        "rmse_truth": round(geometric_mean(truths), 3) if truths else None,
        "coverage90": round(fmean(covered), 4),
        "coverage90_min": round(min(covered), 4),
        "coverage90_max": round(max(covered), 4),
        "ntraces": len(results),
    }


def table(results: Sequence[Result], ntried: int) -> Table:
    """Return the table for people."""
    columns = (
        "trace",
        "predictor",
        "RMSE [10 min]",
        "over net's",
        "MAE",
        "deviance",
        "within 90%",
        "pinball",
        "target",
    )
    title = f"Jobs forecast out of time ({ntried} parameters tried by each)"
    made = Table(*columns, "fitted in", title_justify="left", title=title)
    for each in results:
        for row in rows(each):
            made.add_row(*row)
    return made


def main() -> None:
    """Print the table, and the figures last."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one small trace of each shape: within a minute")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--trace", action="append", default=[], type=given_case, metavar="KIND:FILE")
    parser.add_argument("--no-synthetic", action="store_true", help="only what --trace names")
    arguments = parser.parse_args()
    if arguments.no_synthetic and not arguments.trace:
        parser.error("--no-synthetic leaves nothing without --trace")
    started_s = time.monotonic()
    ndraws = 0 if arguments.no_synthetic else 1 if arguments.quick else 2
    njobs, days = (2000, 20.0) if arguments.quick else (8000, 50.0)
    ntried, share = (3, 0.25) if arguments.quick else (9, 0.15)
    cases = [*synthetic_cases(seed=arguments.seed, ndraws=ndraws, njobs=njobs, days=days), *arguments.trace]
    results = [result(case, ntried=ntried, seed=arguments.seed, test_share=share) for case in cases]
    Console(width=175).print(table(results, ntried))
    line = {"benchmark": "jct", **summary(results), "traces": [figures(each) for each in results]}
    print(json.dumps({**line, "seconds": round(time.monotonic() - started_s, 1)}))


if __name__ == "__main__":
    main()

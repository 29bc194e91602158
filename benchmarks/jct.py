"""Whether gradient boosting predicts runtimes better than a fairly tuned small net, and whether its upper bound holds.

Synthetic traces of two published shapes (they say nothing about a real cluster), several draws of each, and every trace
given with ``--trace KIND:FILE``. Each is split by time: what had ended before a moment trains, the last jobs are
forecast, each from what had ended when it was submitted. Both predictors see the same features and try as many
parameters, chosen by the deviance on jobs after those fitted to. The last row, the owner's past alone, fits nothing.

``rmse_gbm`` and ``rmse_dnn``: root mean square errors in intervals of ten minutes, geometric means over the traces;
``traces`` has those of each with its interval, a bootstrap by days, and that of their ratio. Runtimes have heavy tails,
so a few long jobs decide these numbers: the deviance tells more. ``coverage90``: share of jobs that end within the
calibrated 90% quantile, the mean over traces; ``coverage90_min`` and ``coverage90_max``. ``past_alone_...`` is what the
owner's past alone reaches.
"""

import argparse
import json
import math
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from spanfit import files, units
from spanfit.queue.jct.metrics import Score
from spanfit.queue.jct.score import Comparison, compare
from spanfit.queue.traces.kinds import PARSERS
from spanfit.queue.traces.reading import Trace
from spanfit.queue.traces.synthetic import SyntheticShape, synthetic_trace
from spanfit.results.schema import Estimate, format_estimate

GBM, NET, PAST = range(3)


def traces(given: Sequence[str], *, seed: int, ndraws: int, njobs: int, days: float) -> Iterator[tuple[str, Trace]]:
    """Yield the name of each trace and the trace: draws of both shapes, then those given as KIND:FILE."""
    for shape in SyntheticShape:
        for draw in range(ndraws):
            trace = synthetic_trace(shape, njobs=njobs, days=days, seed=seed + draw)
            yield f"synthetic {shape.value} {seed + draw}", trace
    for text in given:
        kind, _, path = text.partition(":")
        yield path, PARSERS[kind](files.read_text(Path(path)), path)


def rows(name: str, found: Comparison) -> Iterator[tuple[str, ...]]:
    """Yield the rows of a trace."""
    for score in found.scores:
        ratio = format_estimate(found.rmse_ratio, "{:.3g}".format) if score is found.scores[GBM] else ""
        yield (
            name,
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


def figures(name: str, found: Comparison) -> dict[str, Any]:
    """Return the figures of a trace."""
    gbm, net, past = found.scores
    return {
        "trace": name,
        "kind": found.kind,
        "ntrain": found.ntrain,
        "ntest": found.ntest,
        "rmse_gbm": _estimate(gbm.rmse_bins),
        "rmse_dnn": _estimate(net.rmse_bins),
        "rmse_past_alone": _estimate(past.rmse_bins),
        "rmse_ratio": _estimate(found.rmse_ratio),
        "deviance": [round(score.deviance, 3) for score in found.scores],
        "pinball_log": [round(score.pinball_log, 4) for score in found.scores],
        "coverage90": _estimate(gbm.coverage),
        "coverage90_dnn": _estimate(net.coverage),
    }


def _estimate(estimate: Estimate) -> list[float | None]:
    bounds = (estimate.ci_low, estimate.ci_high)
    return [float(f"{estimate.value:.4g}"), *(None if bound is None else float(f"{bound:.4g}") for bound in bounds)]


def summary(found: Sequence[Comparison]) -> dict[str, Any]:
    """Return the figures over all traces."""

    def mean_rmse(which: int) -> float:
        logs = [math.log(each.scores[which].rmse_bins.value) for each in found]
        return round(math.exp(sum(logs) / len(logs)), 3)

    def mean(values: Sequence[float]) -> float:
        return round(sum(values) / len(values), 4)

    gbm: list[Score] = [each.scores[GBM] for each in found]
    covered = [score.coverage.value for score in gbm]
    return {
        "rmse_gbm": mean_rmse(GBM),
        "rmse_dnn": mean_rmse(NET),
        "past_alone_rmse": mean_rmse(PAST),
        "coverage90": mean(covered),
        "coverage90_min": round(min(covered), 4),
        "coverage90_max": round(max(covered), 4),
        "ntraces": len(found),
    }


def main() -> None:
    """Print the table, and the figures last."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one small trace of each shape: within a minute")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--trace", action="append", default=[], metavar="KIND:FILE", help=f"of {', '.join(PARSERS)}")
    parser.add_argument("--no-synthetic", action="store_true", help="only what --trace names")
    arguments = parser.parse_args()
    console, started_s = Console(width=175), time.monotonic()
    ndraws = 0 if arguments.no_synthetic else 1 if arguments.quick else 2
    njobs, days = (2000, 20.0) if arguments.quick else (8000, 50.0)
    made = traces(arguments.trace, seed=arguments.seed, ndraws=ndraws, njobs=njobs, days=days)
    tried, share = (3, 0.25) if arguments.quick else (9, 0.15)
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
    table = Table(
        *columns,
        "fitted in",
        title_justify="left",
        title=f"Jobs forecast out of time ({tried} parameters tried by each)",
    )
    found = {}
    for name, trace in made:
        found[name] = compare(trace, ndraws=tried, seed=arguments.seed, clock=time.perf_counter, test_share=share)
        for row in rows(name, found[name]):
            table.add_row(*row)
    console.print(table)
    line = {"benchmark": "jct", **summary(tuple(found.values()))}
    line["traces"] = [figures(name, comparison) for name, comparison in found.items()]
    print(json.dumps({**line, "seconds": round(time.monotonic() - started_s, 1)}))


if __name__ == "__main__":
    main()

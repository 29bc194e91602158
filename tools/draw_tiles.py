"""Draw docs/images/tiles.svg: a job of 150 x 8 nodes in slabs and in tiles, and by how much tiles win as minipods grow.

Run ``python tools/draw_tiles.py docs/images/tiles.svg``. Minipods are alike and hold 1.1 times the job together; slabs
are the paper's model (Eq. 4-10) in closed form, tiles are what ``spanfit place`` finds in two seconds at most.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from spanfit.placer.model import Grid, Problem, column_spreads, objective, row_spreads
from spanfit.placer.paper import solve_paper
from spanfit.placer.seats import orders
from spanfit.placer.solve import solve

NROWS, NCOLUMNS, SLACK = 150, 8, 1.1
DRAWN = 16
MINIPODS = (2, 3, 4, 6, 8, 12, 16, 20, 25, 30, 40)
LABELLED = (2, 3, 4, 6, 8, 12, 16, 25, 40)
ALPHAS = (0.3, 0.5, 0.7)


def problem(nminipods: int, alpha: float) -> Problem:
    """Return the job on minipods that are alike."""
    room = -(-NROWS * NCOLUMNS * SLACK // nminipods)
    return Problem(nrows=NROWS, ncolumns=NCOLUMNS, free=(int(room),) * nminipods, alpha=alpha, beta=1 - alpha)


def draw_grid(axes: Axes, name: str, grid: Grid, given: Problem) -> None:
    """Draw which minipod each node of a grid sits in."""
    rows, columns = orders(grid)
    cells = np.array(grid)[rows][:, columns]
    first_seen = {minipod: index for index, minipod in enumerate(dict.fromkeys(cells.ravel().tolist()))}
    axes.imshow(np.vectorize(first_seen.get)(cells), aspect="auto", interpolation="nearest", cmap="tab20")
    a, b = max(column_spreads(grid)), max(row_spreads(grid))
    axes.set_title(f"{name}: spread DP {a}, PP {b}; objective {objective(grid, given):g}", fontsize=9)
    axes.set_xlabel("column (DP group)", fontsize=8)
    axes.set_ylabel("row (PP group)", fontsize=8)
    axes.tick_params(labelsize=7)


def draw_ratios(axes: Axes, ratios: Sequence[Sequence[float]]) -> None:
    """Draw the objective of slabs over that of tiles, a line for each alpha."""
    for alpha, line, marker in zip(ALPHAS, ratios, "o^s", strict=True):
        axes.plot(MINIPODS, line, marker=marker, markersize=3, linewidth=1, label=f"alpha {alpha}")
    axes.set_title("objective, slabs over tiles", fontsize=9)
    axes.set_xscale("log")
    axes.set_xticks(LABELLED, list(map(str, LABELLED)))
    axes.minorticks_off()
    axes.set_xlabel("minipods", fontsize=8)
    axes.tick_params(labelsize=7)
    axes.set_ylim(bottom=0.9)
    axes.grid(visible=True, linewidth=0.3)
    axes.legend(fontsize=7, frameon=False)


def main() -> None:
    """Write the figure, and print its numbers."""
    drawn = problem(DRAWN, 0.5)
    ratios = [
        [
            solve_paper(given).counted / objective(solve(given, time_limit_s=2).grid, given)
            for given in (problem(nminipods, alpha) for nminipods in MINIPODS)
        ]
        for alpha in ALPHAS
    ]
    for alpha, line in zip(ALPHAS, ratios, strict=True):
        print(alpha, [round(ratio, 2) for ratio in line])
    mpl.rcParams |= {"svg.hashsalt": "tiles", "svg.fonttype": "none"}
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    draw_grid(left, "slabs", solve_paper(drawn).grid, drawn)
    draw_grid(middle, "tiles", solve(drawn, time_limit_s=2).grid, drawn)
    draw_ratios(right, ratios)
    figure.savefig(Path(sys.argv[1]), format="svg", metadata={"Date": None})


if __name__ == "__main__":
    main()

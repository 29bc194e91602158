"""Worths of pieces of columns that refute pairs of spreads: a linear program, its rows generated, by HiGHS [edge].

The program of ``pieces``: choose worths g(t), the price of a touched row and the worth G of a column such that
b D price + sum of what each minipod can give - P G is least, with every stack of at most a pieces worth G or more.
Below 0 it refutes (a, b). Its rows are stacks, and ways in which minipods give; they are found when they are violated,
by a look at worths between the program's answer and the best worths so far, which takes half as many rounds as a look
at the answer itself. HiGHS only proposes: what counts are whole worths, looked at in exact arithmetic.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from spanfit.placer.bounds import Certificate, box_prices, pieces_certificate
from spanfit.placer.boxes import boxes_of
from spanfit.placer.highs import silent_stdout
from spanfit.placer.model import Problem
from spanfit.placer.pieces import Givings, Sides, Stacks, Whole

if TYPE_CHECKING:
    from highspy import Highs

_SCALE = 1 << 30
_SAME = 1e-7
_ROUNDS = 120
_PIVOTS = 1500
"""Of one solve; more than a few hundred are only needed where the simplex method cycles."""
_STACKS, _GIVINGS = 12, 24
"""Violated rows that are added in a round; of ways of giving at least one for each minipod."""
_TO_BEST = 0.8
"""Where the worths that are looked at lie on the way from the program's answer to the best so far."""
_FIRST = 8
"""Ways of each minipod to start from, those that are worth most at the prices of the box bound."""


class _Program:
    """The linear program of one column spread, with the rows found so far.

    Attributes
    ----------
    best : array
        Worths of pieces of 1, 2, ... cells and the price of a row, as whole numbers of 1 / scale: the lowest found.
    lowest : int or None
        What they are worth, None before that was looked at.
    is_answer_next : bool
        Whether to look at the program's answer itself, since the last look on the way to it violated nothing.
    """

    def __init__(self, sides: Sides, best: Whole) -> None:
        self.sides, self.best = sides, best
        self.lowest: int | None = None
        self.is_answer_next = False
        self.price, self.column, self.first = sides.longest, sides.longest + 1, sides.longest + 2
        self.highs = _quiet_highs()
        nvariables = self.first + len(sides.nodes)
        lower, upper = np.full(nvariables, -1.0), np.full(nvariables, 1.0)
        lower[self.price], upper[self.price] = 0, np.inf
        lower[self.column], upper[self.column] = -sides.depth, sides.depth
        lower[self.first :], upper[self.first :] = 0, np.inf
        self.highs.addVars(nvariables, lower, upper)
        self.highs.changeColCost(self.column, -float(sides.ncolumns))
        for place, count in enumerate(sides.count.tolist()):
            self.highs.changeColCost(self.first + place, float(count))

    def turn_to(self, sides: Sides) -> None:
        """Make ready for another row spread."""
        self.sides, self.lowest = sides, None

    def add_stack(self, stack: Iterable[int]) -> None:
        """Demand that a stack of pieces is worth a column."""
        cells, count = np.unique(list(stack), return_counts=True)
        self._add([*(cells - 1), self.column], [*count, -1])

    def add_giving(self, place: int, rows: int, pieces: Iterable[int]) -> None:
        """Demand that a minipod counts as worth what it can give in a way."""
        cells, count = np.unique(list(pieces), return_counts=True)
        self._add([*(cells - 1), self.price, self.first + place], [*-count, rows, 1])

    def _add(self, index: Sequence[int], factors: Sequence[float]) -> None:
        self.highs.addRow(0, np.inf, len(index), np.array(index, dtype=np.int32), np.array(factors, dtype=float))

    def sharpen(self, found: Whole) -> Whole | None:
        """Add rows that an answer violates, or return worths that refute the pair, with the price of a row last."""
        sides = self.sides
        answer = found[: self.column]
        way = 0.0 if self.is_answer_next else _TO_BEST
        tried = np.rint(way * self.best + (1 - way) * answer).astype(np.int64)
        worths, price = np.append(0, tried[: self.price]), int(tried[self.price])
        givings = Givings(worths, sides.ncolumns, int(sides.nodes.max()))
        gains = givings.gains(sides.nodes, price)
        stacks = Stacks(worths, sides.nrows, sides.depth)
        value = price * sides.row_spread * sides.nrows + int(sides.count @ gains.max(axis=0))
        value -= sides.ncolumns * stacks.least
        if value < 0:
            return tried
        if self.lowest is None or value < self.lowest:
            self.lowest, self.best = value, tried
        nadded = self._add_stacks(found, stacks) + self._add_givings(found, givings, gains)
        self.is_answer_next = nadded == 0
        return None

    def _add_stacks(self, found: Whole, stacks: Stacks) -> int:
        """Add the cheapest stacks that an answer violates, and return how many."""
        violated = [
            stack for stack in stacks.cheapest(_STACKS) if found[np.array(stack) - 1].sum() < found[self.column] - 1
        ]
        for stack in violated:
            self.add_stack(stack)
        return len(violated)

    def _add_givings(self, found: Whole, givings: Givings, gains: Whole) -> int:
        """Add the ways of giving of most worth that an answer violates, and return how many."""
        nodes, added = self.sides.nodes.tolist(), 0
        for place, counted in enumerate(found[self.first :].tolist()):
            for rows in np.argsort(-gains[:, place], kind="stable")[: max(1, _GIVINGS // len(nodes))].tolist():
                pieces = np.array(givings.pieces(nodes[place], rows), dtype=np.int64)
                if found[pieces - 1].sum() - rows * found[self.price] > counted + 1:
                    self.add_giving(place, rows, pieces)
                    added += 1
        return added

    def solve(self) -> tuple[float, Whole] | None:
        """Return the least value, and all variables as whole numbers of 1 / scale; None where HiGHS is stuck."""
        self.highs.changeColCost(self.price, float(self.sides.row_spread * self.sides.nrows))
        self.highs.run()
        if self.highs.getInfo().simplex_iteration_count >= _PIVOTS:
            return None
        values = np.rint(np.array(self.highs.getSolution().col_value) * _SCALE).astype(np.int64)
        return self.highs.getInfo().objective_function_value, values


def _quiet_highs() -> "Highs":
    with silent_stdout():
        import highspy

        highs = highspy.Highs()  # type: ignore[no-untyped-call]
    highs.setOptionValue("output_flag", False)
    highs.setOptionValue("parallel", "off")
    highs.setOptionValue("simplex_iteration_limit", _PIVOTS)
    return highs


class Worths:
    """A search for worths that refute pairs of spreads of a problem; what it found for one pair serves the next."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.programs: dict[int, _Program] = {}
        self.held: list[tuple[int, int]] = []

    def work(self, a: int, b: int) -> float:
        """Return about how many table entries a round looks at, those of the program included."""
        sides = Sides.of(self.problem, a, b)
        ndistinct = len(sides.nodes)
        givings = (sides.ncolumns + 1) * (int(sides.nodes.max()) + 1) * sides.longest
        program = 10.0 * _FIRST * ndistinct * (sides.longest + ndistinct)
        return givings + sides.nrows * sides.longest * sides.depth + program

    def refute(self, a: int, b: int, stop: Callable[[], bool]) -> Certificate | None:
        """Return a checked proof that (a, b) cannot be reached, or None where none was found."""
        if any(x <= a and y <= b for x, y in self.held):
            return None
        program = self._program(a, b)
        for _ in range(_ROUNDS):
            answer = program.solve()
            if answer is None:
                del self.programs[program.sides.depth]
                self.held.append((a, b))
                return None
            value, found = answer
            if value >= -_SAME:
                self.held.append((a, b))
                return None
            refuting = program.sharpen(found)
            if refuting is not None:
                *worths, price = refuting.tolist()
                return pieces_certificate(self.problem, a, b, (0, *worths), price)
            if stop():
                return None
        return None

    def _program(self, a: int, b: int) -> _Program:
        """Return the program of a column spread, made ready for a row spread."""
        sides = Sides.of(self.problem, a, b)
        if sides.depth not in self.programs:
            self.programs[sides.depth] = self._first_program(sides)
        self.programs[sides.depth].turn_to(sides)
        return self.programs[sides.depth]

    def _first_program(self, sides: Sides) -> _Program:
        """Return a program that starts from the box bound: its worths, and the boxes of most worth of each minipod."""
        upright = replace(self.problem, nrows=sides.nrows, ncolumns=sides.ncolumns)
        _, row_price, column_price = box_prices(upright, sides.depth, sides.row_spread, 0)
        worths = np.append(np.arange(1, sides.longest + 1) - column_price, row_price)
        scale = _SCALE / max(1e-9, np.abs(worths[:-1]).max())
        program = _Program(sides, np.rint(scale * worths).astype(np.int64))
        for place, rows, pieces in _first_givings(upright, sides, row_price, column_price):
            program.add_giving(place, rows, pieces)
        return program


def _first_givings(
    upright: Problem, sides: Sides, row_price: float, column_price: float
) -> Iterator[tuple[int, int, list[int]]]:
    """Yield, as (place, rows, pieces), the boxes of each minipod that are worth most at the prices of the box bound."""
    boxes = boxes_of(upright)
    gains = boxes.cells - row_price * boxes.rows - column_price * boxes.columns
    for place, nodes in enumerate(sides.nodes.tolist()):
        for box in np.argsort(-gains[place], kind="stable")[:_FIRST].tolist():
            rows, columns = int(boxes.rows[place, box]), int(boxes.columns[place, box])
            if rows:
                whole = min(columns, nodes // rows)
                rest = min(rows, nodes - whole * rows) if whole < columns else 0
                yield place, rows, [rows] * whole + [rest] * (rest > 0)

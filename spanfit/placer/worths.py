"""Worths of pieces of columns that refute pairs of spreads: a linear program, its rows generated, by HiGHS [edge].

The program of ``pieces``: choose worths g(t), the price of a touched row and the worth G of a column such that
b D price + sum of what each minipod can give - P G is least, with every stack of at most a pieces worth G or more.
Below 0 it refutes (a, b). Its rows are stacks, and ways in which minipods give; they are found when they are violated.
HiGHS only proposes: what counts are whole worths, looked at in exact arithmetic.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from spanfit.placer.bounds import Certificate, box_prices, pieces_certificate
from spanfit.placer.boxes import boxes_of
from spanfit.placer.highs import silent_stdout
from spanfit.placer.model import Problem
from spanfit.placer.pieces import Givings, Sides, Stacks

if TYPE_CHECKING:
    from highspy import Highs

_SCALE = 1 << 30
_SAME = 1e-7
_ROUNDS = 120
_PIVOTS = 1500
"""Of one solve; more than a few hundred are only needed where the simplex method cycles."""
_STACKS, _GIVINGS = 12, 24
"""Violated rows that are added in a round; of ways of giving at least one for each minipod."""
_FIRST = 8
"""Ways of each minipod to start from, those that are worth most at the prices of the box bound."""


class _Program:
    """The linear program of one column spread, with the rows found so far."""

    def __init__(self, sides: Sides) -> None:
        self.sides = sides
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

    def sharpen(self, found: Sequence[int]) -> bool:
        """Add the rows that an answer violates, or return True where its worths refute the pair."""
        sides = self.sides
        worths = np.array([0, *found[: self.price]], dtype=np.int64)
        givings = Givings(worths, sides.ncolumns, int(sides.nodes.max()))
        gains = givings.gains(sides.nodes, found[self.price])
        stacks = Stacks(worths, sides.nrows, sides.depth)
        value = found[self.price] * sides.row_spread * sides.nrows + int(sides.count @ gains.max(axis=0))
        if value < sides.ncolumns * stacks.least:
            return True
        for stack in stacks.below(found[self.column] - 1, _STACKS):
            self.add_stack(stack)
        most = max(1, _GIVINGS // len(sides.nodes))
        for place, (nodes, counted) in enumerate(zip(sides.nodes.tolist(), found[self.first :], strict=True)):
            for rows in np.argsort(-gains[:, place], kind="stable")[:most].tolist():
                if gains[rows, place] > counted + 1:
                    self.add_giving(place, rows, givings.pieces(nodes, rows))
        return False

    def solve(self) -> tuple[float, list[int]] | None:
        """Return the least value, and all variables as whole numbers of 1 / scale; None where HiGHS is stuck."""
        self.highs.changeColCost(self.price, float(self.sides.row_spread * self.sides.nrows))
        self.highs.run()
        if self.highs.getInfo().simplex_iteration_count >= _PIVOTS:
            return None
        values = np.rint(np.array(self.highs.getSolution().col_value) * _SCALE).astype(np.int64)
        return self.highs.getInfo().objective_function_value, values.tolist()


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
            if program.sharpen(found):
                return pieces_certificate(self.problem, a, b, (0, *found[: program.price]), found[program.price])
            if stop():
                return None
        return None

    def _program(self, a: int, b: int) -> _Program:
        """Return the program of a column spread, made ready for a row spread."""
        sides = Sides.of(self.problem, a, b)
        if sides.depth not in self.programs:
            program = self.programs[sides.depth] = _Program(sides)
            for place, rows, pieces in _first_givings(self.problem, sides):
                program.add_giving(place, rows, pieces)
        self.programs[sides.depth].sides = sides
        return self.programs[sides.depth]


def _first_givings(problem: Problem, sides: Sides) -> Iterator[tuple[int, int, list[int]]]:
    """Yield, as (place, rows, pieces), the boxes of each minipod that are worth most by the box bound."""
    upright = replace(problem, nrows=sides.nrows, ncolumns=sides.ncolumns)
    _, row_price, column_price = box_prices(upright, sides.depth, sides.row_spread, 0)
    boxes = boxes_of(upright)
    gains = boxes.cells - row_price * boxes.rows - column_price * boxes.columns
    for place, nodes in enumerate(sides.nodes.tolist()):
        for box in np.argsort(-gains[place], kind="stable")[:_FIRST].tolist():
            rows, columns = int(boxes.rows[place, box]), int(boxes.columns[place, box])
            if rows:
                whole = min(columns, nodes // rows)
                rest = min(rows, nodes - whole * rows) if whole < columns else 0
                yield place, rows, [rows] * whole + [rest] * (rest > 0)

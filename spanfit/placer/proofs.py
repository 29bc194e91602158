"""Which pairs of spreads (a, b) are refuted, and why: every certificate is checked before it counts."""

from dataclasses import dataclass
from math import ceil

import numpy as np
import numpy.typing as npt

from spanfit.placer.bounds import Certificate, Rule, check, product_bound, refute_by_product
from spanfit.placer.model import Problem

SAME = 1e-9
"""Objectives that differ by no more are equal."""

Pairs = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Proof:
    """That neither (a, b) nor a lower pair has a grid; by products, that no pair of so small a product has one."""

    a: int
    b: int
    text: str
    tightness: float
    is_by_product: bool = False

    def covers(self, pairs: Pairs) -> npt.NDArray[np.bool_]:
        if self.is_by_product:
            return np.asarray(pairs.prod(axis=1) <= self.a * self.b)
        return np.asarray((pairs <= (self.a, self.b)).all(axis=1))


def pairs_by_objective(problem: Problem) -> Pairs:
    """Return every pair of spreads (a, b) that a grid may have, by rising alpha a + beta b, ties by a + b."""
    nminipods = sum(nodes > 0 for nodes in problem.free)
    sides = np.arange(1, min(nminipods, problem.nrows) + 1), np.arange(1, min(nminipods, problem.ncolumns) + 1)
    a, b = (side.ravel() for side in np.meshgrid(*sides, indexing="ij"))
    pairs = np.stack([a, b], axis=1)
    return pairs[np.lexsort((a, a + b, np.round(_values(pairs, problem), 9)))]


def _values(pairs: Pairs, problem: Problem) -> npt.NDArray[np.float64]:
    """Return the objective of each pair of spreads."""
    counts = np.array([problem.reading.of(spread) for spread in range(int(pairs.max(initial=0)) + 1)])
    return np.asarray(counts[pairs] @ (problem.alpha, problem.beta))


class Proofs:
    """The pairs of spreads by rising objective, and which of them are left; those of too small a product are not."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.pairs = pairs_by_objective(problem)
        self.values = _values(self.pairs, problem)
        self.is_left = np.ones(len(self.pairs), dtype=bool)
        self._proofs: list[_Proof] = []
        products = self.pairs.prod(axis=1)
        small = products < ceil(product_bound(problem))
        if small.any():
            self.add(refute_by_product(problem, *self.pairs[np.where(small, products, 0).argmax()].tolist()))

    def add(self, certificate: Certificate | None) -> bool:
        """Close what a certificate refutes, once ``check`` finds in exact arithmetic that it holds; tell if it did."""
        if certificate is None or not check(certificate, self.problem):
            return False
        self._close(
            _Proof(
                a=certificate.a,
                b=certificate.b,
                text=str(certificate),
                tightness=float(certificate.reached / certificate.needed),
                is_by_product=certificate.rule is Rule.PRODUCT,
            )
        )
        return True

    def add_model(self, a: int, b: int, engine: str) -> None:
        """Close a pair that an engine found to have no grid in the exact model, on the engine's word."""
        text = f"({a}, {b}) has no grid (exact type model, by {engine})"
        self._close(_Proof(a=a, b=b, text=text, tightness=1.0))

    def _close(self, proof: _Proof) -> None:
        self._proofs.append(proof)
        self.is_left &= ~proof.covers(self.pairs)

    def left_below(self, value: float) -> npt.NDArray[np.bool_]:
        """Return which pairs are left and have a lower objective than a value."""
        return np.asarray(self.is_left & (self.values < value - SAME))

    def bound(self) -> float:
        """Return the lowest objective that is not refuted, infinite where all are."""
        return float(self.values[self.is_left].min(initial=np.inf))

    def explain(self, bound: float) -> str:
        """Return in words what refutes the pairs below a bound."""
        lower = self.pairs[self.values < bound - SAME]
        if not len(lower):
            return "no pair of spreads lies lower"
        tightest = max((each for each in self._proofs if each.covers(lower).any()), key=lambda each: each.tightness)
        number = "the 1 pair" if len(lower) == 1 else f"the {len(lower)} pairs"
        return f"{number} of spreads below {bound:.4g} refuted, most tightly: {tightest.text}"

"""Transformers by their shapes: parameters, and the matrix products of a microbatch.

A layer is a list of matrices; its parameters and its products come from the same list. FLOPs of attention are those of
the full square of positions, not of its causal half, as published formulas count them.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple

from spanfit.workload.program import Product

_TOLERANCE = 0.02


class Split(StrEnum):
    """How tensor parallelism shares a matrix out."""

    COLUMNS = "columns"
    INNER = "inner"
    WHOLE = "whole"


@dataclass(frozen=True, slots=True)
class Matrix:
    """``count`` weight matrices of (inner x columns)."""

    inner: int
    columns: int
    split: Split = Split.WHOLE
    count: int = 1

    @property
    def parameters(self) -> int:
        """Elements of all of them."""
        return self.inner * self.columns * self.count

    def product(self, rows: int, tp: int) -> Product:
        """Return a rank's product of ``rows`` tokens with its share of each matrix."""
        inner = _share(self.inner, tp) if self.split is Split.INNER else self.inner
        columns = _share(self.columns, tp) if self.split is Split.COLUMNS else self.columns
        return Product(rows, inner, columns, self.count)


class Weights(NamedTuple):
    """Parameters by who holds copies of them."""

    non_expert: int
    expert: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """What makes a model a mixture of experts.

    Attributes
    ----------
    number, top_k : int
        Routed experts of a layer, and how many of them each token visits.
    mlp : int
        Inner width of an expert.
    shared : int
        Experts that every token visits besides.
    dense_layers : int
        First layers that have an ordinary MLP.
    """

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012

    number: int
    top_k: int
    mlp: int
    shared: int
    dense_layers: int

    def faults(self) -> Iterator[str]:
        """Yield what is no mixture of experts."""
        yield from _too_small(self, free=("shared", "dense_layers"))
        if self.top_k > self.number:
            yield f"top_k: found {self.top_k}, expected at most the {self.number} experts"


@dataclass(frozen=True, slots=True, kw_only=True)
class Latent:
    """Multi-head latent attention: the ranks of its low-rank projections, and the width that carries positions."""

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012

    query: int
    key_value: int
    rope: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A transformer by its shapes.

    Attributes
    ----------
    name : str
    layers, hidden, mlp, heads, kv_heads, head_width, vocabulary, sequence : int
        ``mlp`` is the inner width of an ordinary MLP.
    gated : bool
        Whether an MLP has three matrices and not two.
    tied : bool
        Whether the output layer uses the matrix of the embedding.
    positions : bool
        Whether positions are learned, one vector each.
    biases : bool
        Whether matrices and norms have them.
    source : str
        Where the figures come from.
    parameters : int or None
        The published total, which the shapes must give within 2%.
    experts : Experts or None
    latent : Latent or None
    """

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012

    name: str
    layers: int
    hidden: int
    mlp: int
    heads: int
    kv_heads: int
    head_width: int
    vocabulary: int
    sequence: int
    gated: bool
    tied: bool
    positions: bool
    biases: bool
    source: str
    parameters: int | None = None
    experts: Experts | None = None
    latent: Latent | None = None

    def __post_init__(self) -> None:
        """Refuse shapes that are none, or that do not give the published total."""
        faults = [*_too_small(self)]
        for key, table in (("experts", self.experts), ("latent", self.latent)):
            nested = table.faults() if isinstance(table, Experts) else _too_small(table) if table else ()
            faults += [f"{key}.{fault}" for fault in nested]
        if not faults and self.heads % self.kv_heads:
            faults.append(f"kv_heads: found {self.kv_heads}, expected a divisor of heads = {self.heads}")
        if not faults and self.parameters and abs(self.nparameters / self.parameters - 1) > _TOLERANCE:
            lack = "" if self.experts else "; a mixture of experts needs its experts table"
            faults.append(
                f"parameters: found {self.parameters:.4g}, but the shapes give {self.nparameters:.4g}; "
                f"expected the same within {_TOLERANCE:.0%}{lack}"
            )
        if faults:
            raise ValueError("\n".join(faults))

    @property
    def nparameters(self) -> int:
        """Parameters of the whole model."""
        return sum(sum(self.weights(layer)) for layer in range(self.layers))

    @property
    def active_parameters(self) -> int:
        """Parameters that a token meets."""
        weights = [self.weights(layer) for layer in range(self.layers)]
        visited = sum(each.expert for each in weights)
        if self.experts:
            visited = visited * self.experts.top_k // self.experts.number
        return visited + sum(each.non_expert for each in weights)

    def is_mixture(self, layer: int) -> bool:
        """Return whether a layer has experts."""
        return self.experts is not None and layer >= self.experts.dense_layers

    def weights(self, layer: int) -> Weights:
        """Return the parameters of a layer; the first holds the embedding, the last the final norm and output."""
        non_expert = [*self.projections(), self.output(), *self.mlps(layer)]
        experts = self.routed(1) if self.is_mixture(layer) else ()
        vectors = self.hidden * (2 + (layer == self.layers - 1))
        total = sum(matrix.parameters for matrix in non_expert) + vectors * (1 + self.biases)
        if self.biases:
            total += sum(matrix.columns * matrix.count for matrix in non_expert)
        if layer == 0:
            total += self.hidden * (self.vocabulary + self.sequence * self.positions)
        if layer == self.layers - 1 and not self.tied:
            total += self.head().parameters
        return Weights(total, sum(matrix.parameters for matrix in experts))

    def projections(self) -> tuple[Matrix, ...]:
        """Return the matrices that give queries, keys and values."""
        width = self.heads * self.head_width
        if self.latent is None:
            return (Matrix(self.hidden, width + 2 * self.kv_heads * self.head_width, Split.COLUMNS),)
        return (
            Matrix(self.hidden, self.latent.query),
            Matrix(self.latent.query, self.heads * (self.head_width + self.latent.rope), Split.COLUMNS),
            Matrix(self.hidden, self.latent.key_value + self.latent.rope),
            Matrix(self.latent.key_value, 2 * width, Split.COLUMNS),
        )

    def output(self) -> Matrix:
        """Return the matrix that ends attention."""
        return Matrix(self.heads * self.head_width, self.hidden, Split.INNER)

    def mlps(self, layer: int) -> tuple[Matrix, ...]:
        """Return the matrices behind attention that every token meets: an MLP, or the router and shared experts."""
        if not self.is_mixture(layer):
            return self._mlp(self.mlp, 1)
        assert self.experts is not None
        router = Matrix(self.hidden, self.experts.number)
        return (router, *(self._mlp(self.experts.mlp * self.experts.shared, 1) if self.experts.shared else ()))

    def routed(self, ep: int) -> tuple[Matrix, ...]:
        """Return the matrices of the routed experts of a layer that one of ``ep`` ranks holds."""
        assert self.experts is not None
        return self._mlp(self.experts.mlp, self.experts.number // ep)

    def head(self) -> Matrix:
        """Return the matrix that gives a token's logits."""
        return Matrix(self.hidden, self.vocabulary, Split.COLUMNS)

    def attention(self, microbatch: int, tp: int, cp: int) -> tuple[Product, Product]:
        """Return a rank's products of queries with keys and of scores with values, over all positions."""
        rope = self.latent.rope if self.latent else 0
        positions, count = _share(self.sequence, cp), microbatch * _share(self.heads, tp)
        return (
            Product(positions, self.head_width + rope, self.sequence, count),
            Product(positions, self.sequence, self.head_width, count),
        )

    def forward_flops(self, layer: int, microbatch: int) -> int:
        """Return the floating-point operations of a microbatch in a layer's forward pass, over all ranks."""
        tokens = microbatch * self.sequence
        matrices = [*self.projections(), self.output(), *self.mlps(layer)]
        if layer == self.layers - 1:
            matrices.append(self.head())
        total = sum(matrix.product(tokens, 1).flops for matrix in matrices)
        total += sum(product.flops for product in self.attention(microbatch, 1, 1))
        if self.is_mixture(layer):
            assert self.experts is not None
            total += sum(
                2 * tokens * self.experts.top_k * matrix.parameters // self.experts.number for matrix in self.routed(1)
            )
        return total

    def _mlp(self, width: int, count: int) -> tuple[Matrix, Matrix]:
        up = Matrix(self.hidden, width, Split.COLUMNS, count * (1 + self.gated))
        return up, Matrix(width, self.hidden, Split.INNER, count)


def stage_layers(nlayers: int, nstages: int) -> tuple[range, ...]:
    """Return the layers of each stage, even within one; of two stages the first has the more."""
    ends = [-(-nlayers * stage // nstages) for stage in range(nstages + 1)]
    return tuple(range(first, end) for first, end in pairwise(ends))


def _share(total: int, nshares: int) -> int:
    return -(-total // nshares)


def _too_small(table: object, free: tuple[str, ...] = ()) -> Iterator[str]:
    for field in fields(table):  # type: ignore[arg-type]
        value, least = getattr(table, field.name), 0 if field.name in free else 1
        if isinstance(value, int) and not isinstance(value, bool) and value < least:
            yield f"{field.name}: found {value}, expected at least {least}"
        elif isinstance(value, str) and not value:
            yield f"{field.name}: found an empty text, expected some"

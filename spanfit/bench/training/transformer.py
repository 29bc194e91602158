"""A decoder-only transformer with exactly the parameters that its shapes say, and what it is trained on."""

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from spanfit.workload.job import TrainingJob
from spanfit.workload.models import Model


class Attention(nn.Module):
    """Causal attention; several heads may share keys and values."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.head_width, self.is_grouped = model.head_width, model.kv_heads < model.heads
        self.widths = [heads * model.head_width for heads in (model.heads, model.kv_heads, model.kv_heads)]
        self.projection = nn.Linear(model.hidden, sum(self.widths), bias=model.biases)
        self.output = nn.Linear(self.widths[0], model.hidden, bias=model.biases)

    def forward(self, features: Tensor) -> Tensor:
        """Return features of the same shape (sequences, positions, hidden)."""
        query, key, value = (
            part.unflatten(-1, (-1, self.head_width)).transpose(1, 2)
            for part in self.projection(features).split(self.widths, dim=-1)
        )
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=self.is_grouped)
        found: Tensor = self.output(mixed.transpose(1, 2).flatten(2))
        return found


class Mlp(nn.Module):
    """Two matrices with a GELU between them, or three with a gate."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.is_gated = model.gated
        self.up = nn.Linear(model.hidden, model.mlp * (1 + model.gated), bias=model.biases)
        self.down = nn.Linear(model.mlp, model.hidden, bias=model.biases)

    def forward(self, features: Tensor) -> Tensor:
        """Return features of the same shape."""
        inner = self.up(features)
        if self.is_gated:
            gate, value = inner.chunk(2, dim=-1)
            inner = functional.silu(gate) * value
        else:
            inner = functional.gelu(inner)
        found: Tensor = self.down(inner)
        return found


class Embedding(nn.Module):
    """A vector for each token, and one for each position where the model learns them."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.tokens = nn.Embedding(model.vocabulary, model.hidden)
        self.positions = nn.Embedding(model.sequence, model.hidden) if model.positions else None

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the features of tokens (sequences, positions)."""
        found: Tensor = self.tokens(tokens)
        return found if self.positions is None else found + self.positions.weight


class Layer(nn.Module):
    """A layer of a model: the first takes tokens, and the last gives logits."""

    def __init__(self, model: Model, index: int) -> None:
        super().__init__()
        self.embedding = Embedding(model) if index == 0 else nn.Identity()
        self.attention = nn.Sequential(_norm(model), Attention(model))
        self.mlp = nn.Sequential(_norm(model), Mlp(model))
        self.head = _head(model) if index == model.layers - 1 else nn.Identity()

    def forward(self, given: Tensor) -> Tensor:
        """Return what the next layer takes, or the logits."""
        features = self.embedding(given)
        features = features + self.attention(features)
        features = features + self.mlp(features)
        found: Tensor = self.head(features)
        return found


def _head(model: Model) -> nn.Module:
    return nn.Sequential(_norm(model), nn.Linear(model.hidden, model.vocabulary, bias=False))


def _norm(model: Model) -> nn.Module:
    return nn.LayerNorm(model.hidden) if model.biases else nn.RMSNorm(model.hidden)


def build_layers(job: TrainingJob, indices: Iterable[int], device: torch.device) -> dict[int, Layer]:
    """Return layers of the job's model by index, with the same values in every process."""
    layers = {}
    with torch.random.fork_rng(devices=[]):
        for index in indices:
            torch.default_generator.manual_seed(index)
            layers[index] = Layer(job.model, index).to(device, getattr(torch, job.dtype))
    return layers


class Batch(NamedTuple):
    """Sequences of a replica, and which token follows each of theirs."""

    tokens: Tensor
    targets: Tensor

    def split(self, nparts: int) -> "list[Batch]":
        """Return so many equal parts, such as the microbatches of a step."""
        return [Batch(*each) for each in zip(*(part.chunk(nparts) for part in self), strict=True)]


def draw_batch(job: TrainingJob, row: int, device: torch.device) -> Batch:
    """Return what a replica is trained on, the same in every step and every process."""
    generator = torch.Generator().manual_seed(row)
    shape = (job.nmicrobatches * job.microbatch, job.model.sequence + 1)
    drawn = torch.randint(job.model.vocabulary, shape, generator=generator).to(device)
    return Batch(drawn[:, :-1].contiguous(), drawn[:, 1:].contiguous())


def loss_of(job: TrainingJob, logits: Tensor, targets: Tensor) -> Tensor:
    """Return a microbatch's part of the mean cross-entropy of a replica."""
    return functional.cross_entropy(logits.flatten(0, 1), targets.flatten()) / job.nmicrobatches


def learn(job: TrainingJob, model: nn.Module, microbatch: Batch) -> Tensor:
    """Return the loss of a microbatch, whose gradients are added to those of the model."""
    loss = loss_of(job, model(microbatch.tokens), microbatch.targets)
    loss.backward()  # type: ignore[no-untyped-call]
    return loss.detach()

"""What a training step must give: the same model trained on one process."""

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from spanfit.bench.training.transformer import Layer, build_layers, draw_batch, learn
from spanfit.workload.job import TrainingJob


def agrees(
    job: TrainingJob, row: int, layers: Mapping[int, Layer], losses: Sequence[Tensor], device: torch.device
) -> bool:
    """Return whether the gradients of layers and the losses of a row are those that one process computes.

    Gradients may differ by the square root of the dtype's precision, in their norm; a replica or a microbatch that is
    missing makes a far larger difference. Of shares, all ranks that have one must call this.
    """
    expected, expected_losses = alone(job, device)
    tolerance = torch.finfo(getattr(torch, job.dtype)).eps ** 0.5
    mine = [whole(gradient) for gradient in gradients(layers)]
    theirs = [*gradients({index: expected[index] for index in layers})]
    pairs = [*zip(mine, theirs, strict=True), *zip(losses, expected_losses[row] if losses else (), strict=True)]
    return all(bool((found - right).norm() <= tolerance * right.norm()) for found, right in pairs)


def alone(job: TrainingJob, device: torch.device) -> tuple[dict[int, Layer], list[list[Tensor]]]:
    """Return all layers with their gradients after a step on one process, and each row's losses by microbatch."""
    layers = build_layers(job, range(job.model.layers), device)
    model = nn.Sequential(*layers.values())
    rows = [draw_batch(job, row, device).split(job.nmicrobatches) for row in range(job.layout.dp)]
    losses = [[learn(job, model, microbatch) for microbatch in row] for row in rows]
    for gradient in gradients(layers):
        gradient /= job.layout.dp
    return layers, losses


def is_finite(layers: Mapping[int, Layer]) -> bool:
    """Return whether this rank's gradients, or its shares of them, are numbers."""
    return all(
        bool((each.to_local() if isinstance(each, DTensor) else each).isfinite().all()) for each in gradients(layers)
    )


def gradients(layers: Mapping[int, Layer]) -> Iterator[Tensor]:
    """Yield the gradient of each parameter, layer by layer."""
    for index in sorted(layers):
        for parameter in layers[index].parameters():
            assert parameter.grad is not None, "a step has been run"
            yield parameter.grad


def whole(gradient: Tensor) -> Tensor:
    """Return a gradient with the shares of all ranks."""
    return gradient.full_tensor() if isinstance(gradient, DTensor) else gradient

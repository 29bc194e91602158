"""How the time of compute is spent: by matrix products of the model's shapes, by a calibrated wait, or not at all."""

import time
from collections.abc import Callable, Iterable

import torch

from spanfit.workload.program import Compute, ComputeMode, Product, Program

Act = Callable[[], object]


class Computer:
    """Spends the compute of a program.

    Parameters
    ----------
    mode : ComputeMode
    program : Program
        Its largest products say how much memory the factors take; all products share it.
    dtype : torch.dtype
        Of the factors; whole numbers are multiplied as float32.
    device : torch.device
    """

    def __init__(self, mode: ComputeMode, program: Program, dtype: torch.dtype, device: torch.device) -> None:
        self.mode = mode
        if mode is ComputeMode.PRODUCTS:
            dtype = dtype if dtype.is_floating_point else torch.float32
            self.left, self.right, self.result = (
                # Zeros would cost a GPU less power than the numbers of a model.
                torch.empty(size, device=device).uniform_(-1, 1).to(dtype)
                for size in _largest(program)
            )

    def act(self, compute: Compute) -> Act:
        """Return what spends a compute; on GPUs products are only enqueued.

        Raises
        ------
        ValueError
            If it has no time to wait, or no products.
        """
        if self.mode is ComputeMode.NONE:
            return lambda: None
        if self.mode is ComputeMode.WAIT:
            time_s = compute.time_s
            if time_s is None:
                raise ValueError(f"{compute.timer}: found no time, expected one to wait")
            return lambda: time.sleep(time_s)
        if not compute.products:
            raise ValueError(f"{compute.timer}: found no products, expected some to multiply")
        factors = [(self._factors(product), product.count) for product in compute.products]

        def multiply() -> None:
            for (left, right, result), count in factors:
                for _ in range(count):
                    torch.mm(left, right, out=result)

        return multiply

    def _factors(self, product: Product) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        rows, inner, columns = product.rows, product.inner, product.columns
        return (
            self.left[: rows * inner].view(rows, inner),
            self.right[: inner * columns].view(inner, columns),
            self.result[: rows * columns].view(rows, columns),
        )


def _largest(program: Program) -> Iterable[int]:
    """Return the elements of the largest left factor, right factor and result."""
    products = [product for each in program if isinstance(each, Compute) for product in each.products]
    return (
        max((product.rows * product.inner for product in products), default=0),
        max((product.inner * product.columns for product in products), default=0),
        max((product.rows * product.columns for product in products), default=0),
    )

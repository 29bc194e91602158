"""The paper's volume model (Eq. 11-13), with its units settled.

Eq. 12 of arXiv 2509.15940 counts parameters of a stage and Eq. 13 elements with an unexplained factor 2. Here both
are bytes per GPU and step direction: parameters times the bytes of the dtype that is sent, divided by TP; activations
times the bytes of theirs. Only ratios of the two enter affinity matching, so entries and queries must share this unit.
"""

from spanfit.workload.models import Model


def microbatches_per_step(global_batch: int, microbatch: int, dp: int) -> int:
    """Return m = gb / (mb x dp), Eq. 11; ValueError if the batch does not divide."""
    count, rest = divmod(global_batch, microbatch * dp)
    if rest or not count:
        raise ValueError(f"global batch {global_batch} is no multiple of microbatch {microbatch} x dp {dp}")
    return count


def dp_volume_bytes(model: Model, *, pp: int, tp: int, gradient_itemsize: int) -> int:
    """Return the gradient bytes of one GPU that its DP group reduces in a step, for a GPT of the model's widths.

    Notes
    -----
    Eq. 12: h(V + s) + (l / pp)(4h^2 + 2h + 8h^2 + 7h) parameters a stage, here divided by TP and times the itemsize.
    It charges every stage with the embedding and knows neither gated nor expert layers.
    """
    hidden = model.hidden
    embedding = hidden * (model.vocabulary + model.sequence)
    layer = 4 * hidden**2 + 2 * hidden + 8 * hidden**2 + 7 * hidden
    return round((embedding + model.layers / pp * layer) / tp * gradient_itemsize)


def pp_volume_bytes(model: Model, *, microbatch: int, tp: int, activation_itemsize: int, cp: int = 1) -> int:
    """Return the bytes that one GPU sends to the next stage for one microbatch and direction (Eq. 13 without its 2)."""
    return round(microbatch * model.sequence * model.hidden * activation_itemsize / (tp * cp))

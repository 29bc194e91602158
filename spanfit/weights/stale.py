"""Why weights may no longer hold where they are to be used: their time is over, or the GPUs are others."""

import re
from collections.abc import Collection, Iterator
from datetime import UTC, datetime, timedelta

from spanfit.errors import ConfigError
from spanfit.weights.model import WeightEntry, WeightSet

VALID_DAYS = 90
"""How long measured weights hold unless their maker says otherwise."""

ACCEPT = "--accept-stale uses them all the same and records it"


def valid_until(created_at: str, valid_days: int) -> str:
    """Return when weights made at a time (ISO 8601) are over."""
    return (datetime.fromisoformat(created_at) + timedelta(days=valid_days)).isoformat(timespec="seconds")


def same_gpu(a: str, b: str) -> bool:
    """Return whether two names may mean one model: all words of one are in the other.

    Examples
    --------
    >>> same_gpu("NVIDIA H100 80GB HBM3", "h100")
    True
    >>> same_gpu("NVIDIA H100 80GB HBM3", "H800")
    False
    """
    words_a, words_b = (set(re.findall(r"[a-z0-9]+", name.lower())) for name in (a, b))
    return words_a <= words_b or words_b <= words_a


def reasons(
    weights: WeightSet, *, now: datetime, gpu_models: Collection[str] = (), entry: WeightEntry | None = None
) -> tuple[str, ...]:
    """Return why weights are stale, a sentence each; none where they hold.

    Parameters
    ----------
    weights : WeightSet
    now : datetime
        With its time zone.
    gpu_models : collection of str
        Models of the GPUs that they are to be used on, as far as these are known; weights serve them all or none.
    entry : WeightEntry, optional
        The entry to be used, which may be for another model than the fabric's.
    """
    found = []
    if weights.valid_until is not None and now > _time(weights.valid_until):
        found.append(
            f"valid_until: expired on {weights.valid_until}; measure again; spanfit weights check FILE --against RUN "
            "says whether that is needed"
        )
    for key, model in _gpu_models(weights, entry):
        if others := sorted(each for each in gpu_models if not same_gpu(model, each)):
            found.append(
                f"{key}: found {model}, expected {', '.join(others)}, as the nodes have; use weights that were "
                "measured on this kind of fabric, or nodes of one model: gpu_model in the job file"
            )
    return tuple(found)


def _gpu_models(weights: WeightSet, entry: WeightEntry | None) -> Iterator[tuple[str, str]]:
    """Yield which GPU models weights are for, each once, with the key that says so."""
    if weights.fabric is not None:
        yield "fabric.gpu_model", weights.fabric.gpu_model
    if entry is not None and (weights.fabric is None or entry.gpu_model != weights.fabric.gpu_model):
        yield f"entry {entry.job}: gpu_model", entry.gpu_model


def _time(text: str) -> datetime:
    time = datetime.fromisoformat(text)
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def accept(origin: str, found: tuple[str, ...], *, accept_stale: bool) -> tuple[str, ...]:
    """Return the reasons that were accepted, to be recorded; ConfigError names them all unless they may be accepted.

    Parameters
    ----------
    origin : str
        What the message calls the weights, such as their path.
    found : tuple of str
        As ``reasons`` returns them.
    """
    if found and not accept_stale:
        raise ConfigError("\n".join(f"{origin}: {reason}; {ACCEPT}" for reason in found))
    return found

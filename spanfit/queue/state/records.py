"""Values of the queue as JSON text and back: nodes by name, kinds by word, so that a state is readable by others."""

import json
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import StrEnum
from functools import cache
from typing import Any, TypeVar, get_args, get_type_hints

from spanfit.errors import StoreError
from spanfit.queue.model.events import Event
from spanfit.queue.model.nodes import Ground

T = TypeVar("T")

_SETS = frozenset({"nodes"})
"""Fields that hold a NodeSet; its names are written in the order of the ground."""
_ORDERS = frozenset({"order"})
"""Fields that hold node indices in an order that matters."""


def _kind_word(kind: type) -> str:
    """Return the word for a class of event.

    >>> from spanfit.queue.model.events import NodesDown
    >>> _kind_word(NodesDown)
    'nodes-down'
    """
    return "".join(f"-{letter.lower()}" if letter.isupper() else letter for letter in kind.__name__).removeprefix("-")


EVENT_KINDS: Mapping[str, type[Event]] = {_kind_word(kind): kind for kind in get_args(Event)}
"""The class of each word for an event."""


def event_kind(event: Event) -> str:
    """Return the word for an event's class."""
    return _kind_word(type(event))


def render(value: object, ground: Ground, without: tuple[str, ...] = ()) -> str:
    """Return a dataclass of the queue as JSON, less the named fields."""
    return json.dumps(_plain(value, ground, without), ensure_ascii=False, allow_nan=False, sort_keys=True)


def _plain(value: Any, ground: Ground, without: tuple[str, ...] = ()) -> dict[str, object]:
    return {
        field.name: _field(field.name, getattr(value, field.name), ground)
        for field in fields(value)
        if field.name not in without
    }


def _field(name: str, value: Any, ground: Ground) -> object:
    if name in _SETS:
        return ground.members(value)
    if name in _ORDERS:
        return [ground.names[node] for node in value]
    return _plain(value, ground) if is_dataclass(value) else value


def parse(kind: type[T], text: str, ground: Ground, **given: object) -> T:
    """Return a dataclass of the queue from its JSON; fields that were left out of it are given.

    StoreError says what does not fit: a field or a node that is not known here.
    """
    try:
        value: T = _value(kind, json.loads(text), ground, given)
    except (TypeError, KeyError, ValueError) as error:
        raise StoreError(
            f"the queue holds {text[:200]}, expected a {kind.__name__} of this version of spanfit ({error})"
        ) from error
    return value


def _value(kind: Any, document: Mapping[str, Any], ground: Ground, given: Mapping[str, object]) -> Any:
    readers = _readers(kind)
    return kind(**{name: readers[name](value, ground) for name, value in document.items()}, **given)


@cache
def _readers(kind: type) -> dict[str, Callable[[Any, Ground], Any]]:
    return {name: _reader(name, hint) for name, hint in get_type_hints(kind).items()}


def _reader(name: str, hint: Any) -> Callable[[Any, Ground], Any]:
    if name in _SETS:
        return lambda names, ground: ground.node_set(names)
    if name in _ORDERS:
        return lambda names, ground: tuple(ground.index[name] for name in names)
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return lambda word, _: hint(word)
    if is_dataclass(hint):
        return lambda document, ground: _value(hint, document, ground, {})
    if getattr(hint, "__origin__", None) is tuple:
        return lambda listed, _: tuple(listed)
    return lambda value, _: value

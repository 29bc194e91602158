"""JSON as measuring programs write it: with bare ``inf``, cut off by a kill, behind a launcher's talk."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from spanfit.results.importers.log import Printed

_START = re.compile(r"^[ \t]*(?=\{|\[\s*(?:\{|\]|$))", re.MULTILINE)
_WORD = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+|"')
_CONSTANTS = {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN", "-nan": "NaN"}
_CLOSERS = {"{": "}", "[": "]"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One JSON value of a text.

    Attributes
    ----------
    value : object
        Plain data, in which every number with a point, an exponent or no end is a :class:`Printed`.
    is_whole : bool
        False where the text ends inside it; ``value`` then has what was complete by then.
    """

    value: Any
    is_whole: bool


def documents(text: str) -> Iterator[Document]:
    """Yield the JSON objects and lists of a text, each of which begins a line; what is between them is passed over."""
    position = 0
    while match := _START.search(text, position):
        found, position = _read(text, match.end())
        if found is not None:
            yield found


def _read(text: str, start: int) -> tuple[Document | None, int]:
    """Return the document at a position, None where there is none, and the position behind it."""
    try:
        value, end = _DECODER.raw_decode(text, start)
        return Document(value=value, is_whole=True), end
    except json.JSONDecodeError:
        mended, end, is_whole = _mend(text, start)
    try:
        return Document(value=_DECODER.decode(mended), is_whole=is_whole), end
    except json.JSONDecodeError:
        return None, max(end, start + 1)


def _mend(text: str, start: int) -> tuple[str, int, bool]:
    """Return the text of a document with its constants as JSON has them, its end, and whether it had one.

    A document without end is cut behind its last value that is surely complete, and closed.
    """
    kept: list[str] = []
    stack: list[str] = []
    nsafe, closers, end = 0, "", start
    for match in _WORD.finditer(text, start):
        word = match[0]
        if word == '"' or (word in "}]" and (not stack or stack[-1] != word)):
            break
        end = match.end()
        if word == ",":
            nsafe, closers = len(kept), "".join(reversed(stack))
        kept.append(_CONSTANTS.get(word, word))
        if word in _CLOSERS:
            stack.append(_CLOSERS[word])
        elif word in "}]":
            stack.pop()
        if word in "{}[]":
            nsafe, closers = len(kept), "".join(reversed(stack))
        if not stack:
            return "".join(kept), end, True
    return "".join(kept[:nsafe]) + closers, end, False


def _number(text: str) -> Printed:
    return Printed(value=float(text), text=text)


_DECODER = json.JSONDecoder(parse_float=_number, parse_constant=_number, strict=False)


def printed(value: object) -> Printed | None:
    """Return a number of a document as it was printed, also where it is a string such as ``"nan"``, else None."""
    if isinstance(value, Printed):
        return value
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    try:
        return _number(str(value).strip())
    except ValueError:
        return None

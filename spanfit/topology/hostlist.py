"""Hostlists: names with ranges in brackets, such as ``node[01-03,7]``, read and written as Slurm does."""

import math
import re
from collections.abc import Iterable, Iterator
from itertools import product

MAX_NAMES = 262_144
"""Names that one word may stand for, Slurm's limit for a range."""

MAX_LISTED = 1_048_576
"""Names that a whole hostlist may stand for, so that a short text from outside fills no memory."""

_SEPARATORS = ", \t\n"
_WORD = re.compile(r"(?:[^,\s\[\]{}!]|\[[^\[\]]*\])+")
_BRACKET = re.compile(r"\[([^\]]*)\]")
_RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")
_PLAIN = re.compile(r"[^,\s\[\]{}!]+")
_FIRST_LABEL = re.compile(r"(.*?)([0-9]{1,18})([^0-9]*(?:\..*)?)")
_LAST_NUMBER = re.compile(r"(.*?)([0-9]{1,18})([^0-9]*)")
_Parts = tuple[str, str]


def expand_hostlist(text: str) -> tuple[str, ...]:
    """Return the names that a hostlist stands for, in its order, duplicates kept.

    Commas, blanks, tabs and newlines separate words. The digits of a range's low bound set its zero padding, and of
    several brackets in a word the last varies fastest. Text after a bracket is allowed, as in Slurm from 23.11.

    Raises
    ------
    ValueError
        If brackets do not pair, a range is empty, runs backwards or is too long, a word calls a function, or all are
        more than ``MAX_LISTED`` names.

    Examples
    --------
    >>> expand_hostlist("node[9-11,07] login")
    ('node9', 'node10', 'node11', 'node07', 'login')
    """
    names: list[str] = []
    for word in _words(text):
        names += _expand_word(word)
        if len(names) > MAX_LISTED:
            raise ValueError(f"found more than {MAX_LISTED} names; expected a hostlist of fewer")
    return tuple(names)


def _words(text: str) -> Iterator[str]:
    position = 0
    while position < len(text):
        if text[position] in _SEPARATORS:
            position += 1
            continue
        match = _WORD.match(text, position)
        if not match:
            found = text[position : position + 20]
            raise ValueError(f"found {found!r} at position {position}; expected names such as node[01-03,7]")
        yield match[0]
        position = match.end()


def _expand_word(word: str) -> Iterator[str]:
    choices = [
        _numbers(part, word) if index % 2 else (part,)  # split gives text and bracket in turn
        for index, part in enumerate(_BRACKET.split(word))
    ]
    _check_count(math.prod(map(len, choices)), word)
    return map("".join, product(*choices))


def _numbers(bracket: str, word: str) -> list[str]:
    numbers: list[str] = []
    for part in bracket.split(","):
        match = _RANGE.fullmatch(part)
        if not match:
            raise ValueError(f"found {part!r} in {_short(word)}; expected a number or low-high, up to 18 digits each")
        low, high = int(match[1]), int(match[2] or match[1])
        if high < low:
            raise ValueError(f"found {part!r} in {_short(word)}, which runs backwards; expected low-high")
        _check_count(len(numbers) + high - low + 1, word)
        numbers += [str(number).zfill(len(match[1])) for number in range(low, high + 1)]
    return numbers


def _check_count(count: int, word: str) -> None:
    if count > MAX_NAMES:
        raise ValueError(f"{_short(word)} stands for {count} names; expected at most {MAX_NAMES}")


def _short(word: str) -> str:
    return repr(word if len(word) <= 60 else word[:57] + "...")


def is_plain_name(name: str) -> bool:
    """Return whether a name can stand in a hostlist: no blank, comma, bracket, brace or ``!``."""
    return bool(_PLAIN.fullmatch(name))


def fold_hostlist(names: Iterable[str]) -> str:
    """Return a short hostlist of the names that keeps their order and duplicates.

    Neighbours that differ in one number are folded: the last of the name, or of its first label (``n1.rack2``).

    Raises
    ------
    ValueError
        If a name is empty or holds a blank, comma, bracket, brace or ``!``, which no hostlist can carry.

    Examples
    --------
    >>> fold_hostlist(["n08", "n09", "n10", "n3", "n3", "login"])
    'n[08-10,3,3],login'
    """
    words: list[str] = []
    parts: _Parts | None = None
    runs: list[tuple[str, int]] = []  # low bound as written, and the length of the run
    for name in names:
        found, digits = _split(name)
        if found is None or found != parts:
            words += _folded(parts, runs)
            parts, runs = found, []
        if found is None:
            words.append(name)
        elif runs and _next(*runs[-1]) == digits:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((digits, 1))
    return ",".join(words + _folded(parts, runs))


def _split(name: str) -> tuple[_Parts | None, str]:
    if not is_plain_name(name):
        raise ValueError(f"{name!r} cannot stand in a hostlist; expected no blank, comma, bracket, brace or '!'")
    match = (_FIRST_LABEL if name[0].isalpha() else _LAST_NUMBER).fullmatch(name)
    return ((match[1], match[3]), match[2]) if match else (None, "")


def _next(low: str, length: int) -> str:
    return str(int(low) + length).zfill(len(low))


def _folded(parts: _Parts | None, runs: list[tuple[str, int]]) -> list[str]:
    if parts is None:
        return []
    inner = ",".join(low if length == 1 else f"{low}-{_next(low, length - 1)}" for low, length in runs)
    return [f"{parts[0]}{inner}{parts[1]}" if inner.isdigit() else f"{parts[0]}[{inner}]{parts[1]}"]

"""Logs as they reach people, line by line: without byte order mark, colours, carriage returns and launchers' labels."""

import re
import sys
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")
_POD = r"\[pod/[^\]\s]+\] "
_TIMESTAMP = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d) "
_RANK = r"\[[^\[\]\s]+@\d+,\d+\]<std\w+>: ?|\[\d+,\d+\]<std\w+>:|\[\d+\] | *\d+:(?: |$)"
_LINE = re.compile(f"({_POD})?(?:{_TIMESTAMP})?({_RANK})?(.*)\\n?", re.MULTILINE)
_AT_ONCE = 1 << 18
_STREAM = re.compile("<std[a-z]+>")
_BANNER = re.compile(r"(?<=.)(?=# (?:nccl-tests version |Collective test starting: |nThread \d))")


class Line(NamedTuple):
    """A line without its label.

    Attributes
    ----------
    label : str
        What a launcher put in front, without the time; "" where nothing was.
    is_cut : bool
        No newline followed: the file ends here, or the next program's output begins in the middle of the line.
    """

    number: int
    label: str
    text: str
    is_cut: bool = False

    @property
    def speaker(self) -> str:
        """The label without the name of the stream and without padding: one process."""
        return _speaker(self.label)


@lru_cache(maxsize=4096)
def _speaker(label: str) -> str:
    return _STREAM.sub("", label).strip()


def lines(text: str) -> tuple[Line, ...]:
    """Return the lines of a log.

    Notes
    -----
    Labels known: Open MPI's and PRRTE's (``[1,0]<stdout>:``), ``srun -l`` (``0: ``), Hydra's (``[0] ``) and
    ``kubectl logs --prefix --timestamps``, the last also in front of another.
    """
    text = _plain(text)
    found: list[Line] = []
    for number, (pod, rank, whole) in enumerate(_labelled(text)):
        label = sys.intern(pod + rank)
        if whole.find("# ", 1) > 0:
            *cut, whole = _BANNER.split(whole)
            found += [Line(number, label, part, True) for part in cut]
        found.append(Line(number, label, whole))
    if found and not text.endswith("\n"):
        last = found.pop()
        found += [last._replace(is_cut=True)] if last.text else []
    return tuple(found)


def _labelled(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield the labels and the rest of each line, found some thousand lines at a time to take little memory."""
    start = 0
    while start < len(text):
        end = text.find("\n", start + _AT_ONCE) + 1 or len(text)
        yield from _LINE.findall(text, start, end)[:-1]
        start = end


def _plain(text: str) -> str:
    text = text.removeprefix("\ufeff")
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    if "\r" in text:
        text = re.sub(r"\r+\n", "\n", text).replace("\r", "\n")
    return text

"""Where each rank is, told by one small write a phase, so that a watcher sees who is behind: edge, writes files.

Standard library only; a beat is a single ``pwrite`` of 24 bytes, and none falls between two readings of the clock.
"""

import contextlib
import os
import struct
import time
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

_RECORD = struct.Struct("<qqd")
_PREFIX = "rank-"


class Phase(StrEnum):
    """What a rank does for a case, in the order in which it does it."""

    START = "start"
    PREPARE = "prepare"
    CHECK = "check"
    WARMUP = "warmup"
    TIMED = "timed"
    GATHER = "gather"
    IDLE = "idle"


_ORDER = {phase: index for index, phase in enumerate(Phase)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """The last thing that a rank said.

    Attributes
    ----------
    position : int
        The visit in hand; -1 before the first.
    phase : Phase
    time_s : float
        When it said so, seconds since the epoch by the rank's own clock.
    """

    position: int
    phase: Phase
    time_s: float

    @property
    def place(self) -> tuple[int, int]:
        """Return how far the rank is; the greater, the further."""
        return self.position, _ORDER[self.phase]


class Heartbeat:
    """Writes the beats of one rank to ``folder/rank-N``."""

    def __init__(self, folder: Path, rank: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file = os.open(folder / f"{_PREFIX}{rank}", os.O_WRONLY | os.O_CREAT, 0o644)

    def beat(self, position: int, phase: str) -> None:
        """Say which visit this rank is at and what it does there."""
        os.pwrite(self._file, _RECORD.pack(position, _ORDER[Phase(phase)], time.time()), 0)


def read_heartbeats(folder: Path) -> dict[int, Beat]:
    """Return the last beat of every rank that has said anything yet, by rank."""
    beats = {}
    for path in folder.glob(f"{_PREFIX}*"):
        with contextlib.suppress(FileNotFoundError):
            record = path.read_bytes()
            if len(record) == _RECORD.size:
                position, phase, time_s = _RECORD.unpack(record)
                beats[int(path.name.removeprefix(_PREFIX))] = Beat(
                    position=position, phase=tuple(Phase)[phase], time_s=time_s
                )
    return dict(sorted(beats.items()))

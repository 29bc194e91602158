"""How far a launch is, read from what its ranks write while it runs: edge, reads files."""

import contextlib
import time
from dataclasses import dataclass
from pathlib import Path

from spanfit.bench.heartbeat import read_heartbeats
from spanfit.profiler.watchdog import Watchdog

_LOOK_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a campaign is.

    Attributes
    ----------
    launch, launches : int
        The launch that runs, counted from 0, of how many at most.
    done, total : int
        Cases finished over all launches, of how many; where the campaign stops by itself, of about how many.
    case : str
        The case in hand, in words.
    open_cases : int
        Cases that this launch measures.
    left_s : float or None
        Seconds until the campaign's time limit, None where it has none.
    """

    launch: int
    launches: int
    done: int
    total: int
    case: str
    open_cases: int
    left_s: float | None = None


class Watch:
    """Looks at the heartbeats of a world, at most once a second."""

    def __init__(self, beats: Path, limit_s: float) -> None:
        self.beats = beats
        self.looked_s = time.monotonic()
        self.watchdog = Watchdog(limit_s, self.looked_s)

    def is_stuck(self, ncases: int) -> bool:
        """Return whether a phase outlasts its limit, after ``ncases`` cases; False between two looks."""
        now_s = time.monotonic()
        if now_s - self.looked_s < _LOOK_S:
            return False
        self.looked_s = now_s
        return self.watchdog.is_stuck(read_heartbeats(self.beats), ncases, now_s)


class Tail:
    """Counts the cases that were appended to a shard since this was made, reading each byte once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.offset = path.stat().st_size if path.exists() else 0
        self.count = 0

    def count_cases(self) -> int:
        """Return how many cases have been appended."""
        with contextlib.suppress(FileNotFoundError), self.path.open("rb") as file:
            file.seek(self.offset)
            fresh = file.read()
            whole = fresh[: fresh.rfind(b"\n") + 1]
            self.offset += len(whole)
            self.count += whole.count(b'"type": "case"')
        return self.count

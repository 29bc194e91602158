"""The seconds that a campaign has run, counted over all the commands that ran it: edge, reads the clock and a file."""

import json
import math
import time
from pathlib import Path

from spanfit import files

_SAVE_EVERY_S = 1.0


class RunClock:
    """Counts while a campaign runs, and remembers when each launch began, so that plans that depend on it stay.

    Parameters
    ----------
    path : Path
        Where the count is kept; written at most once a second.
    limit_s : float or None
        The seconds that the campaign may run.
    """

    def __init__(self, path: Path, limit_s: float | None) -> None:
        self.path = path
        self.limit_s = math.inf if limit_s is None else limit_s
        document = json.loads(files.read_text(path)) if path.exists() else {}
        self.spent_s: float = document.get("spent_s", 0.0)
        self._begun_s: dict[str, float] = document.get("begun_s", {})
        self._read_s = self._saved_s = time.monotonic()

    @property
    def is_over(self) -> bool:
        """Whether the campaign has had its time."""
        return self.spent_s >= self.limit_s

    @property
    def left_s(self) -> float | None:
        """The seconds left, None where there is no limit."""
        return None if math.isinf(self.limit_s) else max(0.0, self.limit_s - self.spent_s)

    def begun_s(self, launch: int) -> float:
        """Return the count when a launch began, the present one where it has not."""
        return self._begun_s.get(str(launch), self.spent_s)

    def start(self) -> None:
        """Count from now on."""
        self._read_s = time.monotonic()

    def begin(self, launch: int) -> None:
        """Note that a launch begins, unless it has before."""
        self._begun_s.setdefault(str(launch), self.spent_s)
        self._save()

    def tick(self) -> None:
        """Count up to now."""
        now_s = time.monotonic()
        self.spent_s += now_s - self._read_s
        self._read_s = now_s
        if now_s - self._saved_s > _SAVE_EVERY_S:
            self._save()

    def _save(self) -> None:
        files.write_json(self.path, {"spent_s": self.spent_s, "begun_s": self._begun_s})
        self._saved_s = time.monotonic()

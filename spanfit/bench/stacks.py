"""What a rank was doing when a phase outlasted its limit, written by itself: edge, writes files.

Standard library only. A thread of the interpreter's own waits for the limit and writes without asking the interpreter,
so that it also tells of a rank that hangs in a library. Nobody need reach the rank, as a signal would have to.
"""

import faulthandler
import signal
from pathlib import Path


class Stacks:
    """Writes the Python stacks of all threads of this rank to ``folder/stacks-N.txt``, also whenever SIGUSR1 comes.

    Parameters
    ----------
    folder : Path
    rank : int
    after_s : float
        How long a phase may take before they are written [s]; 0: only SIGUSR1 asks.
    """

    def __init__(self, folder: Path, rank: int, after_s: float) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.after_s = after_s
        self._file = (folder / f"stacks-{rank}.txt").open("wb", buffering=0)
        faulthandler.register(signal.SIGUSR1, file=self._file, all_threads=True)

    def watch(self) -> None:
        """Watch a phase that begins now instead of the one before, whose stacks no longer matter."""
        if self.after_s:
            faulthandler.dump_traceback_later(self.after_s, file=self._file)
        if self._file.tell():
            self._file.seek(0)
            self._file.truncate()

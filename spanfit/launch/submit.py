"""Sending jobs to Slurm and asking after them: edge, runs sbatch and squeue."""

import shutil
import subprocess
from collections.abc import Sequence

from spanfit.errors import LaunchError, TimedOutError
from spanfit.launch.batch import SQUEUE_FORMAT, QueuedJob, parse_squeue

_LIMIT_S = 60.0


def send(script: str) -> str:
    """Return the id of the job that sbatch made of a script."""
    return _output(["sbatch", "--parsable"], script).strip().partition(";")[0]


def find_queued(name: str) -> QueuedJob | None:
    """Return the caller's job of a name that waits or runs; None where there is none.

    A job is found by its name, so nothing is lost when the shell that sent it dies.
    """
    jobs = parse_squeue(_output(["squeue", "--me", "--noheader", f"--name={name}", f"--format={SQUEUE_FORMAT}"], ""))
    return jobs[0] if jobs else None


def _output(argv: Sequence[str], text: str) -> str:
    program = shutil.which(argv[0])
    if program is None:
        raise LaunchError(f"the program {argv[0]} is missing; run this on a machine that is a client of the cluster")
    try:
        done = subprocess.run(
            [program, *argv[1:]], input=text, capture_output=True, text=True, check=False, timeout=_LIMIT_S
        )
    except subprocess.TimeoutExpired:
        raise TimedOutError(f"{argv[0]} gave no answer within {_LIMIT_S:.0f} s; is the controller up?") from None
    if done.returncode:
        raise LaunchError(f"{argv[0]} ended with exit code {done.returncode}: {done.stderr.strip() or 'no message'}")
    return done.stdout

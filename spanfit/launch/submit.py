"""Sending jobs to Slurm and asking after them: edge, runs sbatch and squeue."""

from spanfit.errors import LaunchError
from spanfit.launch.batch import SQUEUE_FORMAT, QueuedJob, parse_squeue
from spanfit.topology.probe_slurm import run_slurm


def send(script: str) -> str:
    """Return the id of the job that sbatch made of a script."""
    return _output(("sbatch", "--parsable"), script).strip().partition(";")[0]


def find_queued(name: str) -> QueuedJob | None:
    """Return the caller's job of a name that waits or runs; None where there is none.

    A job is found by its name, so nothing is lost when the shell that sent it dies.
    """
    jobs = parse_squeue(_output(("squeue", "--me", "--noheader", f"--name={name}", f"--format={SQUEUE_FORMAT}")))
    return jobs[0] if jobs else None


def _output(argv: tuple[str, ...], text: str = "") -> str:
    answer = run_slurm(argv, text=text)
    if answer.code:
        raise LaunchError(f"{' '.join(argv)}: {answer.complaint}")
    return answer.out

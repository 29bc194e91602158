"""Sending a job to Slurm or Kubernetes and asking after it: edge, runs sbatch, squeue and kubectl.

A job is found by its name, so nothing is lost when the shell that sent it dies.
"""

import subprocess
from typing import Protocol

from spanfit.errors import LaunchError, TimedOutError
from spanfit.launch.queued import SQUEUE_FORMAT, QueuedJob, parse_job_of_kubernetes, parse_squeue
from spanfit.topology.probe_slurm import run_slurm

_LIMIT_S = 60.0


class Sender(Protocol):
    """Where a job of one name is sent to."""

    def find(self) -> QueuedJob | None:
        """Return the caller's job while it waits or runs; None where there is none."""
        ...

    def send(self, text: str) -> str:
        """Send the job and return its id."""
        ...


class SlurmSender:
    """Slurm, by squeue and sbatch.

    Parameters
    ----------
    name : str
        The job's.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def find(self) -> QueuedJob | None:
        """Return the caller's job while it waits or runs; None where there is none."""
        jobs = parse_squeue(
            _slurm(("squeue", "--me", "--noheader", f"--name={self.name}", f"--format={SQUEUE_FORMAT}"))
        )
        return jobs[0] if jobs else None

    def send(self, text: str) -> str:
        """Send an sbatch script and return the job's id."""
        return _slurm(("sbatch", "--parsable"), text).strip().partition(";")[0]


class KubernetesSender:
    """Kubernetes, by kubectl.

    Parameters
    ----------
    name : str
        The job's; one of that name that has ended makes room for the next.
    namespace : str
    """

    def __init__(self, name: str, namespace: str) -> None:
        self.name = name
        self.base = ("kubectl", f"--namespace={namespace}")

    def find(self) -> QueuedJob | None:
        """Return the job while it waits or runs; None where there is none."""
        job = self._look()
        return None if job is None or job.has_ended else job

    def send(self, text: str) -> str:
        """Create the job of a manifest and return its name."""
        if self._look() is not None:
            _kubectl((*self.base, "delete", "job.batch", self.name, "--wait", "--cascade=foreground"))
        _kubectl((*self.base, "create", "--filename=-"), text)
        return self.name

    def _look(self) -> QueuedJob | None:
        text = _kubectl((*self.base, "get", "job.batch", self.name, "--ignore-not-found", "--output=json"))
        try:
            return parse_job_of_kubernetes(text)
        except ValueError as error:
            raise LaunchError(str(error)) from None


def _slurm(argv: tuple[str, ...], text: str = "") -> str:
    answer = run_slurm(argv, text=text)
    if answer.code:
        raise LaunchError(f"{' '.join(argv)}: {answer.complaint}")
    return answer.out


def _kubectl(argv: tuple[str, ...], text: str = "") -> str:
    try:
        done = subprocess.run(argv, input=text, capture_output=True, text=True, check=False, timeout=_LIMIT_S)
    except FileNotFoundError:
        raise LaunchError("kubectl is not on PATH; run this on a machine that is a client of the cluster") from None
    except subprocess.TimeoutExpired:
        raise TimedOutError(
            f"{' '.join(argv)}: no answer within {_LIMIT_S:.0f} s; does kubectl version answer?"
        ) from None
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["no message"]
        raise LaunchError(f"{' '.join(argv)}: exit code {done.returncode}: {said[0]}")
    return done.stdout

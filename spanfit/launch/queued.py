"""Jobs that wait or run, in the words of the system that has them: texts of squeue and of kubectl."""

import json
from dataclasses import dataclass

SQUEUE_FORMAT = "%i|%T|%r|%S"
"""What :func:`parse_squeue` reads: id, state, reason, start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedJob:
    """A job that somebody has sent.

    Attributes
    ----------
    job_id : str
    state : str
        In the system's words, in lower case.
    has_ended : bool
    reason : str
        Why it waits, "" where it does not.
    start : str
        When it starts or started, "" where that is not known.
    """

    job_id: str
    state: str
    has_ended: bool = False
    reason: str = ""
    start: str = ""

    def words(self) -> str:
        """Return the job in one line."""
        why = f" ({self.reason})" if self.reason else ""
        verb = "expected to start" if self.state == "pending" else "started"
        return f"job {self.job_id} is {self.state}{why}" + (f", {verb} {self.start}" if self.start else "")


def parse_squeue(text: str) -> tuple[QueuedJob, ...]:
    """Return the jobs of ``squeue --noheader --format=SQUEUE_FORMAT``.

    >>> parse_squeue("7|PENDING|Resources|2026-12-01T10:00:00")[0].words()
    'job 7 is pending (Resources), expected to start 2026-12-01T10:00:00'
    """
    rows = [line.strip().split("|") for line in text.splitlines()]
    return tuple(
        QueuedJob(
            job_id=row[0],
            state=row[1].lower(),
            reason="" if row[2] == "None" else row[2],
            start="" if row[3] == "N/A" else row[3],
        )
        for row in rows
        if len(row) == len(SQUEUE_FORMAT.split("|"))
    )


def parse_job_of_kubernetes(text: str) -> QueuedJob | None:
    """Return the job of ``kubectl get job NAME --ignore-not-found --output=json``; None where there is none.

    Raises
    ------
    ValueError
        If the text is no such job.
    """
    if not text.strip():
        return None
    try:
        document = json.loads(text)
        name, status = document["metadata"]["name"], document.get("status", {})
        conditions = {each["type"]: each for each in status.get("conditions", []) if each["status"] == "True"}
        ended = next((kind for kind in ("Complete", "Failed") if kind in conditions), "")
        state = ended.lower() or ("running" if status.get("ready") else "pending")
        reason = conditions[ended].get("reason", "") if ended == "Failed" else ""
        start = status.get("startTime", "")
    except (json.JSONDecodeError, AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"kubectl printed no job: {error!r}") from None
    return QueuedJob(job_id=name, state=state, has_ended=bool(ended), reason=reason, start=start)

"""``sacct --parsable2`` of Slurm, and the same text written from jobs.

Made by ``sacct --allusers --parsable2 --duplicates --format=FIELDS`` with the fields of ``FIELDS`` in any order,
JobName last if at all, since a name may hold the delimiter. Times are the cluster's own clock, taken as UTC, or Unix
seconds where ``SLURM_TIME_FORMAT=%s`` was set, which no change to summer time disturbs.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from spanfit.errors import ConfigError
from spanfit.queue.traces.reading import CellError, Collector, JobState, Trace, TraceJob, require_columns

FIELDS = (
    *("JobID", "User", "Account", "Partition", "State", "Submit", "Start", "End", "Timelimit", "NNodes", "ReqCPUS"),
    *("ReqTRES", "AllocTRES", "JobName"),
)
REQUIRED = ("JobID", "User", "State", "Submit", "Start", "End", "NNodes")

_STATES = {
    "COMPLETED": JobState.COMPLETED,
    "FAILED": JobState.FAILED,
    "OUT_OF_MEMORY": JobState.FAILED,
    "BOOT_FAIL": JobState.NODE_FAILED,
    "NODE_FAIL": JobState.NODE_FAILED,
    "TIMEOUT": JobState.TIMED_OUT,
    "DEADLINE": JobState.TIMED_OUT,
    "CANCELLED": JobState.CANCELLED,
    "REVOKED": JobState.CANCELLED,
    "PREEMPTED": JobState.PREEMPTED,
    "REQUEUED": JobState.PREEMPTED,
}
_OPEN = frozenset(
    {"PENDING", "RUNNING", "SUSPENDED", "CONFIGURING", "COMPLETING", "RESIZING", "STOPPED", "REQUEUE_HOLD", "STAGE_OUT"}
)
_NO_TIME = frozenset({"", "Unknown", "None", "N/A"})
_NO_LIMIT = frozenset({"", "UNLIMITED", "Partition_Limit", "INVALID"})
_DURATION = re.compile(r"(?:(\d{1,9})-)?(?:(\d{1,9}):)?(\d{1,9}):(\d{1,9})(?:\.\d+)?")
_COUNT = re.compile(r"(\d{1,18}(?:\.\d+)?)([KMGTP]?)")
_DRIVES = ("gres/drive", "gres/nvme", "gres/ssd")
"""What sites call local drives that jobs ask for; Slurm itself names none."""
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}
_WORDS = {
    JobState.COMPLETED: "COMPLETED",
    JobState.FAILED: "FAILED",
    JobState.TIMED_OUT: "TIMEOUT",
    JobState.CANCELLED: "CANCELLED by 0",
    JobState.PREEMPTED: "PREEMPTED",
    JobState.NODE_FAILED: "NODE_FAIL",
}


def parse_sacct(text: str, origin: str) -> Trace:
    """Return the ended jobs of a ``sacct --parsable2`` text; ConfigError tells every wrong line at once.

    Each element of a job array and each part of a heterogeneous job is a job. GPUs and memory come from ReqTRES, from
    AllocTRES where the request names none.
    """
    lines = text.splitlines()
    heading = lines[0].split("|") if lines else []
    cure = f"expected the output of: sacct --parsable2 --format={','.join(FIELDS)}"
    require_columns(heading, REQUIRED, origin, cure)
    if "JobName" in heading[:-1]:
        raise ConfigError(f"{origin}: line 1: found JobName before other columns; put it last, names may hold '|'")
    collector = Collector(origin=origin, kind="sacct")
    collector.remarks += _absent(heading)
    for number, line in enumerate(lines[1:], start=2):
        if line.strip():
            _take(line, heading, f"line {number}", collector)
    return collector.trace()


def _absent(heading: Sequence[str]) -> list[str]:
    remarks = []
    if "ReqTRES" not in heading and "AllocTRES" not in heading:
        remarks.append("no column ReqTRES or AllocTRES: GPUs are taken as 0 and memory as unknown")
    told = {"Account": "departments", "Partition": "partitions", "JobName": "names", "Timelimit": "time limits"}
    remarks += [f"no column {column}: {what} are unknown" for column, what in told.items() if column not in heading]
    return remarks


def _take(line: str, heading: Sequence[str], place: str, collector: Collector) -> None:
    has_name = heading[-1] == "JobName"
    cells = line.split("|", len(heading) - 1) if has_name else line.split("|")
    if len(cells) != len(heading):
        collector.mistake(place, f"found {len(cells)} cells, expected {len(heading)} as in the heading")
        return
    row = dict(zip(heading, cells, strict=True))
    if "." in row["JobID"]:
        collector.drop("steps of jobs")
        return
    collector.take(place, lambda: _job(row))


def _job(row: Mapping[str, str]) -> TraceJob | str:
    """Return the job of a row, or why it is left out."""
    word = row["State"].partition(" ")[0]
    state = _STATES.get(word)
    submit_s, start_s, end_s = (_time(column, row[column]) for column in ("Submit", "Start", "End"))
    if word in _OPEN:
        return "jobs that had not ended"
    if state is None:
        raise CellError(f"State: found {row['State'][:40]!r}, expected a state that sacct(1) names")
    if start_s is None:
        return "jobs that never started"
    if submit_s is None or end_s is None:
        raise CellError(f"{'Submit' if submit_s is None else 'End'}: found no time, but the job is {word}")
    requested, allocated = (_tres(column, row.get(column, "")) for column in ("ReqTRES", "AllocTRES"))
    cpus = row.get("ReqCPUS") or row.get("NCPUS") or row.get("AllocCPUS") or ""
    return TraceJob(
        job_id=row["JobID"],
        submit_s=submit_s,
        start_s=start_s,
        end_s=end_s,
        state=state,
        nnodes=int(_count("NNodes", row["NNodes"])),
        ngpus=int(_gpus(requested) or _gpus(allocated)),
        ncpus=int(_count("ReqCPUS", cpus) if cpus else requested.get("cpu", allocated.get("cpu", 0.0))),
        ndrives=int(sum(requested.get(name, allocated.get(name, 0.0)) for name in _DRIVES)),
        memory_bytes=requested.get("mem", allocated.get("mem")),
        user=row["User"],
        department=row.get("Account", ""),
        partition=row.get("Partition", ""),
        name=row.get("JobName", ""),
        time_limit_s=_limit(row.get("Timelimit", "")),
    )


def _time(column: str, text: str) -> float | None:
    if text in _NO_TIME:
        return None
    if text.isdecimal() and len(text) <= 12:
        return float(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise CellError(f"{column}: found {text[:40]!r}, expected a time as 2026-01-31T12:00:00, or Unknown") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _limit(text: str) -> float | None:
    if text in _NO_LIMIT:
        return None
    found = _DURATION.fullmatch(text)
    if found is None:
        raise CellError(f"Timelimit: found {text[:40]!r}, expected [days-]hours:minutes:seconds or UNLIMITED")
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def _count(column: str, text: str) -> float:
    """Return a number that sacct may have shortened with a unit, a power of 1024."""
    found = _COUNT.fullmatch(text)
    if found is None:
        raise CellError(f"{column}: found {text[:40]!r}, expected a number, such as 16 or 1.50K")
    return float(found[1]) * 1024.0 ** _POWERS[found[2]]


def _tres(column: str, text: str) -> dict[str, float]:
    """Return the amounts of ``cpu=8,mem=64G,gres/gpu:a100=2``; those that are no numbers are left out."""
    amounts = {}
    for part in filter(None, text.split(",")):
        name, sign, amount = part.partition("=")
        if not sign:
            raise CellError(f"{column}: found {part[:40]!r}, expected name=amount")
        if name in ("cpu", "mem", *_DRIVES) or name.startswith("gres/gpu"):
            # Memory without a unit is in MiB (slurm.conf(5), TRES).
            unit = 2**20 if name == "mem" and amount.isdecimal() else 1
            amounts[name] = _count(column, amount) * unit
    return amounts


def _gpus(amounts: Mapping[str, float]) -> float:
    """Return the GPUs of all models: the total where it is named, else the sum of the models."""
    models = sum(amount for name, amount in amounts.items() if name.startswith("gres/gpu:"))
    return amounts.get("gres/gpu", models)


def render_sacct(jobs: Sequence[TraceJob]) -> str:
    """Return jobs as ``sacct --parsable2`` with Unix seconds prints them; what a reader reads back.

    Raises
    ------
    ValueError
        If a text holds what the format cannot carry: a line break, or '|' elsewhere than in a name.
    """
    return "\n".join(["|".join(FIELDS), *(_row(job) for job in jobs)]) + "\n"


def _row(job: TraceJob) -> str:
    texts = (job.job_id, job.user, job.department, job.partition)
    if any(len(text.splitlines()) > 1 or "\n" in text for text in (*texts, job.name)) or any("|" in t for t in texts):
        raise ValueError(f"job {job.job_id!r}: a text holds '|' or a line break, which sacct's format cannot carry")
    tres = [f"cpu={job.ncpus}", f"node={job.nnodes}"]
    tres += [f"mem={job.memory_bytes / 2**20:.0f}M"] if job.memory_bytes is not None else []
    tres += [f"gres/gpu={job.ngpus}"] if job.ngpus else []
    tres += [f"gres/drive={job.ndrives}"] if job.ndrives else []
    limit = "UNLIMITED" if job.time_limit_s is None else _clock(int(job.time_limit_s))
    times = (f"{moment:.0f}" for moment in (job.submit_s, job.start_s, job.end_s))
    cells = (*texts, _WORDS[job.state], *times, limit, str(job.nnodes), str(job.ncpus), ",".join(tres), "", job.name)
    return "|".join(cells)


def _clock(time_s: int) -> str:
    days, rest = divmod(time_s, 24 * 3600)
    hours, rest = divmod(rest, 3600)
    return f"{days}-{hours:02d}:{rest // 60:02d}:{rest % 60:02d}"

"""The report of one run, read line by line: its header, its devices, its table and its footer."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from spanfit.results.importers import versions
from spanfit.results.importers.judging import Failure, exit_code_of, failure_of, judge
from spanfit.results.importers.log import Device, ErrorClass, LogRun, LogStatus, Row
from spanfit.results.importers.tables import Cells, Layout, RowReader, read_layout, read_row
from spanfit.results.importers.unlabel import Line

_PARAMETER = re.compile(r"(nThread|nGpus|[a-z]+ iters|[A-Za-z]+):? ([\w().+-]+)")
_NUMBER = r"([-+]?(?:\d+(?:\.\d*)?(?:e[-+]?\d+)?|inf|nan))"
_DEVICE = (
    r"Rank\s+(?P<rank>\d{1,9})(?:\s+Group\s+(?P<group>\d{1,9}))?(?:\s+Pid\s+(?P<pid>\d{1,9}))?\s+on\s+(?P<host>\S+)"
    r"\s+device\s+(?P<device>\d{1,9})\s+\[(?P<bus_id>[^\]]+)\](?P<name>.*)"
)
_VERSION = (
    r"nccl-tests version (\d\S*)(?: \((?P<hash>\w+)\))?(?: nccl-headers=\d+)?(?: nccl-library=(?P<library>\d{1,9}))?"
)
_LOST_WITH_ITS_END = ("Rank", "size", "bytes")
"""Lines that mean something else without their last word."""


@dataclass(slots=True)
class Report:
    """A run as far as its lines were read."""

    is_interleaved: bool = False
    program: str = ""
    version: str = ""
    nccl_library: int | None = None
    parameters: dict[str, str] = field(default_factory=dict)
    devices: list[Device] = field(default_factory=list)
    title: str = ""
    tables: list[RowReader] = field(default_factory=list)
    cycle_marks: list[tuple[int, int]] = field(default_factory=list)
    out_of_bounds: int | None = None
    avg_busbw: float | None = None
    is_concluded: bool = False
    memory_usage: dict[str, str] = field(default_factory=dict)
    prefix: str | None = None
    failures: list[Failure] = field(default_factory=list)
    exit_code: int | None = None
    foreign: dict[str, None] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    spans: list[versions.Span] = field(default_factory=list)

    @property
    def is_one(self) -> bool:
        """Whether anything said that there was a run."""
        seen = (self.program, self.version, self.parameters, self.devices, self.tables, self.failures)
        return any(seen) or self.out_of_bounds is not None

    def take(self, line: Line) -> None:
        """Read a line: cells of the table, a line of the report, or something that others print."""
        text = line.text
        if self.tables:
            rest = self.tables[-1].take(text, line.label, is_cut=line.is_cut)
            if rest is not None:
                self._has_label(line)
                text = rest
        if text.strip(" \t#"):
            if self._take_known(_without_cut_word(text) if line.is_cut else text):
                self._has_label(line)
            else:
                self._take_other(text.strip())

    def _has_label(self, line: Line) -> None:
        if self.prefix is None:
            self.prefix = line.label

    def _take_known(self, text: str) -> bool:
        word = text.lstrip(" \t#").partition(" ")[0]
        if word in ("size", "bytes"):
            return self._take_columns(text)
        for pattern, read in _READERS.get(word, ()):
            found = pattern.match(text)
            if found:
                read(self, found)
                return True
        return False

    def _take_columns(self, text: str) -> bool:
        layout = read_layout(text, self.title)
        if layout:
            self.tables.append(RowReader(layout))
            self.spans += _spans_of(layout)
            self.warnings += [f"column {name} is not known and was not read" for name in layout.unknown]
        return layout is not None

    def _take_other(self, text: str) -> None:
        """Keep a line of somebody else, and what it tells of the run's end."""
        self.foreign.setdefault(text)
        failure = failure_of(text)
        if failure:
            self.failures.append(failure)
        if self.exit_code is None:
            self.exit_code = exit_code_of(text)

    def finished(self) -> LogRun:
        """Return the run with its verdict."""
        for table in self.tables:
            table.finish()
        is_whole = self.out_of_bounds is not None and (self.avg_busbw is not None or self.is_concluded)
        nranks = _nranks(self.devices, self.parameters)
        run = LogRun(
            status=LogStatus.OK,
            exit_code=self.exit_code,
            program=self.program,
            version=self.version or versions.layout_version(self._all_spans()),
            nccl_library=self.nccl_library,
            nranks=nranks,
            ranks_per_group=_ranks_per_group(self.devices, nranks),
            devices=tuple(self.devices),
            rows=_rows(self.tables, self.cycle_marks, self.parameters),
            partial_rows=tuple(read_row(table.layout, row) for table in self.tables for row in table.partial_rows),
            avg_busbw=self.avg_busbw,
            out_of_bounds=self.out_of_bounds,
            validation=_number(self.parameters, "validation"),
            wrong_column=self.tables[-1].layout.wrong_column if self.tables else "",
            parameters=self.parameters,
            memory_usage=self.memory_usage,
            prefix=self.prefix or "",
            is_interleaved=self.is_interleaved,
            warnings=(*self.warnings, *_missing_ranks(self.devices, nranks)),
        )
        judged = judge(run, self.failures, ended=LogStatus.OK if is_whole else LogStatus.TRUNCATED)
        foreign = tuple(text for text in self.foreign if text != judged.error)
        hints = [text for text in foreign if " NCCL WARN " in text] if judged.status is not LogStatus.OK else []
        return replace(
            judged, foreign=foreign, warnings=(*judged.warnings, *(f"perhaps the cause: {hint}" for hint in hints[:1]))
        )

    def _all_spans(self) -> Iterable[versions.Span]:
        yield from self.spans
        if self.parameters.get("nThread"):
            yield versions.NAMED if self.program else versions.NAMELESS


def _without_cut_word(text: str) -> str:
    """Return a line that was cut with its last word, which may lack its end, made unreadable; a verdict is whole."""
    if text.lstrip(" \t#").startswith(_LOST_WITH_ITS_END):
        return ""
    is_whole = text[-1:].isspace() or text.endswith((" OK", " FAILED"))
    return text if is_whole else text.rpartition(" ")[0] + " …"


def _spans_of(layout: Layout) -> Iterable[versions.Span]:
    if layout.is_first:
        yield versions.MILLISECONDS
    if layout.wrong_column == "error":
        yield versions.ERROR_COLUMN
        yield versions.TYPE_OF_EIGHT if layout.type_width >= 8 else versions.TYPE_OF_SIX
    if layout.wrong_column == "#wrong":
        yield versions.WIDE_WRONG if layout.is_wide else versions.NARROW_WRONG
    if "i_min" in layout.columns:
        yield versions.SPREAD_COLUMNS


def _nranks(devices: Sequence[Device], parameters: Mapping[str, str]) -> int | None:
    """Return the ranks of the world by the highest of the list, whose lines may be cut within a process."""
    if not devices:
        return None
    per_process = max(1, (_number(parameters, "nThread") or 1) * (_number(parameters, "nGpus") or 1))
    return -(-(max(device.rank for device in devices) + 1) // per_process) * per_process


def _number(parameters: Mapping[str, str], name: str) -> int | None:
    text = parameters.get(name, "")
    return int(text) if re.fullmatch(r"\d{1,9}", text) else None


def _missing_ranks(devices: Sequence[Device], nranks: int | None) -> tuple[str, ...]:
    missing = (nranks or 0) - len({device.rank for device in devices})
    return (f"{missing} of {nranks} ranks have no line in the list of devices",) if missing else ()


def _ranks_per_group(devices: Sequence[Device], nranks: int | None) -> int | None:
    """Return the size of rank 0's group, which the factor of busbw goes by, where there are several."""
    sizes = Counter(device.group for device in devices)
    if len(sizes) < 2 or len(devices) != nranks:
        return None
    return sizes[min(devices, key=lambda device: device.rank).group]


def _rows(
    tables: Sequence[RowReader], marks: Sequence[tuple[int, int]], parameters: Mapping[str, str]
) -> tuple[Row, ...]:
    is_one_size = parameters.get("minBytes", "") == parameters.get("maxBytes")
    found = [(table.layout, cells) for table in tables for cells in table.rows]
    cycles = _cycles([layout.key(cells) for layout, cells in found], marks, is_one_size=is_one_size)
    return tuple(read_row(layout, cells, cycle) for (layout, cells), cycle in zip(found, cycles, strict=True))


def _cycles(keys: Sequence[Cells], marks: Sequence[tuple[int, int]], *, is_one_size: bool) -> list[int]:
    """Return the cycle of each row, by the lines between cycles or else by the sweep's beginning anew."""
    starts = [i for i in range(1, len(keys)) if keys[i] == keys[0] and (is_one_size or keys[i - 1] != keys[0])]
    begun = marks or [(start, number) for number, start in enumerate(starts, 1)]
    cycles = [0] * len(keys)
    for (start, cycle), (end, _) in zip(begun, [*begun[1:], (len(keys), 0)], strict=False):
        cycles[start:end] = [cycle] * (end - start)
    return cycles


def _version(report: Report, found: re.Match[str]) -> None:
    report.version = found[1]
    report.nccl_library = int(found["library"]) if found["library"] else None
    if found["hash"]:
        report.parameters["git hash"] = found["hash"]


def _rccl_version(report: Report, found: re.Match[str]) -> None:
    report.version = f"rccl-tests {found[1].strip()}"


def _program(report: Report, found: re.Match[str]) -> None:
    report.program = found[1]


def _conclusion(report: Report, found: re.Match[str]) -> None:
    report.program = report.program or found[1]
    report.is_concluded = True


def _parameters(report: Report, found: re.Match[str]) -> None:
    report.parameters |= dict(_PARAMETER.findall(found[0]))
    if "unalign" in report.parameters:
        report.spans.append(versions.UNALIGNED)
    elif "validation" in report.parameters:
        report.spans.append(versions.AGGREGATED if "agg iters" in report.parameters else versions.PLAIN_PARAMETERS)


def _setting(report: Report, found: re.Match[str]) -> None:
    report.parameters[found[1].strip()] = found[2].strip()


def _device(report: Report, found: re.Match[str]) -> None:
    group, pid, bus_id = found["group"], found["pid"], found["bus_id"]
    report.spans.append(versions.NO_GROUPS if group is None else versions.GROUPS)
    if "." not in bus_id:
        report.spans.append(versions.LONG_BUS_ID if ":" in bus_id else versions.SHORT_BUS_ID)
    report.devices.append(
        Device(
            rank=int(found["rank"]),
            group=None if group is None else int(group),
            pid=None if pid is None else int(pid),
            host=found["host"],
            device=int(found["device"]),
            bus_id=bus_id,
            name=found["name"].strip() or None,
        )
    )


def _title(report: Report, found: re.Match[str]) -> None:
    report.title = found.string


def _nothing(report: Report, found: re.Match[str]) -> None:
    """Read a line that says nothing of its own."""


def _cycle(report: Report, found: re.Match[str]) -> None:
    report.cycle_marks.append((sum(len(table.rows) for table in report.tables), int(found[1]) - 1))


def _bounds(report: Report, found: re.Match[str]) -> None:
    report.out_of_bounds = int(found[1])
    if found[2] == "FAILED":
        report.failures.append(Failure(found.string.strip(), ErrorClass.WRONG_RESULTS))


def _average(report: Report, found: re.Match[str]) -> None:
    report.avg_busbw = float(found[1])
    if found[2] == "FAILED":
        report.failures.append(Failure(found.string.strip(), ErrorClass.LOW_BANDWIDTH))


def _memory(report: Report, found: re.Match[str]) -> None:
    for name, amount in re.findall(r"([^\s|]+)\s+([^|]+)", found[1]):
        report.memory_usage[name] = amount.strip()


def _warning(report: Report, found: re.Match[str]) -> None:
    report.warnings.append(found[0])


_OPTIONAL = ("Blocking Enabled", "Parallel Init Enabled", "Per-Iteration Report", "Swap Comms Enabled")
_Reader = Callable[[Report, re.Match[str]], None]
_LINES: tuple[tuple[str, str, _Reader], ...] = (
    ("Writing", r"Writing (JSON output) to (.+)", _setting),
    ("nccl-tests", _VERSION, _version),
    ("rccl-tests:", r"rccl-tests: Version (.*)", _rccl_version),
    ("Collective", r"Collective test starting: (\w\S*)", _program),
    ("Collective", r"Collective test concluded: (\w\S*)", _conclusion),
    ("nThread", r"nThread \d+ nGpus .*", _parameters),
    ("NCCL", r"NCCL Tests (compiled with) (.*)", _setting),
    ("NCCL", r"(NCCL version) (.*)", _setting),
    *((name, rf"({name} version)\s*: (.*)", _setting) for name in ("RCCL", "HIP", "ROCm")),
    ("Hostname", r"(Hostname)\s*: (.*)", _setting),
    *((name.split()[0], rf"({name}): (.*)", _setting) for name in _OPTIONAL),
    ("Reducing", r"(Reducing maxBytes) to (\d+)", _setting),
    ("Using", r"Using devices", _nothing),
    ("Rank", _DEVICE, _device),
    ("out-of-place", r"out-of-place", _title),
    ("in-place", r"in-place", _title),
    ("(B)", r"\(B\)\s+\(elements\)", _nothing),
    ("Errors", r"Errors with asterisks indicate", _nothing),
    ("Testing", r"Testing (\d{1,9}) cycle", _cycle),
    ("Out", r"Out of bounds values\s+: (\d{1,18}) (OK|FAILED)", _bounds),
    ("Avg", rf"Avg bus bandwidth\s+: {_NUMBER}(?: (OK|FAILED))?\s*$", _average),
    ("GPU", r"GPU memory usage\s+: (.*)", _memory),
    ("error:", r"error: .*", _warning),
    ("skipping", r"skipping json output.*", _warning),
    ("invalid", r"invalid (?:type|op) .*defaulting to.*", _warning),
    ("Option", r"Option -.*(?:Ignoring|Defaulting).*", _warning),
)
_READERS: dict[str, list[tuple[re.Pattern[str], _Reader]]] = {}
for _word, _pattern, _reader in _LINES:
    _READERS.setdefault(_word, []).append((re.compile(rf"#?[ \t]*{_pattern}"), _reader))

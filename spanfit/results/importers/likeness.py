"""Whether imported runs are alike enough to be pooled: versions, settings, hardware and clock."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from spanfit.errors import ConfigError
from spanfit.results.importers.seating import Seated

_CLOCK = "clock"
_SILENT = "NCCL_DEBUG"


def check_alike(runs: Sequence[Seated], *, pool_unlike: bool) -> None:
    """Refuse to pool runs that differ in more than where they ran and what they measured.

    What a run does not print is not compared. Times of the host's clock are never pooled with times of the GPU's.

    Raises
    ------
    ConfigError
        With each thing that differs, by file.
    """
    prints = {run.label: _fingerprint(run) for run in runs}
    _fill_unset(runs, prints)
    differences = {name: found for name, found in _by_value(prints).items() if len(found) > 1}
    differences |= {f"program of {name}": found for name, found in _programs(runs).items() if len(found) > 1}
    if pool_unlike:
        differences = {name: found for name, found in differences.items() if name == _CLOCK}
    if differences:
        cure = "import CPU times (-C 1) apart" if pool_unlike else "import them apart, or pool them with --pool-unlike"
        lines = [f"{name}: {'; '.join(_told(found))}" for name, found in sorted(differences.items())]
        raise ConfigError("\n".join(["the files are of unlike runs, which are not pooled:", *lines, cure]))


def _fingerprint(seated: Seated) -> dict[str, str]:
    run = seated.run
    known = {
        "engine": run.engine,
        "version": run.version,
        "backend": run.backend,
        "GPU model": run.gpu_model,
        "ranks on each node": seated.ranks_per_node,
        **run.settings,
        **_kept(run.environment or {}),
    }
    if any(timing.time_s > 0 for timing in run.timings):
        known[_CLOCK] = "CPU" if run.is_cpu_time else "GPU" if run.backend in ("nccl", "rccl") else ""
    return {name: value for name, value in known.items() if value}


def _kept(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of NCCL, without those that only make it talk."""
    return {name: value for name, value in environment.items() if name.startswith("NCCL_") and _SILENT not in name}


def _fill_unset(runs: Iterable[Seated], prints: dict[str, dict[str, str]]) -> None:
    """Note settings as unset where a run prints its environment and another has them."""
    names = {name for found in prints.values() for name in found if name.startswith("NCCL_")}
    for run in runs:
        if run.run.environment is not None:
            prints[run.label] = dict.fromkeys(names, "unset") | prints[run.label]


def _by_value(prints: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, list[str]]]:
    """Return for each thing its values, and for each value the runs that have it."""
    found: dict[str, dict[str, list[str]]] = {}
    for label, known in prints.items():
        for name, value in known.items():
            found.setdefault(name, {}).setdefault(value, []).append(label)
    return found


def _programs(runs: Iterable[Seated]) -> dict[str, dict[str, list[str]]]:
    """Return for each operation the programs that timed it, and for each program its runs."""
    found: dict[str, dict[str, list[str]]] = {}
    for seated in (each for each in runs if each.run.engine):
        for operation in sorted({timing.operation for timing in seated.run.timings}):
            found.setdefault(operation, {}).setdefault(seated.run.program, []).append(seated.label)
    return found


def _told(found: Mapping[str, Sequence[str]]) -> Iterator[str]:
    for value, labels in found.items():
        more = f" and {len(labels) - 3} more" if len(labels) > 3 else ""
        yield f"{value} in {', '.join(labels[:3])}{more}"

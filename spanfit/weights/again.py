"""The campaign that measures again what weights rest on: a few cases of the one that they come from, as TOML."""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass, replace
from typing import Any

from spanfit import files
from spanfit.bench.campaign_file import CampaignFile
from spanfit.bench.case import RankOrder
from spanfit.bench.job_file import read_models
from spanfit.bench.job_table import JobTable, StepEngine
from spanfit.errors import ConfigError
from spanfit.profiler.statistics import MIN_UNITS
from spanfit.results.schema import RunInfo
from spanfit.workload.job import Job, StepJob, TrainingJob
from spanfit.workload.models import Model
from spanfit.workload.program import ComputeMode


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """What to write so that a few cases can be measured again.

    Attributes
    ----------
    campaign : CampaignFile
        The paths in it are those of the campaign that it comes from, so it belongs beside that.
    models : mapping of str to Model
        Models of its jobs that spanfit does not know, for the file that their tables name.
    """

    campaign: CampaignFile
    models: Mapping[str, Model]


def campaign_again(
    info: RunInfo, jobs: Sequence[Job], operations: Collection[str], *, repetitions: int, models_file: str
) -> Again:
    """Return the part of a run's campaign that holds some jobs and collectives.

    Parameters
    ----------
    info : RunInfo
        Of the run that the weights come from.
    jobs : sequence of Job
    operations : collection of str
        Collectives of its sweep, of which only the largest size and the sorted order are wanted.
    repetitions : int
        Of each step in a launch.
    models_file : str
        What the file of models is to be called.

    Raises
    ------
    ConfigError
        If the run was imported, so that no campaign is known, or nothing is to be measured.
    """
    if not info.spec.get("launch"):
        raise ConfigError(
            f"run {info.run_id}: spec: found no campaign, as of an imported run; write one by docs/files.md"
        )
    own = read_models()
    training = [job for job in jobs if isinstance(job, TrainingJob)]
    models = {job.model.name: job.model for job in training if own.get(job.model.name) != job.model}
    tables = [_table(job, repetitions, models_file if _model_name(job) in models else None) for job in jobs]
    spec = {**info.spec, "jobs": [_plain(table) for table in tables], "noise": []}
    spec |= {"startup": None, "overlap": None, "pairs": None} | ({} if operations else {"collectives": None})
    try:
        campaign = files.parse(CampaignFile, spec, f"run {info.run_id}: spec")
    except ConfigError as error:
        raise ConfigError(
            f"{error}\nanother version of spanfit ran this campaign; write it anew by docs/files.md"
        ) from None
    return Again(campaign=_narrowed(campaign, operations), models=models)


def _model_name(job: Job) -> str:
    return job.model.name if isinstance(job, TrainingJob) else ""


def _narrowed(campaign: CampaignFile, operations: Collection[str]) -> CampaignFile:
    sweep = campaign.collectives
    if sweep is not None:
        wanted = tuple(each for each in sweep.operations if each in operations)
        sweep = replace(sweep, operations=wanted, sizes=(max(sweep.sizes),), rank_orders=(RankOrder.SORTED,))
    name = f"{campaign.name[:50]}-again"
    return replace(campaign, name=name, launches=max(MIN_UNITS, campaign.launches), collectives=sweep)


def _table(job: Job, repetitions: int, models_file: str | None) -> JobTable:
    if isinstance(job, StepJob):
        return JobTable(
            name=job.name,
            dp=job.dp,
            pp=job.pp,
            microbatches=job.nmicrobatches,
            activation=job.activation_bytes,
            gradient=job.gradient_bytes,
            forward=job.forward_s,
            backward=job.backward_s,
            schedule=job.schedule,
            compute=job.compute,
            repetitions=repetitions,
        )
    is_torch = job.compute is ComputeMode.TORCH
    layout = job.layout
    return JobTable(
        name=job.name,
        dp=layout.dp,
        pp=layout.pp,
        tp=layout.tp,
        cp=layout.cp,
        ep=layout.ep,
        order=layout.order,
        model=job.model.name,
        models=models_file,
        global_batch=job.global_batch,
        microbatch=job.microbatch,
        fsdp=job.fsdp,
        dtype=job.dtype,
        gradient_dtype=job.gradient_dtype,
        schedule=job.schedule,
        virtual_stages=job.virtual_stages,
        buckets=job.buckets,
        flops_per_s=job.flops_per_s,
        compute=None if is_torch else job.compute,
        message_divisor=None if is_torch else job.message_divisor,
        engine=StepEngine.TORCH if is_torch else StepEngine.PROXY,
        repetitions=repetitions,
    )


def render_campaign(again: Again) -> str:
    """Return a campaign as TOML that is read back as the same; what has its default is left out."""
    return _render(_plain(again.campaign))


def render_models(models: Mapping[str, Model]) -> str:
    """Return models as TOML, a table each."""
    return _render({name: {k: v for k, v in _plain(model).items() if k != "name"} for name, model in models.items()})


def _plain(value: Any) -> Any:
    """Return dataclasses as tables of what differs from its default."""
    if is_dataclass(value):
        return {
            field.name: _plain(getattr(value, field.name))
            for field in fields(value)
            if getattr(value, field.name) is not None and getattr(value, field.name) != _default(field)
        }
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value


def _default(field: Field[Any]) -> Any:
    return field.default_factory() if field.default_factory is not MISSING else field.default


def _render(document: Mapping[str, Any]) -> str:
    return "\n".join(_lines(document, ())).strip("\n") + "\n"


def _lines(table: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    """Yield what a table holds itself, then its tables, then its arrays of tables."""
    for key, value in table.items():
        if not isinstance(value, Mapping) and not _is_tables(value):
            yield f"{_key(key)} = {_value(value)}"
    for key, value in table.items():
        name = ".".join(map(_key, (*path, key)))
        for inner in [value] if isinstance(value, Mapping) else value if _is_tables(value) else ():
            yield from ("", f"[{name}]" if isinstance(value, Mapping) else f"[[{name}]]")
            yield from _lines(inner, (*path, key))


def _is_tables(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(each, Mapping) for each in value)


def _key(text: str) -> str:
    return text if text.replace("-", "").replace("_", "").isalnum() and text.isascii() else _string(text)


def _value(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return _string(str(value))
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    return repr(value)


def _string(text: str) -> str:
    """Return a basic string of TOML, which knows the escapes of JSON and forbids one character more."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")

import re
from dataclasses import replace
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from spanfit import files
from spanfit.cli.launch import launch
from spanfit.cli.place import place
from spanfit.errors import ConfigError, ExitCode
from spanfit.launch.formats import LaunchFormat
from spanfit.launch.profile import read_profile
from spanfit.placer.emit import emit
from spanfit.placer.model import SCHEMA_VERSION, Placement

DATA = Path(__file__).parents[2] / "data" / "place"
WITH_PROFILE = (
    *(
        LaunchFormat.TORCHRUN,
        LaunchFormat.SLURM,
        LaunchFormat.JOBSET,
        LaunchFormat.INDEXED_JOB,
        LaunchFormat.PYTORCHJOB,
    ),
    *(LaunchFormat.INDEXED_JOB_PINNER, LaunchFormat.PYTORCHJOB_PINNER),
)
OF_FRAMEWORKS = (LaunchFormat.MEGATRON, LaunchFormat.DEEPSPEED, LaunchFormat.TORCHTITAN)
NAMELESS = (*OF_FRAMEWORKS, LaunchFormat.INDEXED_JOB, LaunchFormat.PYTORCHJOB)
"""Those that name no node: the pinners name them."""
SITE = '[container]\nimage = "registry.example/train:1"\nruntime = "apptainer"\n[kubernetes]\nnamespace = "ml"\n'


def run(*arguments: str, job: Path = DATA / "job.toml") -> Result:
    return CliRunner().invoke(place, [str(job), "--cluster", str(DATA / "cluster.toml"), "--alpha", "0.3", *arguments])


def write_site(folder: Path, text: str = SITE) -> Path:
    path = folder / "site.toml"
    path.write_text(text)
    return path


@pytest.mark.parametrize("kind", list(LaunchFormat))
def test_the_launch_file_alone_is_printed_on_stdout(tmp_path: Path, kind: LaunchFormat) -> None:
    path, site = tmp_path / "placement.json", write_site(tmp_path)
    options = ("--profile", str(site)) if kind in WITH_PROFILE else ()
    result = run("--emit", kind.value, "-o", str(path), *options)
    assert result.exit_code == ExitCode.GOOD, result.output
    placement = files.read_json(path, Placement, SCHEMA_VERSION)
    assert result.stdout == emit(placement, kind, read_profile(site) if options else None)
    assert all((name in result.stdout) != (kind in NAMELESS) for name in placement.rank_map.node_names)
    assert "Job tiny on cluster small" in result.stderr
    again = CliRunner().invoke(launch, [kind.value, str(path), *options])
    assert (again.exit_code, again.stdout, again.stderr) == (ExitCode.GOOD, result.stdout, "")


def test_the_help_names_every_format() -> None:
    for command in (place, launch):
        (option,) = (parameter for parameter in command.params if parameter.name == "launch_format")
        assert isinstance(option.type, click.Choice)
        assert [*option.type.choices] == [kind.value for kind in LaunchFormat]
        text = re.sub(r"-\s+", "-", command.get_help(click.Context(command)))
        assert all(re.search(rf"[ ]{kind}\b", text) for kind in LaunchFormat)


@pytest.mark.parametrize("kind", [*WITH_PROFILE[:5]])
def test_a_file_that_starts_the_job_needs_its_command(tmp_path: Path, kind: LaunchFormat) -> None:
    job = tmp_path / "job.toml"
    job.write_text('name = "bare"\ndp = 6\npp = 2\ntp = 8\n')
    result = run("--emit", kind.value, "--profile", str(write_site(tmp_path)), job=job)
    assert isinstance(result.exception, ConfigError)
    assert f"job bare: command: missing; a {kind} file needs it" in str(result.exception)


@pytest.mark.parametrize("kind", [kind for kind in LaunchFormat if kind not in WITH_PROFILE])
def test_a_profile_is_refused_where_it_would_be_left_aside(tmp_path: Path, kind: LaunchFormat) -> None:
    result = run("--emit", kind.value, "--profile", str(write_site(tmp_path)))
    assert isinstance(result.exception, ConfigError)
    assert f"a {kind} file has no place for a site's settings" in str(result.exception)


def test_what_a_format_cannot_carry_is_told_line_by_line_with_its_name(tmp_path: Path) -> None:
    path = tmp_path / "placement.json"
    run("-o", str(path))
    placement = files.read_json(path, Placement, SCHEMA_VERSION)
    layout = replace(placement.job.layout, cp=2, ep=2, order="cp-tp-ep-dp-pp")
    job = replace(placement.job, layout=layout)
    with pytest.raises(ConfigError) as error:
        emit(replace(placement, job=job), LaunchFormat.TORCHTITAN)
    assert [line.partition(":")[0] for line in str(error.value).splitlines()] == ["torchtitan"] * 2
    named = replace(placement, rank_map=replace(placement.rank_map, node_names=("$(id)",)))
    for kind in LaunchFormat:
        if kind not in (*OF_FRAMEWORKS, LaunchFormat.TORCHRUN):
            with pytest.raises(ConfigError, match=f"{kind}: .* cannot carry the host name"):
                emit(named, kind)
    assert "'$(id)') node_rank=0" in emit(named, LaunchFormat.TORCHRUN)

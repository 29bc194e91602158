"""Every command has help with an example, starts without heavy libraries, and fails in one message."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from spanfit.cli.main import NOUNS, spanfit
from spanfit.errors import ExitCode

CHECKOUT = Path(__file__).parents[2]
HEAVY = ("torch", "pandas", "numpy", "scipy", "pyarrow", "pydantic", "highspy", "seaborn", "matplotlib", "rich")


def walk(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    """Yield every command below one, with its full name."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for child in command.list_commands(context):
            found = command.get_command(context, child)
            assert found is not None
            yield from walk(found, f"{name} {child}")
    else:
        yield name, command


COMMANDS = dict(walk(spanfit, "spanfit"))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example_of_itself(name: str) -> None:
    command = COMMANDS[name]
    assert command.help
    assert command.epilog is not None
    assert command.epilog.startswith(f"Example: {name}")
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"{name}: {parameter.name} has no help"


def test_the_manual_is_what_the_help_texts_say() -> None:
    argv = [sys.executable, str(CHECKOUT / "tools" / "manual.py")]
    printed = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    assert (CHECKOUT / "docs" / "cli.md").read_text() == printed, "write it again with: make docs"


def test_every_link_of_the_documents_leads_somewhere() -> None:
    pages = [*CHECKOUT.glob("*.md"), *CHECKOUT.glob("docs/**/*.md")]
    for page in pages:
        for target in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("noun", ["", *NOUNS])
def test_help_loads_no_heavy_library(noun: str) -> None:
    code = f"""
import sys
from spanfit.cli.main import spanfit
try:
    spanfit.main({[*filter(None, [noun]), "--help"]!r}, standalone_mode=False)
finally:
    print(sorted(set(sys.modules) & set({HEAVY!r})))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["nonsense"], ExitCode.BAD_INPUT, "No such command"),
        (["topology", "show", "absent.toml"], ExitCode.BAD_INPUT, "absent.toml"),
        (["campaign", "run", "absent.toml"], ExitCode.BAD_INPUT, "absent.toml"),
        (["profile", "curves", "--store", "absent"], ExitCode.BAD_INPUT, "absent"),
        (["weights", "show", "absent.json"], ExitCode.BAD_INPUT, "absent.json"),
        (["testbed", "down", "absent"], ExitCode.BAD_INPUT, "no testbed named absent"),
        (["place", "absent.toml", "--cluster", "absent.toml", "--alpha", "0.5"], ExitCode.BAD_INPUT, "absent.toml"),
    ],
)
def test_mistakes_are_one_message_and_the_right_code(
    arguments: list[str], code: ExitCode, message: str, tmp_path: Path
) -> None:
    argv = [sys.executable, "-m", "spanfit", *arguments]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == code, done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_a_testbed_without_its_programs_names_the_package(tmp_path: Path) -> None:
    code = f"""
import os
os.environ["PATH"] = {str(tmp_path)!r}
from spanfit.launch import testbed
testbed._SBIN = {str(tmp_path)!r}
print(testbed.refusal())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "unshare is missing; install the Debian package util-linux" in done.stdout

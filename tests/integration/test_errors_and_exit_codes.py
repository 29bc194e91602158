import subprocess
import sys

import pytest

from spanfit import errors
from spanfit.errors import ExitCode, SpanfitError

# A noun of its own, in a process of its own, that does what a line says.
SCRIPT = """
import sys, types
import click
from spanfit import errors
from spanfit.cli import main as cli

@click.command()
@click.option("--need", type=int)
def fail(need):
    {line}

sys.modules["failing"] = types.SimpleNamespace(fail=fail)
cli.NOUNS["fail"] = ("failing:fail", "Fail.")
sys.argv = ["spanfit", *{argv!r}]
cli.main()
"""


def ends(line: str, *argv: str) -> subprocess.CompletedProcess[str]:
    script = SCRIPT.format(line=line, argv=("fail", *argv))
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)


def subclasses(kind: type[SpanfitError]) -> list[type[SpanfitError]]:
    return [kind, *(below for child in kind.__subclasses__() for below in subclasses(child))]


CODES = {
    "SpanfitError": 2,
    "ConfigError": 2,
    "StoreError": 2,
    "FitError": 2,
    "InfeasibleError": 3,
    "LaunchError": 4,
    "TimedOutError": 5,
}


def test_every_error_of_spanfit_has_the_code_that_is_promised() -> None:
    ours = [kind for kind in subclasses(SpanfitError) if kind.__module__ == errors.__name__]
    assert {kind.__name__: int(kind.exit_code) for kind in ours} == CODES


@pytest.mark.parametrize(("name", "code"), CODES.items())
def test_a_mistake_prints_one_message_no_traceback_and_ends_with_its_code(name: str, code: int) -> None:
    done = ends(f"raise errors.{name}('file.toml: key: found 1, expected 2')")
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "spanfit: file.toml: key: found 1, expected 2\n")


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("pass", ExitCode.GOOD, ""),
        ("sys.exit(1)", ExitCode.FINDING, ""),
        ("click.get_current_context().exit(1)", ExitCode.FINDING, ""),
        ("raise KeyboardInterrupt", ExitCode.INTERRUPTED, "spanfit: interrupted\n"),
        ("raise click.Abort", ExitCode.INTERRUPTED, "spanfit: interrupted\n"),
        ("raise BrokenPipeError", ExitCode.GOOD, ""),
        (
            "raise ModuleNotFoundError(name='torch.no_such_part')",
            ExitCode.BAD_INPUT,
            "spanfit: torch.no_such_part is not installed; install it with: pip install 'spanfit[measure]'\n",
        ),
        (
            "import no_such_library",
            ExitCode.BAD_INPUT,
            "spanfit: no_such_library is not installed; install it with: pip install 'spanfit[analyse]'\n",
        ),
    ],
)
def test_every_other_end_has_its_code(line: str, code: ExitCode, said: str) -> None:
    done = ends(line)
    assert (done.returncode, done.stdout, done.stderr.lstrip("\n")) == (code, "", said)


def test_a_mistake_of_ours_keeps_its_traceback_and_says_internal() -> None:
    done = ends("raise AssertionError('the ring is broken')")
    assert done.returncode == ExitCode.INTERNAL
    assert "Traceback" in done.stderr
    assert "AssertionError: the ring is broken" in done.stderr


@pytest.mark.parametrize("argv", [("--need", "four"), ("--no-such-option",), ("surplus",)])
def test_wrong_usage_is_bad_input_with_the_usage(argv: tuple[str, ...]) -> None:
    done = ends("pass", *argv)
    assert done.returncode == ExitCode.BAD_INPUT
    assert "Usage: spanfit fail" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_unknown_noun_is_bad_input() -> None:
    script = "import sys; sys.argv = ['spanfit', 'no-such-noun']; from spanfit.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == ExitCode.BAD_INPUT
    assert "no-such-noun" in done.stderr


def test_help_loads_no_command_and_ends_well() -> None:
    script = (
        "import sys; sys.argv = ['spanfit', '--help']\n"
        "from spanfit.cli.main import main\n"
        "try:\n    main()\n"
        "finally:\n    print(sorted({name.partition('.')[0] for name in sys.modules} & "
        "{'numpy', 'pandas', 'torch', 'pydantic', 'rich', 'scipy', 'highspy', 'pyarrow'}), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (ExitCode.GOOD, "[]\n")
    assert "campaign" in done.stdout

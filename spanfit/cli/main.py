"""The ``spanfit`` command: finds the noun that was asked for, loads only its module, and ends with the right code."""

import os
import sys
from importlib import import_module

import click

from spanfit import __version__
from spanfit.errors import ExitCode, SpanfitError

NOUNS = {
    "campaign": ("spanfit.cli.campaign:campaign", "Plan, run and follow a measuring campaign."),
    "demo": ("spanfit.cli.demo:demo", "Run the whole path on an emulated cluster: measure, fit, place, report."),
    "jct": ("spanfit.cli.jct:jct", "Predict how long jobs run, from how jobs like them ran before."),
    "launch": ("spanfit.cli.launch:launch", "Print what starts the ranks of a placement in its order."),
    "place": ("spanfit.cli.place:place", "Place a job on the free nodes of a cluster, and mend a placement."),
    "profile": ("spanfit.cli.profile:profile", "Turn measurements into curves, gains, diagnoses and predictions."),
    "queue": ("spanfit.cli.queue:queue", "Queue jobs, reserve nodes for announced ones, say why each waits."),
    "report": ("spanfit.cli.report:report", "Write one self-contained HTML page of a run."),
    "results": ("spanfit.cli.results:results", "List, show, compare, export and import what is measured."),
    "simulate": ("spanfit.cli.simulate:simulate", "Replay the queue's policies over a cluster."),
    "testbed": ("spanfit.cli.testbed:testbed", "Bring up an emulated fat tree on this machine."),
    "topology": ("spanfit.cli.topology:topology", "Read, merge, compare and check clusters."),
    "weights": ("spanfit.cli.weights:weights", "Fit, show, check, export and carry over affinity weights."),
    "workload": ("spanfit.cli.workload:workload", "Show models, and what a training step of a job does."),
}
"""Every noun: where its command lives, and the one line that ``spanfit --help`` shows without loading it."""


class Nouns(click.Group):
    """A group whose commands are imported only when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the nouns in alphabetical order."""
        return sorted(NOUNS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return the command of a noun."""
        if cmd_name not in NOUNS:
            return None
        module, _, attribute = NOUNS[cmd_name][0].partition(":")
        command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the nouns without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, NOUNS[name][1]) for name in self.list_commands(ctx)])


@click.group(
    cls=Nouns,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="Example: spanfit demo --out out/demo",
)
@click.version_option(__version__, message="spanfit %(version)s")
def spanfit() -> None:
    """Measure what spanning minipods costs, fit affinity weights, place jobs with them."""


def main() -> None:
    """Run the command line; a mistake that a person can mend prints one message and no traceback."""
    try:
        code = spanfit.main(standalone_mode=False)
    except click.exceptions.Exit as stop:
        code = stop.exit_code
    except click.ClickException as error:
        error.show()
        code = ExitCode.BAD_INPUT
    except SpanfitError as error:
        click.echo(f"spanfit: {error}", err=True)
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("spanfit: interrupted", err=True)
        code = ExitCode.INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = ExitCode.GOOD
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "spanfit":
            raise
        click.echo(f"spanfit: {error.name} is not installed; {_cure(error.name or '')}", err=True)
        code = ExitCode.BAD_INPUT
    except Exception:  # the outermost frame: the traceback stays, the code says internal
        sys.excepthook(*sys.exc_info())
        code = ExitCode.INTERNAL
    sys.exit(code if isinstance(code, int) else ExitCode.GOOD)


def _cure(module: str) -> str:
    extra = "measure" if module.partition(".")[0] == "torch" else "analyse"
    return f"install it with: pip install 'spanfit[{extra}]'"

"""What can go wrong for a person, each with the exit code that the command line ends with."""

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of every spanfit command."""

    GOOD = 0
    FINDING = 1
    BAD_INPUT = 2
    INFEASIBLE = 3
    LAUNCH_FAILED = 4
    TIMED_OUT = 5
    INTERNAL = 70
    INTERRUPTED = 130


class SpanfitError(Exception):
    """Something that a person can mend; its text says what was found, what was expected and the next step."""

    exit_code = ExitCode.BAD_INPUT


class ConfigError(SpanfitError):
    """A file or an option that people wrote is wrong."""


class StoreError(SpanfitError):
    """The results store cannot give or take what was asked."""


class FitError(SpanfitError):
    """The measurements do not hold what an estimate needs."""


class InfeasibleError(SpanfitError):
    """No placement exists; the text says which resource is short, in numbers."""

    exit_code = ExitCode.INFEASIBLE


class LaunchError(SpanfitError):
    """Processes could not be started, or one of them died."""

    exit_code = ExitCode.LAUNCH_FAILED


class TimedOutError(SpanfitError):
    """Something did not end in the time it had."""

    exit_code = ExitCode.TIMED_OUT

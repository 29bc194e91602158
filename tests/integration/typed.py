"""Commands as a person types them, in this process: most tests need no new one, which takes a second to begin."""

from click.testing import CliRunner, Result

from spanfit.cli.main import spanfit


def typed(*words: str, code: int = 0) -> Result:
    """Run a command and return what it said; it must end with this code. Errors of spanfit itself are raised."""
    result = CliRunner().invoke(spanfit, list(words), catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result

import pytest

from spanfit.cli.output import print_table


def test_a_table_is_plain_text_whatever_is_in_it(capsys: pytest.CaptureFixture[str]) -> None:
    hostile = ["[/]", "[bold]x", "$(id)", "[/x]"]
    print_table("of [/x]", ["[red]what", *map(str, range(3))], [hostile])
    out = capsys.readouterr().out
    assert all(text in out for text in ("of [/x]", "[red]what", *hostile))

from pathlib import Path

import pytest

from spanfit.errors import ConfigError
from spanfit.queue.model.rules import Overrun, PolicyName, QueueRules
from spanfit.queue.rules_file import read_rules


def read(folder: Path, text: str) -> QueueRules:
    (folder / "rules.toml").write_text(text)
    return read_rules(folder / "rules.toml")


def test_what_is_not_said_is_the_default(tmp_path: Path) -> None:
    assert read(tmp_path, "") == QueueRules()
    text = 'policy = "paper"\noverrun = "move"\nageing = "1d12h"\nquantile = 0.95\n'
    expected = QueueRules(policy=PolicyName.PAPER, overrun=Overrun.MOVE, ageing_s=129600, quantile=0.95)
    assert read(tmp_path, text) == expected


def test_every_mistake_is_said_at_once(tmp_path: Path) -> None:
    text = 'policy = "best"\ninterval = 60\nageing = "soon"\nspeed = 9\nmax_late_s = 3\n'
    with pytest.raises(ConfigError) as error:
        read(tmp_path, text)
    lines = str(error.value).splitlines()
    assert all(line.startswith(f"{tmp_path / 'rules.toml'}: ") for line in lines)
    said = "\n".join(lines)
    for part in (
        'policy: found "best", expected',
        'interval: found 60, expected a duration in quotes such as "90s"',
        "ageing: found 'soon', expected a duration such as",
        "speed: unknown key; expected one of policy, interval",
        "max_late_s: unknown key",
    ):
        assert part in said
    assert len(lines) == 5


def test_what_no_queue_can_follow_is_said_with_all_else(tmp_path: Path) -> None:
    text = f'interval = "0s"\nquantile = 1.0\ndepth = 0\npolicy = "best"\nageing = "{"9" * 400}d"\nspeed = 9\n'
    with pytest.raises(ConfigError) as error:
        read(tmp_path, text)
    keys = [line.split(": ")[1] for line in str(error.value).splitlines()]
    assert sorted(keys) == ["ageing", "depth", "interval", "policy", "quantile", "speed"]


@pytest.mark.parametrize("quantile", ["nan", "inf", "-0.1", "true", '"0.9"'])
def test_a_quantile_is_a_share(tmp_path: Path, quantile: str) -> None:
    with pytest.raises(ConfigError, match="quantile: found"):
        read(tmp_path, f"quantile = {quantile}")


def test_what_is_no_toml_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not valid TOML"):
        read(tmp_path, "policy = easy")

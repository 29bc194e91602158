import json
from pathlib import Path

import pytest

from spanfit.profiler.programs import dotted_version, strip_report


def test_a_report_is_kept_without_its_environment(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    text = json.dumps({"version": 3, "env": ["SECRET_TOKEN=hunter2"], "results": []})
    path.write_text(text)
    assert strip_report(path) == text
    assert json.loads(path.read_text()) == {"version": 3, "results": []}
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("text", ['{"version": 3, "env": ["SECRET_TOKEN=hun', '[{"env": []}]', "3", ""])
def test_a_report_that_is_not_whole_is_not_kept(text: str, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text(text)
    assert strip_report(path) == ""
    assert not path.exists()


def test_library_versions_are_written_as_people_do() -> None:
    assert [dotted_version(code) for code in (22807, 2804, 21903)] == ["2.28.7", "2.8.4", "2.19.3"]

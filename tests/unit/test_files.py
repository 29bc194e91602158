import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanfit import files
from spanfit.errors import ConfigError


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner:
    __pydantic_config__ = files.CONFIG
    colour: Colour
    rate: files.LinkRate = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    __pydantic_config__ = files.CONFIG
    name: str
    size: files.SizeBytes
    count: files.Count
    inner: tuple[Inner, ...]
    tables: dict[Colour, Inner] | None = None
    limit: files.Seconds = 1.0
    schema_version: int = 1


GOOD = """
name = "a"
size = "4M"
count = 2
limit = "6ms"
[[inner]]
colour = "red"
rate = "400mbit"
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "file.toml"
    path.write_text(text)
    return path


def complaint(path: Path) -> list[str]:
    with pytest.raises(ConfigError) as error:
        files.read_toml(path, Document)
    return str(error.value).splitlines()


def test_units_become_stored_values(tmp_path: Path) -> None:
    document = files.read_toml(written(tmp_path, GOOD), Document)
    assert document == Document(
        name="a", size=4194304, count=2, limit=0.006, inner=(Inner(colour=Colour.RED, rate=400e6),)
    )


def test_every_mistake_is_told_at_once_and_what_is_right_is_not(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        """
        size = "4M"
        count = -3
        colour = "red"
        limit = true
        [[inner]]
        colour = "red"
        [[inner]]
        colour = "rde"
        """,
    )
    assert sorted(complaint(path)) == [
        f"{path}: colour: unknown key; remove it or correct its spelling",
        f"{path}: count: found -3, expected greater than or equal to 1",
        f"{path}: inner[1].colour: found \"rde\", expected 'red' or 'blue'",
        f"{path}: limit: found true, expected a valid number",
        f"{path}: name: missing; this key is required",
    ]


def test_a_wrong_size_says_what_was_found_and_expected(tmp_path: Path) -> None:
    for size, expected in {
        '"4Q"': "size: '4Q' is not a size; expected a number with K, M, G or T, such as 4M",
        "-4": "size: found -4, expected at least 1",
        '"0K"': "size: found 0, expected at least 1",
        "4.5": "size: found 4.5, expected a valid integer",
    }.items():
        path = written(tmp_path, GOOD.replace('"4M"', size))
        assert complaint(path) == [f"{path}: {expected}"]


def test_infinity_is_no_rate_and_no_time(tmp_path: Path) -> None:
    path = written(tmp_path, GOOD.replace('"6ms"', "inf").replace('"400mbit"', "inf"))
    assert sorted(complaint(path)) == [
        f"{path}: inner[0].rate: found Infinity, expected a finite number",
        f"{path}: limit: found Infinity, expected a finite number",
    ]


def test_a_misspelt_table_is_named_by_its_key(tmp_path: Path) -> None:
    path = written(tmp_path, GOOD + '[tables.rde]\ncolour = "red"\n')
    assert complaint(path) == [f"{path}: tables.rde: found \"rde\", expected 'red' or 'blue'"]


def test_a_long_wrong_value_is_shortened(tmp_path: Path) -> None:
    path = written(tmp_path, GOOD.replace("count = 2", f'count = "{"x" * 500}"'))
    (line,) = complaint(path)
    assert len(line) < len(str(path)) + 120
    assert "..." in line


def test_toml_that_is_none_is_told_with_its_line(tmp_path: Path) -> None:
    path = written(tmp_path, 'name = "a"\nsize = \n')
    (line,) = complaint(path)
    assert line.startswith(f"{path}: not valid TOML: ")
    assert "line 2" in line


def test_a_missing_file_and_one_of_bytes_are_told(tmp_path: Path) -> None:
    assert complaint(tmp_path / "no.toml") == [
        f"{tmp_path}/no.toml: cannot be read: No such file or directory; check the path"
    ]
    (tmp_path / "file.toml").write_bytes(b"name = \xff")
    assert complaint(tmp_path / "file.toml") == [f"{tmp_path}/file.toml: not UTF-8 text (byte 7)"]


@pytest.mark.parametrize(("version", "found"), [("2", "2"), ('"1"', "'1'"), ("null", "None")])
def test_another_schema_version_is_refused_with_the_cure(tmp_path: Path, version: str, found: str) -> None:
    path = tmp_path / "file.json"
    path.write_text(f'{{"schema_version": {version}, "nonsense": 1}}')
    with pytest.raises(ConfigError) as error:
        files.read_json(path, Document, 1)
    assert str(error.value) == (
        f"{path}: schema_version: found {found}, expected 1; "
        "write the file again with this version of spanfit, or install the one that wrote it"
    )


def test_json_that_is_none_or_no_table_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_text('{"schema_version": 1,')
    with pytest.raises(ConfigError, match="not valid JSON"):
        files.read_json(path, Document, 1)
    path.write_text("[1]")
    with pytest.raises(ConfigError, match="schema_version: found None, expected 1"):
        files.read_json(path, Document, 1)


def test_what_write_json_writes_read_json_reads(tmp_path: Path) -> None:
    document = Document(name="é", size=3, count=1, inner=(Inner(colour=Colour.BLUE),), tables=None)
    path = tmp_path / "new" / "folder" / "file.json"
    files.write_json(path, document)
    assert files.read_json(path, Document, 1) == document
    assert "é" in path.read_text(encoding="utf-8")


def test_a_failing_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    files.write_json(path, {"old": 1})
    old = path.read_text()
    with pytest.raises(ValueError):
        files.write_json(path, {"new": float("nan")})
    with pytest.raises(UnicodeEncodeError):
        files.write_text(path, "half of it \udc80")
    with pytest.raises(KeyboardInterrupt), files.replacing(path) as temporary:
        temporary.write_text("half of it")
        raise KeyboardInterrupt
    assert path.read_text() == old
    assert [entry.name for entry in tmp_path.iterdir()] == ["file.json"]


def test_a_write_that_the_system_refuses_is_a_mistake_a_person_can_mend(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "taken", tmp_path / "file" / "below", tmp_path / ("x" * 300)):
        with pytest.raises(ConfigError) as error:
            files.write_text(path, "text")
        assert str(error.value).startswith(f"{path}: cannot be written: ")
    with pytest.raises(ConfigError, match="No space left on device"), files.replacing(tmp_path / "full") as temporary:
        temporary.unlink()
        temporary.symlink_to("/dev/full")
        temporary.write_text("x")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["file", "taken"]


@contextmanager
def masked(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_a_written_file_has_the_rights_that_the_umask_leaves(tmp_path: Path, mask: int, mode: int) -> None:
    with masked(mask):
        files.write_text(tmp_path / "file", "x")
        assert os.umask(mask) == mask
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == mode


@given(st.dictionaries(st.text(st.characters(codec="utf-8")), st.integers(), min_size=2))
def test_the_digest_does_not_depend_on_the_order_of_keys(value: dict[str, int]) -> None:
    backwards = dict(reversed(value.items()))
    assert files.digest(value) == files.digest(backwards)
    changed = value | {next(iter(value)): next(iter(value.values())) + 1}
    assert files.digest(changed) != files.digest(value)

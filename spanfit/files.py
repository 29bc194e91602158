"""Files that people and programs write: read with every mistake reported at once, written whole or not at all."""

import hashlib
import json
import os
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError

from spanfit import units
from spanfit.errors import ConfigError

T = TypeVar("T")

CONFIG: ConfigDict = {"extra": "forbid"}
"""Set as ``__pydantic_config__`` on a dataclass that a file is read into, so that unknown keys are refused."""


def _typed(parse: Callable[[str], Any]) -> BeforeValidator:
    return BeforeValidator(lambda value: parse(value) if isinstance(value, str) else value)


def _whole(value: int) -> int:
    if value < 1:
        raise ValueError(f"found {value}, expected at least 1")
    return value


SizeBytes = Annotated[int, _typed(units.parse_size), AfterValidator(_whole)]
Seconds = Annotated[float, _typed(units.parse_time), Field(ge=0, allow_inf_nan=False)]
LinkRate = Annotated[float, _typed(units.parse_link_rate), Field(gt=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, lt=1)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,60}$")]
Count = Annotated[int, Field(ge=1)]


def read_text(path: Path) -> str:
    """Return a file's text; ConfigError where there is none or it is no UTF-8."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}; check the path") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 text (byte {error.start})") from error


def parse(kind: type[T], document: object, origin: str) -> T:
    """Return a value of a (data)class from plain data, reporting every wrong key of it at once.

    Parameters
    ----------
    kind : type
        A dataclass; give it ``__pydantic_config__ = CONFIG`` so that unknown keys are refused.
    document : object
        What TOML or JSON decoded to.
    origin : str
        What the message calls the document, such as its path.
    """
    try:
        # Strict validation refuses a list for a tuple unless the data come as JSON.
        return TypeAdapter(kind).validate_json(json.dumps(document, default=str), strict=True)
    except ValidationError as error:
        raise ConfigError("\n".join(f"{origin}: {line}" for line in _faults(error))) from None


def _faults(error: ValidationError) -> Iterator[str]:
    for fault in error.errors(include_url=False):
        key = _key(fault["loc"])
        if fault["type"] in ("unexpected_keyword_argument", "extra_forbidden"):
            yield f"{key}: unknown key; remove it or correct its spelling"
        elif fault["type"] in ("missing", "missing_argument", "missing_keyword_only_argument"):
            yield f"{key}: missing; this key is required"
        elif fault["type"] == "value_error":
            for line in str(fault["ctx"]["error"]).splitlines():
                yield f"{key}: {line}" if key else line
        else:
            expected = fault["msg"].removeprefix("Input should be ")
            yield f"{key}: found {_shorten(fault['input'])}, expected {expected}"


def _key(location: tuple[int | str, ...]) -> str:
    text = ""
    for part in location:
        if part == "[key]":  # pydantic's mark for the key of a table being at fault, not its value
            continue
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def _shorten(value: object) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else text[:57] + "..."


def read_toml(path: Path, kind: type[T]) -> T:
    """Return a value read from a TOML file; ConfigError lists every mistake with file, key, found and expected."""
    try:
        document = tomllib.loads(read_text(path))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from None
    return parse(kind, document, str(path))


def read_json(path: Path, kind: type[T], schema_version: int) -> T:
    """Return a value read from a versioned JSON file; other versions are refused with the cure."""
    try:
        document = json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise ConfigError(f"{path}: not valid JSON: {error}") from None
    found = document.get("schema_version") if isinstance(document, dict) else None
    if found != schema_version:
        raise ConfigError(
            f"{path}: schema_version: found {found!r}, expected {schema_version}; "
            "write the file again with this version of spanfit, or install the one that wrote it"
        )
    return parse(kind, document, str(path))


def json_schema(kind: type[Any], title: str) -> Any:
    """Return the JSON Schema (draft 2020-12) of a dataclass that is written as JSON."""
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return head | TypeAdapter(kind).json_schema(mode="serialization") | {"title": title}


def plain(value: object) -> Any:
    """Return a dataclass as plain data, ready for JSON."""
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


def render_json(value: object) -> str:
    """Return canonical JSON text (sorted keys, two spaces) of a dataclass or of plain data."""
    # json asks for the fields of a dataclass only where it meets one; plain() would copy every tuple first.
    return json.dumps(value, default=_fields, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"


def _fields(value: object) -> dict[str, Any]:
    """Return the fields of a dataclass; TypeError for what JSON cannot hold."""
    if not is_dataclass(value) or isinstance(value, type):
        raise TypeError(f"{type(value).__name__} cannot be written as JSON")
    return {field.name: getattr(value, field.name) for field in fields(value)}


def write_json(path: Path, value: object) -> None:
    """Write canonical JSON whole or not at all."""
    write_text(path, render_json(value))


def write_text(path: Path, text: str) -> None:
    """Write a text file whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary path beside ``path``; it takes the place of ``path`` if the block ends well."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        os.close(handle)
        temporary = Path(name)
        try:
            yield temporary
            umask = os.umask(0)
            os.umask(umask)
            temporary.chmod(0o666 & ~umask)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be written: {error.strerror or error}; check the folder's rights and space"
        ) from error


def digest(value: object) -> str:
    """Return the SHA-256 of a value's canonical JSON, in hexadecimal."""
    return hashlib.sha256(render_json(value).encode()).hexdigest()

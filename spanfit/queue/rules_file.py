"""The rules of a queue as people write them in TOML.

Every rule may be given; those of time are written as durations, without the unit in the key::

    policy = "spanfit"
    interval = "1m"
    ageing = "1d"
"""

import tomllib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from spanfit import files
from spanfit.errors import ConfigError
from spanfit.queue.model.rules import QueueRules
from spanfit.queue.when import LONGEST_S
from spanfit.units import parse_duration

_SUFFIX = "_s"


def read_rules(path: Path) -> QueueRules:
    """Return the rules of a file; ConfigError lists every mistake with file, key, found and expected."""
    try:
        document = tomllib.loads(files.read_text(path))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from None
    return parse_rules(document, str(path))


def parse_rules(document: Mapping[str, Any], origin: str) -> QueueRules:
    """Return rules from what TOML decoded to."""
    names = {field.name.removesuffix(_SUFFIX): field.name for field in fields(QueueRules)}
    values, faults = {}, []
    for key, value in document.items():
        try:
            if key not in names:
                raise ValueError(f"unknown key; expected one of {', '.join(names)}")
            values[names[key]] = _read(names[key], value)
        except ValueError as error:
            faults.append(f"{origin}: {key}: {error}")
    try:
        rules = files.parse(QueueRules, values, origin)
    except ConfigError as error:
        raise ConfigError("\n".join([str(error), *faults])) from None
    if faults:
        raise ConfigError("\n".join(faults))
    return rules


def _read(name: str, value: object) -> object:
    """Return the value of a rule; ValueError where no queue can follow it. Its type is checked elsewhere."""
    if name.endswith(_SUFFIX):
        if not isinstance(value, str):
            raise ValueError(f'found {value!r}, expected a duration in quotes such as "90s", "2h" or "1d"')
        return _duration_s(name, value)
    if name == "quantile" and isinstance(value, int | float) and not 0 < value < 1:
        raise ValueError(f"found {value:g}, expected a share between 0 and 1, such as 0.9")
    if name == "depth" and isinstance(value, int) and value < 1:
        raise ValueError(f"found {value}, expected at least 1")
    return value


def _duration_s(name: str, text: str) -> float:
    duration_s = parse_duration(text)
    if duration_s > LONGEST_S or (name == "interval_s" and not duration_s):
        raise ValueError(f"found {text!r}, expected more than nothing and at most ten years")
    return duration_s

"""The rules of a queue as people write them in TOML.

Every rule may be given; those of time are written as durations, without the unit in the key::

    policy = "spanfit"
    interval = "1m"
    ageing = "1d"
"""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from spanfit import files
from spanfit.errors import ConfigError
from spanfit.queue.model.rules import QueueRules
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
    faults, values = [], {}
    for key, value in document.items():
        if key not in names:
            faults.append(f"{key}: unknown key; expected one of {', '.join(names)}")
        elif names[key].endswith(_SUFFIX):
            try:
                values[names[key]] = _duration_s(value)
            except ValueError as error:
                faults.append(f"{key}: {error}")
        else:
            values[names[key]] = value
    try:
        rules = files.parse(QueueRules, values, origin)
    except ConfigError as error:
        lines = str(error).splitlines()
        raise ConfigError("\n".join([*lines, *(f"{origin}: {fault}" for fault in faults)])) from None
    if faults := [*faults, *_range_faults(rules)]:
        raise ConfigError("\n".join(f"{origin}: {fault}" for fault in faults))
    return rules


def _duration_s(value: object) -> float:
    if not isinstance(value, str):
        raise ValueError(f'found {value!r}, expected a duration in quotes such as "90s", "2h" or "1d"')
    return parse_duration(value)


def _range_faults(rules: QueueRules) -> Iterator[str]:
    if rules.interval_s <= 0:
        yield "interval: found nothing, expected a duration above zero"
    if not 0 < rules.quantile < 1:
        yield f"quantile: found {rules.quantile:g}, expected a share between 0 and 1, such as 0.9"
    for field in fields(rules):
        value = getattr(rules, field.name)
        if isinstance(value, int) and not isinstance(value, bool) and value < 1:
            yield f"{field.name}: found {value}, expected at least 1"

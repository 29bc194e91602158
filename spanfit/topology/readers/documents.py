"""JSON and YAML from outside: decoded as plain data, and taken apart with messages that say where."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from spanfit.errors import ConfigError
from spanfit.topology.reading import printable

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_YAML_LINE = re.compile(r"line (\d+), column (\d+)")


def load_json(text: str, origin: str) -> Any:
    """Return a JSON document; ConfigError where it is none or holds half of a surrogate pair."""
    try:
        document = json.loads(text)
        if _SURROGATE.search(text):
            json.dumps(document, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        raise ConfigError(f"{origin}: not valid JSON: {error}; fetch it again") from None
    except UnicodeEncodeError:
        raise ConfigError(f"{origin}: a text holds half of a surrogate pair; expected Unicode") from None
    except RecursionError:
        raise ConfigError(f"{origin}: nested too deeply; expected a list of nodes or the like") from None
    return document


def load_yaml(text: str, origin: str) -> list[Any]:
    """Return the documents of a YAML text, every scalar as it is written: node ``007`` and label ``no`` stay text."""
    import yaml  # not in the standard library, and only some sources need it

    loader = yaml.CBaseLoader if yaml.__with_libyaml__ else yaml.BaseLoader
    try:
        return [document for document in yaml.load_all(text, Loader=loader) if document]
    except yaml.YAMLError as error:
        place = _YAML_LINE.search(str(error))
        where = f"line {place[1]}: " if place else ""
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise ConfigError(f"{origin}: {where}not valid YAML: {problem}") from None
    except RecursionError:
        raise ConfigError(f"{origin}: nested too deeply; expected a list of nodes or the like") from None


def is_true(value: Any) -> bool:
    """Return whether a value of JSON, or its spelling in YAML, is true."""
    return value is True or (isinstance(value, str) and value.lower() == "true")


@dataclass(frozen=True, slots=True)
class Place:
    """A value in a document, with its key for messages; what is asked of it and is not there raises ConfigError."""

    origin: str
    key: str
    value: Any

    def fault(self, expected: str) -> ConfigError:
        """Return the error of a value that is not what it should be."""
        # Lists and tables are not printed: YAML's anchors may make a short one endless.
        kinds = {type(None): "nothing", list: "a list", dict: "a table"}
        found = kinds.get(type(self.value)) or json.dumps(self.value, default=str)[:60]
        return ConfigError(f"{self.origin}: {printable(self.key) or 'document'}: found {found}; expected {expected}")

    def get(self, key: str) -> "Place":
        """Return the value of a key, None where the table lacks it."""
        if not isinstance(self.value, dict):
            raise self.fault(f"a table with {key}")
        return Place(self.origin, f"{self.key}.{key}" if self.key else key, self.value.get(key))

    def items(self) -> "Iterator[Place]":
        """Yield the items of a list; none where it is absent."""
        if self.value is not None and not isinstance(self.value, list):
            raise self.fault("a list")
        for index, item in enumerate(self.value or ()):
            yield Place(self.origin, f"{self.key}[{index}]", item)

    def text(self) -> str:
        """Return a text, "" where it is absent."""
        if self.value is not None and not isinstance(self.value, str):
            raise self.fault("a text")
        return self.value or ""

    def name(self) -> str:
        """Return a text that must be there."""
        if not isinstance(self.value, str) or not self.value:
            raise self.fault("a name")
        return self.value

    def texts(self) -> tuple[str, ...]:
        """Return a list of texts, none where it is absent."""
        return tuple(item.name() for item in self.items())

    def table(self) -> dict[str, Any]:
        """Return a table, empty where it is absent."""
        if self.value is not None and not isinstance(self.value, dict):
            raise self.fault("a table")
        return self.value or {}

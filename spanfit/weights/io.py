"""``weights.json``: written whole with its hash, and refused where it was changed since or a newer spanfit wrote it."""

import json
from dataclasses import replace
from pathlib import Path

from spanfit import files
from spanfit.errors import ConfigError
from spanfit.weights.model import SCHEMA_VERSION, WeightSet


def content_hash(weights: WeightSet) -> str:
    """Return the SHA-256 of the file's canonical text with "" for the hash that it holds itself."""
    return files.digest(replace(weights, content_hash=""))


def sealed(weights: WeightSet) -> WeightSet:
    """Return weights with the hash that they must have, "" where all are by hand."""
    return replace(weights, content_hash=content_hash(weights) if weights.needs_hash else "")


def read_weights(path: Path) -> WeightSet:
    """Return the weights of a file; whether they are stale is another question (``weights.stale``).

    Raises
    ------
    ConfigError
        For every wrong key at once; where a newer spanfit wrote the file, or an older one in another form; where
        anything was changed since weights that are not by hand were written.
    """
    weights = files.parse(WeightSet, _document(path), str(path))
    if weights.content_hash != (found := content_hash(weights)) and (weights.needs_hash or weights.content_hash):
        raise ConfigError(
            f"{path}: content_hash: found {weights.content_hash or 'none'}, expected {found}: the file was changed "
            "since it was written; fit the weights again, or make them your own: source = hand in each entry, and no "
            "content_hash"
        )
    return weights


def _document(path: Path) -> object:
    try:
        document = json.loads(files.read_text(path), parse_constant=_refuse)
    except ValueError as error:
        raise ConfigError(f"{path}: not valid JSON: {error}") from None
    version = document.get("schema_version") if isinstance(document, dict) else None
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise ConfigError(
            f"{path}: schema_version: found {version}, expected {SCHEMA_VERSION}: a newer spanfit wrote it; install "
            "that one, or fit the weights again with this one"
        )
    if version != SCHEMA_VERSION:
        raise ConfigError(
            f"{path}: schema_version: found {version!r}, expected {SCHEMA_VERSION}; fit the weights again with this "
            "version of spanfit: spanfit weights fit RUN"
        )
    return document


def _refuse(word: str) -> None:
    raise ValueError(f"found {word}, expected a number")


def write_weights(path: Path, weights: WeightSet) -> None:
    """Write the weights with their hash, whole or not at all; ConfigError where the place cannot be written."""
    files.write_json(path, sealed(weights))

"""``weights.json``: read and written whole, with its schema version."""

from pathlib import Path

from spanfit import files
from spanfit.weights.model import SCHEMA_VERSION, WeightSet


def read_weights(path: Path) -> WeightSet:
    """Return the weights of a file; ConfigError names every wrong key, and refuses other schema versions."""
    return files.read_json(path, WeightSet, SCHEMA_VERSION)


def write_weights(path: Path, weights: WeightSet) -> None:
    """Write the weights whole or not at all; ConfigError where the place cannot be written."""
    files.write_json(path, weights)

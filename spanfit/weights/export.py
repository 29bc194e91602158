"""Weights as other programs take them: YAML, a Kubernetes ConfigMap, CSV; values in, text out."""

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from spanfit import files
from spanfit.errors import ConfigError
from spanfit.results.schema import Estimate
from spanfit.weights.model import WeightEntry, WeightSet

FILE_KEY = "weights.json"
"""Under which key a ConfigMap holds the file, so that it is mounted by this name."""

_CONFIGMAP_BYTES = 1 << 20
"""A ConfigMap's data may not be larger."""

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_UNPRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
"""What YAML does not take as it is and JSON does; all of it has four digits."""


def render_yaml(weights: WeightSet) -> str:
    """Return the content of ``weights.json`` as YAML 1.1 and 1.2: every text is quoted, no tag, no anchor."""
    return "\n".join(_lines(files.plain(weights), "")) + "\n"


def _lines(table: Mapping[str, Any], indent: str) -> Iterator[str]:
    for key in sorted(table):
        value = table[key]
        if isinstance(value, Mapping) and value:
            yield f"{indent}{key}:"
            yield from _lines(value, indent + "  ")
        elif isinstance(value, list | tuple) and value and isinstance(value[0], Mapping):
            yield f"{indent}{key}:"
            for each in value:
                first, *rest = _lines(each, indent + "    ")
                yield f"{indent}  - {first.strip()}"
                yield from rest
        else:
            yield f"{indent}{key}: {_scalar(value)}"


def _scalar(value: object) -> str:
    """Return a value in flow style; JSON but for floats, which YAML 1.1 knows by their point."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_scalar, value))}]"
    if isinstance(value, str):
        return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(value, ensure_ascii=False))
    if isinstance(value, float):
        mantissa, mark, exponent = repr(value).partition("e")
        sign = "" if exponent.startswith("-") else "+"
        return repr(value) if not mark else f"{mantissa}{'' if '.' in mantissa else '.0'}e{sign}{exponent.lstrip('+')}"
    return json.dumps(value)


def render_configmap(weights: WeightSet, *, name: str, namespace: str | None) -> str:
    """Return a ConfigMap that holds the file as it is, hash and all.

    Raises
    ------
    ConfigError
        If Kubernetes would refuse the name, the namespace or the size.
    """
    text = files.render_json(weights)
    faults = [
        f"{key}: found {value!r}, expected lower-case letters, digits and '-' as Kubernetes asks"
        for key, value, pattern in (("--name", name, _NAME), ("--namespace", namespace, _NAMESPACE))
        if value is not None and not pattern.fullmatch(value)
    ]
    if len(text.encode()) > _CONFIGMAP_BYTES:
        faults.append(
            f"weights: found {len(text.encode())} bytes, expected at most the {_CONFIGMAP_BYTES} of a ConfigMap"
        )
    if faults:
        raise ConfigError("\n".join(faults))
    space = [f"  namespace: {_scalar(namespace)}"] if namespace else []
    return "\n".join(
        [
            "apiVersion: v1",
            "kind: ConfigMap",
            "metadata:",
            f"  name: {_scalar(name)}",
            *space,
            "data:",
            f"  {FILE_KEY}: {_scalar(text)}",
            "",
        ]
    )


_ESTIMATES = ("alpha", "beta", "gain_dp", "gain_pp", "base_time_s")


def render_csv(weights: WeightSet) -> str:
    """Return a line for each entry under a line of names; what is not known is left empty.

    Launches and crossing costs are left to the other forms.
    """
    target = io.StringIO()
    rows = [_row(weights, entry) for entry in weights.entries]
    writer = csv.DictWriter(target, list(rows[0]) if rows else ["job"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return target.getvalue()


def _row(weights: WeightSet, entry: WeightEntry) -> dict[str, object]:
    volumes, fabric = entry.volumes, weights.fabric
    return {
        "job": entry.job,
        "gpu_model": entry.gpu_model,
        "dp": entry.dp,
        "pp": entry.pp,
        "source": entry.source.value,
        **{key: value for name in _ESTIMATES for key, value in _estimate(name, getattr(entry, name)).items()},
        "dp_bytes": volumes.dp_bytes if volumes else None,
        "pp_bytes": volumes.pp_bytes if volumes else None,
        "r1": volumes.r1 if volumes else None,
        "r2": volumes.r2 if volumes else None,
        "compute": entry.compute,
        "launches": entry.launches,
        "is_flat": str(entry.is_flat).lower(),
        "is_provisional": str(entry.is_provisional).lower(),
        "library": fabric.library if fabric else None,
        "transport": fabric.transport if fabric else None,
        "run_ids": " ".join(weights.run_ids),
        "valid_until": weights.valid_until,
        "content_hash": weights.content_hash,
        "accepted_stale": " | ".join(weights.accepted_stale),
    }


def _estimate(name: str, estimate: Estimate | None) -> dict[str, float | None]:
    if estimate is None:
        return {name: None, f"{name}_ci_low": None, f"{name}_ci_high": None}
    return {name: estimate.value, f"{name}_ci_low": estimate.ci_low, f"{name}_ci_high": estimate.ci_high}

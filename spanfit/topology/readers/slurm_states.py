"""Slurm's words for the states of nodes and for their GPUs, of every generation, translated once."""

import re
from functools import lru_cache

from spanfit.topology.model import NodeState
from spanfit.topology.reading import SEVERITY

_FLAGS = {
    NodeState.DOWN: (
        "DOWN ERROR UNKNOWN UNK FUTURE FUTR FAIL FAILG FAILING NOT_RESPONDING NO_RESPOND INVALID INVAL INVALID_REG "
        "POWERED_DOWN POW_DN POWERING_DOWN POWERING_UP POW_UP POWER_DOWN POWER_UP POWER_DRAIN BOOT "
        "REBOOT REBOOT_REQUESTED REBOOT_ISSUED BLOCKED"
    ),
    NodeState.DRAINED: "DRAIN DRAINED DRAINING DRNG",
    NodeState.RESERVED: "RESERVED RESV MAINTENANCE MAINT PLANNED PLND",
    NodeState.ALLOCATED: "ALLOCATED ALLOC MIXED MIX COMPLETING COMP",
    NodeState.IDLE: "IDLE",
}
_CACHED = 1024  # nodes share few words
_STATE_OF = {word: state for state, words in _FLAGS.items() for word in words.split()}
_SUFFIXES = {
    "*": "NOT_RESPONDING",
    "~": "POWERED_DOWN",
    "#": "POWERING_UP",
    "!": "POWER_DOWN",
    "%": "POWERING_DOWN",
    "$": "MAINTENANCE",
    "@": "REBOOT_REQUESTED",
    "^": "REBOOT_ISSUED",
    "-": "PLANNED",
}
_NO_STATE = {"CLOUD", "DYNAMIC_NORM", "DYNAMIC_FUTURE", "EXTERNAL"}
_GPU = re.compile(r"(?:^|,)\s*gpu(?::(?P<model>[^:,()]+))??:(?P<count>\d{1,6})(?=[,(]|$)")
_MIG = re.compile(r"\dg\.\d+gb")


@lru_cache(maxsize=_CACHED)
def state_words(text: str) -> tuple[str, ...]:
    """Return the words of a state as text, ``IDLE+DRAIN`` or sinfo's ``idle*``, in upper case."""
    words: list[str] = []
    for word in text.strip().split("+"):
        bare = word.rstrip("".join(_SUFFIXES))
        words += [bare.upper(), *(_SUFFIXES[suffix] for suffix in word[len(bare) :])]
    return tuple(word for word in words if word)


@lru_cache(maxsize=_CACHED)
def node_state(words: tuple[str, ...]) -> NodeState:
    """Return what a node with these state words may be used for; a word that is not known counts as down."""
    states = [_STATE_OF.get(word, NodeState.DOWN) for word in words if word not in _NO_STATE]
    return max(states, key=SEVERITY.index, default=NodeState.DOWN)


@lru_cache(maxsize=_CACHED)
def unknown_words(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the state words that are not known."""
    return tuple(word for word in words if word not in _STATE_OF and word not in _NO_STATE)


@lru_cache(maxsize=_CACHED)
def parse_gres(text: str) -> tuple[tuple[str, int], ...]:
    """Return the whole GPUs of a Gres text by model, as in ``gpu:h100:2(S:0-1),gpu:4``; slices (MIG) count for none."""
    found: dict[str, int] = {}
    for match in _GPU.finditer(re.sub(r"\([^)]*\)", "", text)):
        model = match["model"] or ""
        if not _MIG.search(model):
            found[model] = found.get(model, 0) + int(match["count"])
    return tuple((model, count) for model, count in found.items() if count)


def is_sliced(gres: str) -> bool:
    """Return whether a Gres text offers slices of GPUs (MIG)."""
    return bool(_MIG.search(gres))

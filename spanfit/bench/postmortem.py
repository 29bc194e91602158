"""What torch says of a rank that hangs, when it is asked by a signal: edge, writes files; standard library and torch.

SIGUSR2 writes torch's flight recorder, the last collectives with their states, from a thread that sleeps until then.
gloo records there since torch 2.8 or so, NCCL since 2.2; a torch without it writes nothing.
"""

import signal
import threading
from pathlib import Path

import torch


def arm(folder: Path, rank: int) -> None:
    """Prepare this process to answer; call it in the main thread before torch starts threads of its own."""
    # Threads inherit the mask, so that the signal waits for the one thread that asks for it.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
    threading.Thread(target=_answer, args=(folder / f"flight-{rank}.json",), daemon=True).start()


def _answer(path: Path) -> None:
    while True:
        signal.sigwait({signal.SIGUSR2})
        if record := flight_record():
            path.write_bytes(record)


def flight_record() -> bytes:
    """Return what torch's flight recorder holds as JSON text, b"" where this torch has none."""
    core = getattr(torch._C, "_distributed_c10d", None)
    for name in ("_dump_fr_trace_json", "_dump_nccl_trace_json"):
        if dump := getattr(core, name, None):
            return bytes(dump())
    return b""

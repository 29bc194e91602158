"""The device that a rank uses: chosen by its local rank, and its clocks read, never set; edge, runs nvidia-smi."""

import shutil
import subprocess
from collections.abc import Callable, MutableMapping, Sequence

import torch

_ERROR_HANDLING = {
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
    "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
    "TORCH_NCCL_TRACE_BUFFER_SIZE": "2000",
}
"""A collective that hangs or fails ends the rank, and the flight recorder says what each rank was at."""

READINGS: dict[str, str] = {
    "clocks.current.sm": "clock_mhz",
    "clocks.current.memory": "memory_clock_mhz",
    "temperature.gpu": "temperature_c",
    "power.draw": "power_w",
    "clocks_throttle_reasons.active": "throttle_reasons",
}
"""What nvidia-smi is asked for, and what it is called in a shard; throttle reasons are its bit mask as text."""

_READ_LIMIT_S = 5.0


def handle_errors(environment: MutableMapping[str, str]) -> None:
    """Set what makes nccl report errors and hangs, where the person has not set it."""
    for name, value in _ERROR_HANDLING.items():
        environment.setdefault(name, value)


def choose_device(backend: str, local_rank: int, ndevices: int) -> torch.device:
    """Return the device of a local rank: the CPU for gloo, else the GPU of that number (ROCm's are called cuda too).

    Raises
    ------
    RuntimeError
        If the host shows too few GPUs.
    """
    if backend != "nccl":
        return torch.device("cpu")
    if local_rank >= ndevices:
        raise RuntimeError(
            f"local rank {local_rank} has no GPU: this host shows {ndevices}, expected at least {local_rank + 1}; "
            "lower launch.ranks_per_node, or check CUDA_VISIBLE_DEVICES (ROCR_VISIBLE_DEVICES) and the driver"
        )
    return torch.device("cuda", local_rank)


def device_name(device: torch.device) -> str:
    """Return what no other GPU of the host is called, "" for a CPU."""
    if device.type != "cuda":
        return ""
    properties = torch.cuda.get_device_properties(device)
    return str(getattr(properties, "uuid", device.index))


def shared_devices(hosts: Sequence[str], devices: Sequence[str]) -> str:
    """Return which ranks use one GPU of a host together, "" where none do; the device of a CPU rank is ""."""
    users: dict[tuple[str, str], list[int]] = {}
    for rank, place in enumerate(zip(hosts, devices, strict=True)):
        users.setdefault(place, []).append(rank)
    return "; ".join(
        f"ranks {', '.join(map(str, ranks))} use one GPU of {host} ({device}), expected one each; "
        "check LOCAL_RANK and CUDA_VISIBLE_DEVICES"
        for (host, device), ranks in users.items()
        if device and len(ranks) > 1
    )


def read_device(device: torch.device) -> dict[str, str | float]:
    """Return the clocks [MHz], temperature [C], power [W] and throttle reasons of a GPU; empty where none are told."""
    program = shutil.which("nvidia-smi")
    if device.type != "cuda" or program is None:
        return {}
    uuid = device_name(device)
    argv = [
        program,
        f"--id={uuid if uuid.startswith('GPU-') else f'GPU-{uuid}'}",
        f"--query-gpu={','.join(READINGS)}",
        "--format=csv,noheader,nounits",
    ]
    try:
        answer = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=_READ_LIMIT_S)
    except subprocess.TimeoutExpired:
        return {}
    return parse_reading(answer.stdout) if answer.returncode == 0 else {}


def parse_reading(text: str) -> dict[str, str | float]:
    """Return one line of nvidia-smi's answer to ``READINGS``; what the GPU does not tell is left out."""
    fields = [field.strip() for field in text.strip().split(",")]
    reading: dict[str, str | float] = {}
    for name, field in zip(READINGS.values(), fields, strict=False):
        if field.startswith("0x"):
            reading[name] = field
        elif field.replace(".", "", 1).isdigit():
            reading[name] = float(field)
    return reading


def captured(run: Callable[[], object], device: torch.device) -> Callable[[], object]:
    """Return what replays an operation that was captured as a CUDA graph."""
    side = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(side):
        run()  # What the first call sets up cannot be captured.
    torch.cuda.current_stream(device).wait_stream(side)
    torch.cuda.synchronize(device)
    graph = torch.cuda.CUDAGraph()
    # The watchdog's thread may query events meanwhile, which the stricter mode would forbid.
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        run()
    return graph.replay

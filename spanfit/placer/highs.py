"""HiGHS, or CP-SAT by ``cpsat``, in a process of its own [edge].

HiGHS may overrun its time limit by minutes and prints a banner to stdout from its constructor. So it runs in a child
process that is killed when the time is over, with the child's stdout closed while it works. Models and answers travel
as NumPy archives, which hold numbers only.
"""

import io
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from enum import StrEnum
from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np

from spanfit.placer.mip import Floats, MipModel

if TYPE_CHECKING:
    from highspy import HighsLp

_START_S = 0.3
"""What starting the child may take of the time; the solver itself is given the rest."""


class Engine(StrEnum):
    """Who solves a model; the value is how it is told of."""

    HIGHS = "HiGHS"
    CP_SAT = "CP-SAT"


_MODULES = {Engine.HIGHS: "spanfit.placer.highs", Engine.CP_SAT: "spanfit.placer.cpsat"}


def best_engine() -> Engine:
    """Return CP-SAT where OR-Tools is installed (the extra ``exact``), else HiGHS."""
    return Engine.CP_SAT if find_spec("ortools") else Engine.HIGHS


class MipStatus(StrEnum):
    """How a solve of a model ended."""

    OPTIMAL = "optimal"
    INFEASIBLE = "infeasible"
    STOPPED = "stopped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class MipAnswer:
    """The end of a solve.

    Attributes
    ----------
    status : MipStatus
        stopped where the time ended first, failed where the engine's process ended badly.
    values : array or None
        A feasible solution if any was found.
    reason : str
        How it failed.
    """

    status: MipStatus
    values: Floats | None
    reason: str = ""


def run_mip(model: MipModel, *, time_limit_s: float, seed: int = 0, engine: Engine = Engine.HIGHS) -> MipAnswer:
    """Return an engine's answer to a model, in ``time_limit_s`` seconds at most whatever it does."""
    buffer = io.BytesIO()
    np.savez(
        buffer,
        allow_pickle=False,
        time_limit_s=np.array(max(0.1, time_limit_s - _START_S)),
        seed=np.array(seed),
        **{item.name: getattr(model, item.name) for item in fields(MipModel)},
    )
    # The child finds what this process finds, and nothing that happens to lie in the working folder.
    environ = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-P", "-m", _MODULES[engine]]
    try:
        child = subprocess.run(
            command, input=buffer.getvalue(), capture_output=True, timeout=time_limit_s, env=environ, check=False
        )
    except subprocess.TimeoutExpired:
        return MipAnswer(status=MipStatus.STOPPED, values=None)
    if child.returncode:
        said = child.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        reason = f"{engine} ended with code {child.returncode}: {said[-200:] or 'it said nothing'}"
        return MipAnswer(status=MipStatus.FAILED, values=None, reason=reason)
    with np.load(io.BytesIO(child.stdout), allow_pickle=False) as answer:
        values = answer["values"]
        return MipAnswer(status=MipStatus(str(answer["status"])), values=values if values.size else None)


@contextmanager
def silent_stdout() -> Iterator[None]:
    """Send whatever native code writes to file descriptor 1 to nowhere while the block runs."""
    sys.stdout.flush()
    kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)


def solve_here(model: MipModel, *, time_limit_s: float, seed: int) -> MipAnswer:
    """Return HiGHS's answer in this process; only HiGHS itself minds the limit."""
    with silent_stdout():
        import highspy

        highs = highspy.Highs()  # type: ignore[no-untyped-call]
        highs.setOptionValue("output_flag", False)
        highs.setOptionValue("time_limit", time_limit_s)
        highs.setOptionValue("mip_rel_gap", 0.0)
        highs.setOptionValue("mip_abs_gap", 1e-7)
        highs.setOptionValue("parallel", "off")
        highs.setOptionValue("random_seed", seed)
        highs.passModel(_highs_model(model))
        highs.run()
        status, has_values = highs.getModelStatus(), highs.getInfo().primal_solution_status == 2
        values = np.array(highs.getSolution().col_value) if has_values else None
    known = {
        highspy.HighsModelStatus.kOptimal: MipStatus.OPTIMAL,
        highspy.HighsModelStatus.kInfeasible: MipStatus.INFEASIBLE,
    }
    return MipAnswer(status=known.get(status, MipStatus.STOPPED), values=values)


def _highs_model(model: MipModel) -> "HighsLp":
    import highspy

    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = len(model.cost), len(model.row_lower)
    lp.col_cost_, lp.col_lower_, lp.col_upper_ = model.cost, model.lower, model.upper
    lp.row_lower_, lp.row_upper_ = model.row_lower, model.row_upper
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_, lp.a_matrix_.index_, lp.a_matrix_.value_ = model.start, model.index, model.value
    kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
    lp.integrality_ = [kinds[flag] for flag in model.is_integer]
    return lp


def serve(solve: Callable[..., MipAnswer]) -> None:
    """Solve the model on stdin and write the answer to stdout, as ``run_mip`` expects of its child."""
    with np.load(io.BytesIO(sys.stdin.buffer.read()), allow_pickle=False) as archive:
        model = MipModel(**{item.name: archive[item.name] for item in fields(MipModel)})
        answer = solve(model, time_limit_s=float(archive["time_limit_s"]), seed=int(archive["seed"]))
    values = np.array([]) if answer.values is None else answer.values
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, status=np.array(str(answer.status)), values=values)
    sys.stdout.buffer.write(buffer.getvalue())


if __name__ == "__main__":
    serve(solve_here)

"""HiGHS in a process of its own [edge].

HiGHS may overrun its time limit by minutes and prints a banner to stdout from its constructor. So it runs in a child
process that is killed when the time is over, with the child's stdout closed while it works. Models and answers travel
as NumPy archives, which hold numbers only.
"""

import io
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

from spanfit.placer.mip import Floats, MipModel

if TYPE_CHECKING:
    from highspy import HighsLp

_START_S = 0.7
"""What starting the child may take of the time; HiGHS itself is given the rest."""


class MipStatus(StrEnum):
    """How a solve of a model ended."""

    OPTIMAL = "optimal"
    INFEASIBLE = "infeasible"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class MipAnswer:
    """The end of a solve.

    Attributes
    ----------
    status : MipStatus
        stopped where the time ended first.
    values : array or None
        A feasible solution if any was found.
    """

    status: MipStatus
    values: Floats | None


def run_mip(model: MipModel, *, time_limit_s: float, seed: int = 0) -> MipAnswer:
    """Return HiGHS's answer to a model, in ``time_limit_s`` seconds at most whatever HiGHS does.

    Raises
    ------
    RuntimeError
        If the child process fails.
    """
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
    command = [sys.executable, "-P", "-m", "spanfit.placer.highs"]
    try:
        child = subprocess.run(
            command, input=buffer.getvalue(), capture_output=True, timeout=time_limit_s, env=environ, check=False
        )
    except subprocess.TimeoutExpired:
        return MipAnswer(status=MipStatus.STOPPED, values=None)
    if child.returncode:
        raise RuntimeError(f"HiGHS ended with code {child.returncode}: {child.stderr.decode(errors='replace')[-500:]}")
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
    """Return HiGHS's answer in this process; only HiGHS itself minds the time limit."""
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


def _main() -> None:
    with np.load(io.BytesIO(sys.stdin.buffer.read()), allow_pickle=False) as archive:
        model = MipModel(**{item.name: archive[item.name] for item in fields(MipModel)})
        answer = solve_here(model, time_limit_s=float(archive["time_limit_s"]), seed=int(archive["seed"]))
    values = np.array([]) if answer.values is None else answer.values
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, status=np.array(str(answer.status)), values=values)
    sys.stdout.buffer.write(buffer.getvalue())


if __name__ == "__main__":
    _main()

"""CP-SAT of OR-Tools, which the extra ``exact`` brings, in a process that ``highs.run_mip`` starts [edge]."""

import numpy as np

from spanfit.placer.highs import MipAnswer, MipStatus, serve
from spanfit.placer.mip import MipModel


def solve_here(model: MipModel, *, time_limit_s: float, seed: int) -> MipAnswer:
    """Return CP-SAT's answer to a model of whole numbers in this process, on one thread.

    Variables that may be fractions are taken as whole, so their bounds and factors must be. Costs are not looked at:
    the type model has none, and any solution of it is an answer.
    """
    from ortools.sat.python import cp_model

    program = cp_model.CpModel()
    variables = [
        program.new_int_var(int(low), int(high), "") for low, high in zip(model.lower, model.upper, strict=True)
    ]
    rows = zip(model.start, model.start[1:], model.row_lower, model.row_upper, strict=False)
    for start, end, low, high in rows:
        terms = [variables[i] for i in model.index[start:end]]
        factors = model.value[start:end].astype(np.int64).tolist()
        least = int(low) if np.isfinite(low) else cp_model.INT32_MIN
        most = int(high) if np.isfinite(high) else cp_model.INT32_MAX
        program.add_linear_constraint(cp_model.LinearExpr.weighted_sum(terms, factors), least, most)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = seed
    solver.parameters.max_time_in_seconds = time_limit_s
    status = solver.solve(program)
    if status == cp_model.INFEASIBLE:
        return MipAnswer(status=MipStatus.INFEASIBLE, values=None)
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        values = np.array([solver.value(variable) for variable in variables], dtype=float)
        return MipAnswer(status=MipStatus.OPTIMAL, values=values)
    return MipAnswer(status=MipStatus.STOPPED, values=None)


if __name__ == "__main__":
    serve(solve_here)

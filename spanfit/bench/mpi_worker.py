"""A rank of a campaign that moves bytes by MPI instead of torch: edge; the same cases, the same lines, the same store.

Run as ``python -m spanfit.bench.mpi_worker LAUNCH.json`` under mpirun or srun. It needs the standard library and
mpi4py, nothing else, so that what the fabric gives can be told from what torch takes of it.
"""

import os
import sys
from pathlib import Path

from spanfit.bench.case import load_launch
from spanfit.bench.environ import die_with_parent, set_local


def main() -> None:
    """Run the rank that MPI says this is."""
    die_with_parent()
    plan = load_launch(Path(sys.argv[1]).read_text(encoding="utf-8"))
    set_local(os.environ, plan.local_environment)
    # MPI starts and reads its settings as it is imported, so not before they are made.
    from spanfit.bench import mpi_world

    sys.excepthook = mpi_world.abort
    mpi_world.run_launch(plan)


if __name__ == "__main__":
    main()

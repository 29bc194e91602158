"""Which environment variables are kept with a measurement; standard library only, for the ranks."""

from collections.abc import Mapping

_MPI_PREFIXES = ("MPIR_CVAR_", "OMPI_MCA_btl", "OMPI_MCA_coll", "OMPI_MCA_mpi_", "OMPI_MCA_mtl", "OMPI_MCA_pml")
_KEPT_PREFIXES = ("NCCL_", "GLOO_", "TORCH_NCCL_", "UCX_", "FI_", *_MPI_PREFIXES)
_KEPT_NAMES = ("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_MAX_CONNECTIONS")
_SECRET_PARTS = ("TOKEN", "SECRET", "PASSWORD", "KEY")


def kept_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that explain a measurement, by allow-list, and none that may hold a secret."""
    return {
        name: value
        for name, value in sorted(environment.items())
        if (name.startswith(_KEPT_PREFIXES) or name in _KEPT_NAMES)
        and not any(part in name.upper() for part in _SECRET_PARTS)
    }

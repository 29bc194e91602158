"""The ``[nccl_tests]`` table: the programs that measure in the place of our ranks."""

from collections.abc import Iterator
from dataclasses import dataclass

from spanfit import files
from spanfit.bench import nccl_tests


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclTestsFile:
    """The ``[nccl_tests]`` table: where the programs are, and what they get besides the options of a case.

    Without a ``folder`` they are looked for on PATH; ``suffix`` ends each name, such as ``_mpi``. ``check`` compares
    results with what they should be. ``arguments`` are options as a person would type them.
    """

    __pydantic_config__ = files.CONFIG
    folder: str | None = None
    suffix: str = ""
    check: bool = True
    arguments: tuple[str, ...] = ()

    def faults(self) -> Iterator[str]:
        """Yield which arguments are not a person's to give."""
        for word in nccl_tests.taken(self.arguments):
            yield f"nccl_tests.arguments: found {word!r}, which the campaign sets by itself; leave it out"

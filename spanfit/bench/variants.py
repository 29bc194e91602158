"""The variants of a job whose steps a campaign times too: beside noise, or with a limit of CTAs; told by their names.

Names that people give hold neither sign, so that a name is of one variant only.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_NAME = re.compile(r"[^+@]+(\+(?P<noise>[^+@]+))?(@cta-(?P<cta>[1-9][0-9]*))?")
_MOST_CTAS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """What a job's name says beside the name that people gave it.

    Attributes
    ----------
    noise : str
        The ``[[noise]]`` table whose jobs run beside it, "" where none does.
    cta : int
        Thread blocks that each of its communicators may use on each GPU; 0 leaves it to the library.
    """

    noise: str = ""
    cta: int = 0

    @property
    def is_plain(self) -> bool:
        """Whether the job runs alone, as the library chooses."""
        return self == Variant()

    def name(self, job: str) -> str:
        """Return the name of a job in this variant, such as ``llama+busy`` or ``llama@cta-8``."""
        return job + (f"+{self.noise}" if self.noise else "") + (f"@cta-{self.cta}" if self.cta else "")


def parse_variant(name: str) -> Variant:
    """Return the variant that :meth:`Variant.name` put into the name of a job; a name of another form is plain."""
    found = _NAME.fullmatch(name)
    return Variant(noise=found["noise"] or "", cta=int(found["cta"] or 0)) if found else Variant()


def cta_faults(key: str, ctas: tuple[int, ...], backend: str) -> Iterator[str]:
    """Yield which limits of CTAs the backend does not have; 0 is its own choice."""
    if wrong := [cta for cta in ctas if not 0 <= cta <= _MOST_CTAS]:
        wanted = f"1 to {_MOST_CTAS}, or 0 for the library's choice"
        yield f"{key}: found {', '.join(map(str, wrong))}, expected {wanted}"
    if any(ctas) and backend != "nccl":
        yield f"{key}: backend {backend} has no limit of CTAs; expected nccl, or ctas = [0]"

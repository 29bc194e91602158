"""The variants of a job whose steps a campaign times too: beside noise, or with a limit of CTAs; told by their names.

Names that people give hold neither sign, so that a name is of one variant only.
"""

from dataclasses import dataclass

_BESIDE = "+"
_LIMITED = "@cta-"


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

    def name(self, job: str) -> str:
        """Return the name of a job in this variant, such as ``llama+busy`` or ``llama@cta-8``."""
        return job + (f"{_BESIDE}{self.noise}" if self.noise else "") + (f"{_LIMITED}{self.cta}" if self.cta else "")


def parse_variant(name: str) -> Variant:
    """Return the variant that :meth:`Variant.name` put into the name of a job."""
    rest, _, cta = name.partition(_LIMITED)
    return Variant(noise=rest.partition(_BESIDE)[2], cta=int(cta or 0))

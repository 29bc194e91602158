"""The cheapest campaign that would tell the alpha of a job far from everything known."""

from spanfit import units
from spanfit.profiler.statistics import MIN_UNITS
from spanfit.weights.scaling import Shape

_ROWS = 4
_COLUMNS = 2


def cheapest_campaign(name: str, shape: Shape, nmicrobatches: int, ngpus_per_node: int) -> str:
    """Return a sentence with the nodes, the launches and the ``[[jobs]]`` keys of the campaign.

    Parameters
    ----------
    name : str
        The job's.
    shape : Shape
    nmicrobatches : int
        Of a step.
    ngpus_per_node : int

    Notes
    -----
    Volumes carry alpha from a small grid to a large one, so the smallest grid that has both aligned arms and a ring
    longer than a pair will do: 4 x 2 nodes in two minipods, with the bytes that the job's own nodes move.
    """
    rows = min(_ROWS, shape.dp // 2 * 2)
    gradient = round(shape.dp_bytes / ngpus_per_node)
    activation = round(shape.pp_bytes / (2 * nmicrobatches * ngpus_per_node))
    return (
        f"2 minipods of {rows * _COLUMNS // 2} nodes, {MIN_UNITS} launches, ranks_per_node = {ngpus_per_node}, and "
        f'[[jobs]] with name = "{name}", dp = {rows}, pp = {_COLUMNS}, microbatches = {nmicrobatches}, '
        f'activation = "{activation}" ({units.format_size(activation)}), gradient = "{gradient}" '
        f"({units.format_size(gradient)}), forward and backward as a profile of a stage says"
    )

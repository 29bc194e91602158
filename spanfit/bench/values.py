"""What buffers are filled with, so that the result of a collective follows by arithmetic; standard library only."""

import math


def mark(number: int) -> int:
    """Return a value from 1 to 101 that is exact in every dtype and differs between neighbours."""
    return number % 101 + 1


def contribution(redop: str, rank: int) -> int:
    """Return what a rank gives to a reduction, so small that results are exact in every dtype for common groups."""
    return 1 + (rank < 6) if redop == "product" else 1 + rank % 3


def reduced(redop: str, n: int) -> float:
    """Return what the contributions of ``n`` ranks amount to."""
    values = [contribution(redop, rank) for rank in range(n)]
    match redop:
        case "product":
            return math.prod(values)
        case "min":
            return min(values)
        case "max":
            return max(values)
        case "avg":
            return sum(values) / n
    return sum(values)

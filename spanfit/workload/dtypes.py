"""Element types of what is sent, and their sizes."""

from enum import StrEnum


class Dtype(StrEnum):
    """An element type, under the name that torch gives it."""

    FLOAT32 = "float32"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    FLOAT64 = "float64"
    INT8 = "int8"
    UINT8 = "uint8"
    INT32 = "int32"
    INT64 = "int64"

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return _ITEMSIZES[self]


_ITEMSIZES = {
    Dtype.FLOAT32: 4,
    Dtype.FLOAT16: 2,
    Dtype.BFLOAT16: 2,
    Dtype.FLOAT64: 8,
    Dtype.INT8: 1,
    Dtype.UINT8: 1,
    Dtype.INT32: 4,
    Dtype.INT64: 8,
}

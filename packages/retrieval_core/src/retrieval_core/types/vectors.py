"""Telling vectors from what only claims to be some."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from retrieval_core.errors import InvalidParameterError

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST = 3.4028234663852886e38
"""The largest number that float32 holds, in which vectors are kept."""


def as_vectors(values: object) -> NDArray[Any]:
    """Return one vector, or several, as an array of the numbers that were given; an array is not copied.

    Raises:
        InvalidParameterError: They are no real numbers, not finite, or beyond the range of float32.
    """
    import numpy as np  # noqa: PLC0415 - only those who have vectors pay for numpy

    try:
        array = np.asarray(values)
    except Exception as error:  # whatever a foreign object does when it is asked for its numbers
        msg = f"vectors must be arrays of numbers, got {type(values).__name__}"
        raise InvalidParameterError(msg) from error
    if array.dtype.kind not in "fiu":
        what = array.dtype.name if array.dtype.kind != "O" else type(values).__name__
        msg = f"vectors must consist of real numbers, got {what}"
        raise InvalidParameterError(msg)
    # A comparison with what is no number is false, so that this tells NaN as well.
    if array.size and not (array.max() <= MOST and array.min() >= -MOST):
        msg = "vectors must consist of finite numbers, which float32 can hold"
        raise InvalidParameterError(msg)
    return array

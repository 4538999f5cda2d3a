"""Validation of vectors that plug-ins and callers hand in."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from retrieval_core.errors import InvalidParameterError

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST = 3.4028234663852886e38
"""The largest finite float32."""


def as_vectors(values: object) -> NDArray[Any]:
    """Return one vector, or several, as an array; an array is not copied.

    Raises:
        InvalidParameterError: They are not real numbers, not finite, or beyond the range of float32.
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
    # Comparisons with NaN are false, so NaN is refused as well. Of one vector a sum of squares tells in a third of the
    # time; those of float32 are within the range of float64.
    if array.ndim == 1 and array.dtype == np.float32:
        wide = array.astype(np.float64)
        if wide.dot(wide) < inf:
            return array
    if array.size and not (array.max() <= MOST and array.min() >= -MOST):
        msg = "vectors must consist of finite numbers, which float32 can hold"
        raise InvalidParameterError(msg)
    return array


def is_zero(vectors: NDArray[Any]) -> NDArray[Any]:
    """Return whether a vector consists of zeros, as float32 has them; of several, an array with an answer for each."""
    import numpy as np  # noqa: PLC0415 - whoever has a vector has loaded it

    return np.logical_not(np.any(vectors.astype(np.float32, copy=False), axis=-1))

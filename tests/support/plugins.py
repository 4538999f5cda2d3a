"""What several tests use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

approx: Callable[..., Any] = cast("Any", pytest).approx
"""``pytest.approx``, which has no complete types of its own."""


class Panic(BaseException):
    """What a library in Rust raises: no ``Exception``."""


class UnspeakableError(Exception):
    """An exception that cannot even be shown."""

    def __str__(self) -> str:
        raise AttributeError("text")

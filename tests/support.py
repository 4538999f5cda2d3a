"""What several tests use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

approx: Callable[..., Any] = cast("Any", pytest).approx
"""``pytest.approx``, which has no complete types of its own."""

"""A frozen dataclass with the fast ``__init__`` is made, refused and copied like any other."""

from __future__ import annotations

import copy
import inspect
import pickle
from dataclasses import FrozenInstanceError, dataclass, field, replace

import pytest

from retrieval_core.types.fast_init import fast_init


@dataclass(frozen=True, slots=True)
class Slow:
    name: str
    size: int = 3
    items: list[int] = field(default_factory=list[int])
    note: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.name.strip())


@fast_init
@dataclass(frozen=True, slots=True)
class Fast:
    name: str
    size: int = 3
    items: list[int] = field(default_factory=list[int])
    note: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.name.strip())


def test_it_is_made_like_any_other() -> None:
    """Positions, names, defaults, factories and ``__post_init__``; and what is missing is told as Python does."""
    assert inspect.signature(Fast).parameters.keys() == inspect.signature(Slow).parameters.keys()
    one = Fast(" a ", 4, note="n")
    assert repr(one) == repr(Slow(" a ", 4, note="n")).replace("Slow", "Fast")
    assert type(one) is Fast
    assert one.items is not Fast("b").items
    with pytest.raises(TypeError, match="name"):
        Fast()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError, match="colour"):
        Fast("a", colour=1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def test_it_is_equal_and_copied_like_any_other() -> None:
    """By ``replace``, ``copy`` and ``pickle``."""
    one = Fast("a", 4, [1], note="n")
    assert one == Fast("a", 4, [1], note="n") != Fast("a", 5, [1], note="n")
    assert replace(one, size=5) == Fast("a", 5, [1], note="n")
    assert copy.deepcopy(one) == one == pickle.loads(pickle.dumps(one))


def test_it_cannot_be_changed() -> None:
    """Neither set nor deleted, also in ``__post_init__``."""
    one = Fast("a")
    with pytest.raises(FrozenInstanceError):
        one.size = 4  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(FrozenInstanceError):
        del one.size  # pyright: ignore[reportAttributeAccessIssue]

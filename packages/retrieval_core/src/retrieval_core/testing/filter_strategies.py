"""Hypothesis strategies for metadata and filters, hostile ones included. Needs the package ``hypothesis``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from retrieval_core.types.filters import (
    CONDITIONS,
    OPERATORS,
    And,
    Contains,
    Eq,
    Exists,
    Glob,
    In,
    Ne,
    Not,
    NotIn,
    Or,
    Text,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from retrieval_core.types.filters import Condition, Filter

HOSTILE_TEXTS = (
    "",
    "' OR 1=1 --",
    '"; DROP TABLE chunks; --',
    'NEAR("a" "b", 2) AND (c OR d) NOT e',
    "terms : a* ^b + c",
    "{a} {0} %s %(a)s ${b}",
    "nul\x00inside",
    "%_*?[a-z]\\",
    "Straße İstanbul ǅ ﬁ",
    "日本語 ภาษา 한국어",
    "🙂‍↔️ e\u0301",
)
"""Texts with a meaning to SQL, FTS5, templates or case folding."""

PATHS = ("a", "b", "a.b", "a.b.c", "no such", "title", "chunk_index", "page", "section", "source", "timestamp", "id")
"""Paths of filters: of the metadata, nested and ambiguous, and of a chunk's own fields."""

_NUMBERS = st.one_of(
    st.integers(-3, 3), st.integers(-(2**53), 2**53), st.sampled_from([0.0, 0.5, 1.0, -1.5]), st.floats(-1e9, 1e9)
)
_CHARACTERS = st.characters(exclude_categories=["Cs"])


def texts() -> st.SearchStrategy[str]:
    """Texts that can be stored: short ones that often coincide, hostile ones, and any."""
    return st.one_of(st.sampled_from(["a", "A", "ab", "b"]), st.sampled_from(HOSTILE_TEXTS), st.text(_CHARACTERS))


def scalars() -> st.SearchStrategy[Any]:
    """Values that a filter can compare with."""
    return st.one_of(texts(), _NUMBERS, st.booleans())


def metadata() -> st.SearchStrategy[dict[str, Any]]:
    """A chunk's own fields: scalars, lists and objects below few keys, so that filters meet them."""
    leaves = st.one_of(scalars(), st.none())
    values = st.recursive(
        st.one_of(leaves, st.lists(leaves, max_size=3)),
        lambda inner: st.dictionaries(st.sampled_from(["b", "c", "b.c"]), inner, max_size=2),
        max_leaves=4,
    )
    return st.dictionaries(st.sampled_from([*PATHS[:4], "title"]), values, max_size=4)


def conditions(operators: frozenset[str] = OPERATORS) -> st.SearchStrategy[Condition]:
    """Conditions with these operators only."""
    paths = st.sampled_from(PATHS)
    ordered = st.one_of(texts(), _NUMBERS)
    patterns = st.one_of(texts(), st.text("aB*?", max_size=5))
    operands: dict[str, st.SearchStrategy[Any]] = {
        **dict.fromkeys(CONDITIONS, ordered),
        **{kind.operator: scalars() for kind in (Eq, Ne, Contains)},
        **{kind.operator: st.lists(scalars(), max_size=3) for kind in (In, NotIn)},
        **{kind.operator: patterns for kind in (Text, Glob)},
        Exists.operator: st.booleans(),
    }
    return st.one_of(
        *(st.builds(CONDITIONS[name], paths, operands[name]) for name in sorted(operators & CONDITIONS.keys()))
    )


def filters(operators: frozenset[str] = OPERATORS) -> st.SearchStrategy[Filter]:
    """Filters with these operators only, up to a few levels deep."""
    combine: dict[str, Callable[[st.SearchStrategy[Filter]], st.SearchStrategy[Filter]]] = {
        And.operator: lambda inner: st.builds(And, st.lists(inner, max_size=3).map(_frozen)),
        Or.operator: lambda inner: st.builds(Or, st.lists(inner, max_size=3).map(_frozen)),
        Not.operator: lambda inner: st.builds(Not, inner),
    }
    available = [combine[name] for name in sorted(operators & combine.keys())]

    def extend(inner: st.SearchStrategy[Filter]) -> st.SearchStrategy[Filter]:
        return st.one_of(*(make(inner) for make in available))

    simple: st.SearchStrategy[Filter] = conditions(operators)
    return st.recursive(simple, extend, max_leaves=5) if available else simple


def _frozen(parts: list[Filter]) -> tuple[Filter, ...]:
    return tuple(parts)


def example_of(operator: str) -> Filter:
    """Return some filter with this operator."""
    inner = Exists("a")
    combined: dict[str, Filter] = {"$and": And((inner,)), "$or": Or((inner,)), "$not": Not(inner)}
    if operator in combined:
        return combined[operator]
    operand: Any = True if operator == Exists.operator else ("a",) if operator in {"$in", "$nin"} else "a"
    return CONDITIONS[operator]("a", operand)

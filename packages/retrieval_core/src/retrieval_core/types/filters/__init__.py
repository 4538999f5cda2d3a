"""Typed filters on a chunk's fields, and :func:`matches`, which defines what they mean.

A store that evaluates filters in its own language must agree with :func:`matches` on every chunk; the conformance kit
in :mod:`retrieval_core.testing` checks that. The JSON form is in :mod:`retrieval_core.types.filters.syntax`. The rules:

- A field is named by its path, ``"specs.ram"``. A key that itself holds the dot wins over the nested one.
- A ``null`` is the same as an absent field.
- A list matches where one of its items does.
- Numbers compare with numbers and text with text; ``true`` is not ``1``; nothing else is ever equal.
- ``Ne``, ``NotIn`` and ``Not`` are plain negations, so they match where the field is absent.
- ``Text`` and ``Glob`` ignore case. In a glob ``*`` stands for any run of characters and ``?`` for one; there is no
  other syntax, and matching takes time linear in the text for each ``*``.
"""

from retrieval_core.types.filters.conditions import (
    CONDITIONS,
    MAX_FILTER_DEPTH,
    OPERATORS,
    And,
    Condition,
    Contains,
    Eq,
    Exists,
    Filter,
    Glob,
    Gt,
    Gte,
    In,
    Lt,
    Lte,
    Ne,
    Not,
    NotIn,
    Or,
    Scalar,
    Text,
    check_filter_depth,
    shown,
)
from retrieval_core.types.filters.matching import all_of, chunk_fields, lookup, matches, operators_of, paths_of
from retrieval_core.types.filters.shorthand import MetadataFilter

__all__ = [
    "CONDITIONS",
    "MAX_FILTER_DEPTH",
    "OPERATORS",
    "And",
    "Condition",
    "Contains",
    "Eq",
    "Exists",
    "Filter",
    "Glob",
    "Gt",
    "Gte",
    "In",
    "Lt",
    "Lte",
    "MetadataFilter",
    "Ne",
    "Not",
    "NotIn",
    "Or",
    "Scalar",
    "Text",
    "all_of",
    "check_filter_depth",
    "chunk_fields",
    "lookup",
    "matches",
    "operators_of",
    "paths_of",
    "shown",
]

"""Which source each setting comes from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@dataclass(frozen=True, slots=True, eq=False)
class Provenance:
    """The sources of settings that were loaded for an index; all are equal, so that settings compare by value.

    Attributes:
        sources: By source, weakest first, the keys whose values come from it.
        given: Keys that a person gave for this run: in a file or preset, or as arguments.
        file: The file or preset.
        overrides: The arguments.
        environment: Those variables of the environment that may be settings.
        warnings: Sentences about settings that were ignored.
    """

    sources: Mapping[str, tuple[str, ...]]
    given: frozenset[str]
    file: str | Path | None = field(default=None, repr=False)
    overrides: Mapping[str, Any] = field(default_factory=dict[str, "Any"], repr=False)
    environment: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    warnings: tuple[str, ...] = ()

    def __eq__(self, other: object) -> bool:
        return other is None or isinstance(other, Provenance)

    def __hash__(self) -> int:
        return 0

"""Settings of further vectors of each passage."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field, ValidationInfo, field_validator

from retrieval_core.config.backends import Settings

MOST_VECTORS = 8
"""Further vectors of a passage: each of them is a search of its own."""
MOST_WEIGHT = 1000.0
DEFAULT_WEIGHTS = {"max": 1.0, "mean": 0.3}
"""By rule; measured with titles, see ``docs/measurements.md``. Under ``max`` a lower weight soon takes away all effect,
since cosines of one question lie close together; under ``mean`` a higher one costs dense search more than it brings."""
_NAME = re.compile(r"[a-z][a-z0-9_]{0,31}")


class VectorsConfig(Settings):
    """Further vectors of each passage, such as that of its title, which are compared with the question too."""

    fields: dict[str, str] = Field(default_factory=dict)
    """By the vector's name, what is embedded for it: ``title``, ``section`` (the headings), or ``metadata.summary`` for
    text in the field ``summary``. An index keeps the names that it was made with."""
    weights: dict[str, float] = Field(default_factory=dict)
    """By name, the weight of its cosine; the passage's own has 1, and so have those that are not named, or 0.3 where
    ``rule`` is ``mean``. Without ``fields``, what is named here is searched as it is in the store."""
    rule: Literal["mean", "max"] = "max"
    """How the cosines become one score; see ``retrieval_core.pipeline.stages.combine``."""

    @field_validator("fields")
    @classmethod
    def _fields_are_known(cls, value: dict[str, str]) -> dict[str, str]:
        if len(value) > MOST_VECTORS:
            msg = f"there may be {MOST_VECTORS} further vectors, got {len(value)}"
            raise ValueError(msg)
        for name, source in value.items():
            if not _NAME.fullmatch(name):
                msg = f"{name!r:.80} is no name of a vector: lower-case letters, digits and underscores, a letter first"
                raise ValueError(msg)
            if source not in {"title", "section"} and not (source.startswith("metadata.") and source[9:]):
                msg = f"{source!r:.80} is nothing to embed; use title, section or metadata.<field>"
                raise ValueError(msg)
        return value

    @field_validator("weights")
    @classmethod
    def _weights_are_of_vectors(cls, value: dict[str, float], info: ValidationInfo) -> dict[str, float]:
        if wrong := {name: weight for name, weight in value.items() if not 0 < weight <= MOST_WEIGHT}:
            msg = f"weights must be above 0 and at most {MOST_WEIGHT:g}, and these are not: {wrong}"
            raise ValueError(msg)
        fields = info.data.get("fields")  # none where they are wrong themselves, which is told already
        if fields and (unknown := sorted(value.keys() - fields.keys())):
            msg = f"there is no vector {', '.join(unknown)}; vectors.fields has {', '.join(sorted(fields))}"
            raise ValueError(msg)
        return value

    @property
    def weighted(self) -> dict[str, float]:
        """The weight of every further vector that is searched, by name."""
        return {**dict.fromkeys(self.fields, DEFAULT_WEIGHTS[self.rule]), **self.weights}

"""Test suites as their files have them: cases, what each expects to be found, and what all together have to reach."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, cast

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator

from retrieval_core.errors import FilterError
from retrieval_core.types import SearchMode  # noqa: TC001 - pydantic reads annotations
from retrieval_core.types.filters.syntax import parse_filter

if TYPE_CHECKING:
    from typing import Self

HIGHEST_GRADE = 10
LONGEST_NAME = 200


def _not_blank(text: str) -> str:
    if not text.strip():
        msg = "it must not be empty"
        raise ValueError(msg)
    return text


def _name(text: str) -> str:
    """Refuse what could not be shown in one line of a report."""
    if not text.isprintable() or text != text.strip():
        msg = "a name is one line without control characters, and without white space around it"
        raise ValueError(msg)
    return text


def _graded(value: object) -> object:
    """Return a list of ids as grades of 1."""
    if not isinstance(value, list):
        return value
    ids = cast("list[object]", value)
    for number, item in enumerate(ids):
        if not isinstance(item, str):
            msg = f"entry {number + 1} must be text, got {item!r:.80}"
            raise ValueError(msg)  # noqa: TRY004 - pydantic reports this kind alone
        if item in ids[:number]:
            msg = f"{item!r:.200} is listed twice"
            raise ValueError(msg)
    return dict.fromkeys(cast("list[str]", ids), 1)


def _filter(value: dict[str, Any]) -> dict[str, Any]:
    try:
        parse_filter(value)
    except FilterError as error:
        raise ValueError(str(error)) from error
    return value


Text: TypeAlias = Annotated[str, Field(strict=True, min_length=1), AfterValidator(_not_blank)]
Name: TypeAlias = Annotated[str, Field(strict=True, min_length=1, max_length=LONGEST_NAME), AfterValidator(_name)]
Share: TypeAlias = Annotated[float, Field(ge=0, le=1)]
Milliseconds: TypeAlias = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Grade: TypeAlias = Annotated[int, Field(strict=True, ge=1, le=HIGHEST_GRADE)]
_LISTED = {"type": "array", "items": {"type": "string", "minLength": 1}, "uniqueItems": True}
_BY_GRADE = {
    "type": "object",
    "additionalProperties": {"type": "integer", "minimum": 1, "maximum": HIGHEST_GRADE},
}
Grades: TypeAlias = Annotated[
    dict[Text, Grade], BeforeValidator(_graded), WithJsonSchema({"anyOf": [_LISTED, _BY_GRADE]})
]
"""What is expected, with a grade for each, from 1: a list stands for grades of 1."""


class _Part(BaseModel):
    # What is a Boolean in the file is no number, and no text.
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Expected(_Part):
    """Documents, chunks and phrases that the results must contain."""

    documents: Grades = Field(default_factory=dict)
    """Ids of documents, such as ``guide/setup.md``."""
    chunks: Grades = Field(default_factory=dict)
    """Ids of passages, such as ``guide/setup.md#3``."""
    phrases: Grades = Field(default_factory=dict)
    """Texts that one passage has to hold; case, white space and the form of Unicode do not count."""
    matches: Annotated[str, Field(pattern="^(all|any)$")] = "all"
    """Whether ``all`` documents, chunks and phrases are expected, or ``any`` of them is enough."""
    keywords: Annotated[list[Text], Field(strict=True)] = Field(default_factory=list[str])
    """Words, or words in a row, each of which some passage has to hold: whole ones, whatever their case."""

    def items(self) -> list[tuple[str, str, int]]:
        """Return what is expected as (``document``, ``chunk`` or ``phrase``; the text; the grade)."""
        kinds = {"document": self.documents, "chunk": self.chunks, "phrase": self.phrases}
        return [(kind, text, grade) for kind, graded in kinds.items() for text, grade in graded.items()]


class Forbidden(_Part):
    """Documents, chunks and phrases that the results must not contain."""

    documents: list[Text] = Field(default_factory=list[str])
    chunks: list[Text] = Field(default_factory=list[str])
    phrases: list[Text] = Field(default_factory=list[str])

    def items(self) -> list[tuple[str, str]]:
        """Return what is forbidden as (``document``, ``chunk`` or ``phrase``; the text)."""
        kinds = {"document": self.documents, "chunk": self.chunks, "phrase": self.phrases}
        return [(kind, text) for kind, texts in kinds.items() for text in texts]


class Turn(_Part):
    """One turn of a conversation."""

    role: Annotated[str, Field(pattern="^(system|user|assistant)$")]
    content: Annotated[str, Field(strict=True)]


class Asked(_Part):
    """How questions are asked, and what every one of them has to reach; what is not set is as configured."""

    top_k: Annotated[int, Field(strict=True, ge=1, le=100)] = 10
    """The most passages, 1 to 100."""
    mode: SearchMode | None = None
    """By meaning (``dense``), by words (``lexical``), or by both (``hybrid``)."""
    score_threshold: Share | None = None
    """Passages of a lower cosine similarity with the question are not returned."""
    relevance_threshold: Share | None = None
    """The least cosine similarity of the best passage of each expected document; where none is expected, of the best
    passage."""
    latency_ms: Milliseconds | None = None
    """What one question may take."""
    filter: Annotated[dict[str, Any], AfterValidator(_filter)] | None = None
    """What every passage must pass; see docs/filters.md."""


class Case(Asked):
    """A question, and what should become of it."""

    name: Name
    """Unique in its suite."""
    query: Text
    expect: Expected = Expected()
    forbid: Forbidden = Forbidden()
    finds_nothing: bool = False
    """Whether nothing should be found: no passage at all, or none that is likely to bear on the question."""
    paraphrases: list[Text] = Field(default_factory=list[str])
    """The question in other words. Each has to meet the same expectations; without any, to find the same document
    first."""
    history: list[Turn] = Field(default_factory=list[Turn])
    """The turns of the conversation before the question, oldest first."""
    tags: list[Name] = Field(default_factory=list[str])
    skip: Text | None = None
    """Why the case is not run for now."""
    note: str | None = None
    """For people."""

    @property
    def expects_something(self) -> bool:
        """Whether there is anything that could fail."""
        limits = (self.relevance_threshold, self.latency_ms)
        wanted = (*self.expect.items(), *self.expect.keywords, *self.forbid.items(), *self.paraphrases)
        return bool(wanted) or self.finds_nothing or any(limit is not None for limit in limits)

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        if self.finds_nothing and (self.expect.items() or self.expect.keywords or self.relevance_threshold):
            msg = "finds_nothing contradicts expect and relevance_threshold"
            raise ValueError(msg)
        both = {(kind, text) for kind, text, _ in self.expect.items()} & set(self.forbid.items())
        if both:
            kind, text = min(both)
            msg = f"the {kind} {text!r:.200} is both expected and forbidden"
            raise ValueError(msg)
        return self


class Criteria(_Part):
    """Minimum values of a whole suite; ``null`` disables one."""

    fetch_ms: Milliseconds | None = 100.0
    """Reading one passage by its id, 95th percentile (SC-001)."""
    average_ms: Milliseconds | None = 500.0
    """One question, on average (SC-002)."""
    found_in_first_five: Share | None = 0.95
    """Share of the cases with expected documents that have them all among the first five passages (SC-003)."""
    pass_rate: Annotated[float, Field(ge=0, le=100)] | None = 100.0
    """Percentage of the cases that pass (SC-004)."""


class Suite(_Part):
    """Test cases of one index, and what all of them together have to reach."""

    name: Name
    description: str | None = None
    index: Text | None = None
    """A file, relative to the suite's folder, or the address of a service. The command line overrides it."""
    defaults: Asked = Asked()
    """For every case that does not say otherwise."""
    criteria: Criteria = Criteria()
    cases: Annotated[list[Case], Field(min_length=1)]

    @model_validator(mode="after")
    def _complete_cases(self) -> Self:
        names: set[str] = set()
        given = {name: getattr(self.defaults, name) for name in self.defaults.model_fields_set}
        cases: list[Case] = []
        for number, case in enumerate(self.cases):
            if case.name in names:
                msg = f"another case has the name {case.name!r} already; names are unique in a suite"
                raise CaseError(number, "name", msg)
            names.add(case.name)
            missing = {key: value for key, value in given.items() if key not in case.model_fields_set}
            if case.finds_nothing:  # so there is nothing that could be similar enough
                missing.pop("relevance_threshold", None)
            complete = case.model_copy(update=missing)
            if not complete.expects_something:
                msg = "it expects nothing; give it expect, forbid, finds_nothing, paraphrases, or a threshold"
                raise CaseError(number, "name", msg)
            cases.append(complete)
        object.__setattr__(self, "cases", cases)
        return self


def schema() -> dict[str, Any]:
    """Return the JSON Schema of suites, which editors check and complete files by."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Suite.model_json_schema()}


class CaseError(ValueError):
    """A case does not fit into its suite; the place is that of a field of the case with a number, from 0."""

    def __init__(self, number: int, field: str, message: str) -> None:
        super().__init__(message)
        self.place = ("cases", number, field)

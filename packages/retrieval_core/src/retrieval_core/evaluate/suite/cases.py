"""A suite: its cases, what they expect, and how they are read from a file."""

from __future__ import annotations

import json
import re
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, cast

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    WithJsonSchema,
    model_validator,
)

from retrieval_core.config.base import problems_of
from retrieval_core.errors import FilterError, SuiteFileError, UnreadableFileError
from retrieval_core.types import SearchMode  # noqa: TC001 - pydantic reads annotations
from retrieval_core.types.filters.syntax import parse_filter

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path
    from typing import Self

HIGHEST_GRADE = 10
LONGEST_NAME = 200
MOST_BYTES = 20_000_000
MOST_REPETITION = 100_000
"""Values that aliases may stand for: few enough that no file becomes a much larger one in memory."""
MOST_PROBLEMS = 20
"""Problems of one file that are told."""

_TAG = "tag:yaml.org,2002:"


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
    """The question in other words. Each has to meet the same expectations."""
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
        wanted = (*self.expect.items(), *self.expect.keywords, *self.forbid.items())
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
    """A file, relative to the suite's folder. The command line overrides it."""
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
                msg = "it expects nothing; give it expect, forbid, finds_nothing, or a threshold"
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


def read_suite(path: Path) -> Suite:
    """Read a suite from its file; see :func:`read_with_lines`."""
    return read_with_lines(path)[0]


def read_with_lines(path: Path) -> tuple[Suite, tuple[int, ...]]:
    """Read a suite from its file, and return it with the line that each case begins in, from 1.

    Plain words are what they are in JSON: numbers, ``true``, ``false`` and ``null``. All others are text, such as
    ``no`` and ``2024-01-01``. Duplicate and unknown keys are refused.

    Raises:
        UnreadableFileError: The file cannot be read, or is no UTF-8.
        SuiteFileError: It is not well formed; has each problem with line and column.
    """
    try:
        size = path.stat().st_size
        text = "" if size > MOST_BYTES else path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UnreadableFileError(str(path), f"it cannot be opened: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise UnreadableFileError(str(path), f"it is not UTF-8 at byte {error.start}") from error
    if size > MOST_BYTES:
        raise UnreadableFileError(str(path), f"it has {size:,} bytes, and a suite may have {MOST_BYTES:,}")
    return _Reader(text, str(path), path.suffix.lower() == ".json").read()


def parse_suite(text: str, name: str = "<suite>", *, is_json: bool = False) -> Suite:
    """Read a suite from a text; see :func:`read_suite`.

    Args:
        name: Name of the file in messages.
        is_json: Whether it is JSON, not YAML.

    Raises:
        SuiteFileError: It is not well formed.
    """
    return _Reader(text, name, is_json).read()[0]


class _Loader(yaml.SafeLoader):
    """Reads plain words as JSON does, and refuses duplicate keys."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in _pairs(node):
            if key.tag != f"{_TAG}str":
                raise yaml.MarkedYAMLError(
                    problem="a key is text; put it in quotation marks", problem_mark=key.start_mark
                )
            if key.value in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"the key {key.value!r:.200} is there twice", problem_mark=key.start_mark
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep=deep)


_Loader.yaml_implicit_resolvers = {}
for _kind_of_word, _words, _beginnings in (
    ("bool", r"(?:true|false)\Z", "tf"),
    ("null", r"(?:null|~|)\Z", ["n", "~", ""]),
    ("int", r"-?(?:0|[1-9][0-9]{0,99})\Z", "-0123456789"),
    ("float", r"-?(?:0|[1-9][0-9]{0,99})\.[0-9]+(?:[eE][-+][0-9]+)?\Z", "-0123456789"),
):
    cast("Any", _Loader).add_implicit_resolver(f"{_TAG}{_kind_of_word}", re.compile(_words), list(_beginnings))


class _Reader:
    def __init__(self, text: str, name: str, is_json: bool) -> None:
        self._text = text
        self._name = name
        self._is_json = is_json

    def read(self) -> tuple[Suite, tuple[int, ...]]:
        root, value = self._parsed()
        if not isinstance(root, yaml.MappingNode):
            msg = "a suite is an object with the keys name and cases" if root else "it is empty"
            raise self._at(*(_place(root.start_mark) if root else (1, 1)), msg)
        try:
            suite = Suite.model_validate(value)
            places = (_at_path(root, ("cases", number))[0] for number in range(len(suite.cases)))
            return suite, tuple(_place(node.start_mark)[0] for node in places)
        except ValidationError as error:
            problems = list(self._problems(root, error))
            line, column = min(place for place, _ in problems)
            told = [self._told(place, message) for place, message in sorted(problems)]
            more = [f"{self._name}: {len(told) - MOST_PROBLEMS} more problems"] if len(told) > MOST_PROBLEMS else []
            raise SuiteFileError(self._name, line, column, told[:MOST_PROBLEMS] + more) from None

    def _parsed(self) -> tuple[yaml.Node | None, Any]:
        text, value = self._text, None
        try:
            if self._is_json:
                value = json.loads(text)
                text = text.replace("\t", " ")  # JSON has tabs only between its tokens, and YAML allows none there
            loader = cast("Any", _Loader(text))
            root = loader.get_single_node()
            known: dict[int, int] = {}
            if root is not None and _size(root, known) - len(known) > MOST_REPETITION:
                raise self._at(1, 1, f"its aliases stand for {_size(root, known):,} values; write them out")
            read = None if root is None else loader.construct_document(root)
        except json.JSONDecodeError as error:
            raise self._at(error.lineno, error.colno, f"this is no JSON: {error.msg}") from None
        except ValueError as error:
            raise self._at(1, 1, str(error)) from None
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            told = " ".join(filter(None, (error.context, error.problem)))
            hint = "; put text with a ?, : or , between braces in quotation marks" if "flow" in told else ""
            raise self._at(*_place(mark), f"{told}{hint}") from None
        except yaml.reader.ReaderError as error:
            before = text[: error.position]
            line, column = before.count("\n") + 1, error.position - before.rfind("\n")
            raise self._at(line, column, f"the character U+{error.character:04X} is not allowed here") from None
        except RecursionError:
            raise self._at(1, 1, "it nests too deeply") from None
        return root, value if self._is_json else read

    def _problems(self, root: yaml.MappingNode, error: ValidationError) -> Iterator[tuple[tuple[int, int], str]]:
        lines = problems_of(error, meant=_meant, noun="key")
        for found, line in zip(error.errors(include_url=False), lines, strict=True):
            place: Sequence[int | str] = found["loc"]
            own = (found.get("ctx") or {}).get("error")
            if isinstance(own, CaseError):
                place = own.place
            node, path = _at_path(root, place)
            if found["type"] == "extra_forbidden":
                node = _key_node(root, place) or node
            if found["type"] == "missing":
                path = f"{path.removesuffix(': ')}.{place[-1]}: ".lstrip(".")
            yield _place(node.start_mark), path + line.partition(": ")[2]

    def _at(self, line: int, column: int, message: str) -> SuiteFileError:
        return SuiteFileError(self._name, line, column, [self._told((line, column), message)])

    def _told(self, place: tuple[int, int], message: str) -> str:
        return f"{self._name}:{place[0]}:{place[1]}: {message}"


def _place(mark: Any) -> tuple[int, int]:
    """Return line and column, from 1."""
    return (1, 1) if mark is None else (mark.line + 1, mark.column + 1)


def _nodes(node: yaml.SequenceNode) -> list[yaml.Node]:
    return cast("list[yaml.Node]", node.value)


def _pairs(node: yaml.MappingNode) -> list[tuple[yaml.Node, yaml.Node]]:
    return cast("list[tuple[yaml.Node, yaml.Node]]", node.value)


def _size(node: yaml.Node, known: dict[int, int]) -> int:
    """Return how many values a node has, those that aliases stand for included."""
    if id(node) not in known:
        children: list[yaml.Node] = []
        if isinstance(node, yaml.SequenceNode):
            children = _nodes(node)
        elif isinstance(node, yaml.MappingNode):
            children = [child for pair in _pairs(node) for child in pair]
        known[id(node)] = 1 + sum(_size(child, known) for child in children)
    return known[id(node)]


def _at_path(root: yaml.MappingNode, place: Sequence[int | str]) -> tuple[yaml.Node, str]:
    """Return the node at a place, or the innermost one around it, and how a person would name the place."""
    node: yaml.Node = root
    path = ""
    for part in place:
        child: yaml.Node | None = None
        if isinstance(part, int) and isinstance(node, yaml.SequenceNode) and part < len(_nodes(node)):
            child = _nodes(node)[part]
            path += f"[{part + 1}]"
        elif isinstance(part, str) and isinstance(node, yaml.MappingNode):
            child = next((value for key, value in _pairs(node) if key.value == part), None)
            path += f".{part}" if child is not None else ""
        if child is None:
            break
        node = child
    return node, f"{path.lstrip('.')}: " if path else ""


def _key_node(root: yaml.MappingNode, place: Sequence[int | str]) -> yaml.Node | None:
    """Return the node of the key that a place ends with."""
    node, _ = _at_path(root, place[:-1])
    if not isinstance(node, yaml.MappingNode):
        return None
    return next((key for key, _ in _pairs(node) if key.value == place[-1]), None)


def _meant(place: tuple[int | str, ...]) -> list[str]:
    """Return the key that an unknown one may mean."""
    known = {name for part in (Suite, Case, Expected, Forbidden, Criteria, Turn) for name in part.model_fields}
    return get_close_matches(str(place[-1]), sorted(known), n=1)

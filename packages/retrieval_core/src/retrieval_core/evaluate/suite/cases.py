"""Suites: their cases, the expected results of each, and how a file of cases is read."""

from __future__ import annotations

import json
import re
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, cast

import yaml
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

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
MOST_PROBLEMS = 20
"""Maximum number of problems that an error lists."""

_TAG = "tag:yaml.org,2002:"


def _check_not_blank(text: str) -> str:
    if not text.strip():
        msg = "it must not be empty"
        raise ValueError(msg)
    return text


def _check_name(text: str) -> str:
    if not text.isprintable() or text != text.strip():
        msg = "a name is one line without control characters, and without white space around it"
        raise ValueError(msg)
    return text


def _grade_list(value: object) -> object:
    """Return a list of ids as grades of 1."""
    if not isinstance(value, list):
        return value
    ids = cast("list[object]", value)
    for number, item in enumerate(ids):
        if not isinstance(item, str):
            msg = f"entry {number + 1} must be text, got {item!r:.80}"
            raise ValueError(msg)  # noqa: TRY004 - pydantic reports this kind only
        if item in ids[:number]:
            msg = f"{item!r:.200} is listed twice"
            raise ValueError(msg)
    return dict.fromkeys(cast("list[str]", ids), 1)


def _check_filter(value: dict[str, Any]) -> dict[str, Any]:
    try:
        parse_filter(value)
    except FilterError as error:
        raise ValueError(str(error)) from error
    return value


Text: TypeAlias = Annotated[str, Field(strict=True, min_length=1), AfterValidator(_check_not_blank)]
Name: TypeAlias = Annotated[str, Field(strict=True, min_length=1, max_length=LONGEST_NAME), AfterValidator(_check_name)]
Share: TypeAlias = Annotated[float, Field(ge=0, le=1)]
Milliseconds: TypeAlias = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Grade: TypeAlias = Annotated[int, Field(strict=True, ge=1, le=HIGHEST_GRADE)]
FilterObject: TypeAlias = Annotated[dict[str, Any], AfterValidator(_check_filter)]
Grades: TypeAlias = Annotated[dict[Text, Grade], BeforeValidator(_grade_list)]
"""Expected items with a grade for each, from 1. A list has the grade 1 for all."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Expected(_Part):
    """Documents, chunks and phrases that the results must contain."""

    documents: Grades = Field(default_factory=dict)
    """IDs of documents, such as ``guide/setup.md``."""
    chunks: Grades = Field(default_factory=dict)
    """IDs of chunks, such as ``guide/setup.md#3``."""
    phrases: Grades = Field(default_factory=dict)
    """Texts that one chunk must contain. Case, white space and the form of Unicode are ignored."""
    matches: Literal["all", "any"] = "all"
    """Whether ``all`` documents, chunks and phrases are expected, or ``any`` of them is enough."""
    keywords: Annotated[list[Text], Field(strict=True)] = Field(default_factory=list[str])
    """Words or sequences of words. Some chunk must contain each as whole words, ignoring case."""

    def items(self) -> list[tuple[str, str, int]]:
        """Return the expected items as (``document``, ``chunk`` or ``phrase``; text; grade)."""
        kinds = {"document": self.documents, "chunk": self.chunks, "phrase": self.phrases}
        return [(kind, text, grade) for kind, graded in kinds.items() for text, grade in graded.items()]


class Forbidden(_Part):
    """Documents, chunks and phrases that the results must not contain."""

    documents: list[Text] = Field(default_factory=list[str])
    chunks: list[Text] = Field(default_factory=list[str])
    phrases: list[Text] = Field(default_factory=list[str])

    def items(self) -> list[tuple[str, str]]:
        """Return the forbidden items as (``document``, ``chunk`` or ``phrase``; text)."""
        kinds = {"document": self.documents, "chunk": self.chunks, "phrase": self.phrases}
        return [(kind, text) for kind, texts in kinds.items() for text in texts]


class Turn(_Part):
    """One turn of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: Annotated[str, Field(strict=True)]


class CaseOptions(_Part):
    """Options of a query, and limits that its results must meet."""

    top_k: Annotated[int, Field(strict=True, ge=1, le=100)] = 10
    """Maximum number of results, 1 to 100."""
    mode: SearchMode | None = None
    """Vector search (``dense``), keyword search (``lexical``) or both (``hybrid``). Default: the configured one."""
    score_threshold: Share | None = None
    """Minimum cosine similarity of query and chunk. Others are not returned."""
    relevance_threshold: Share | None = None
    """Minimum cosine similarity of the best chunk of each expected document. If none is expected: of the best chunk."""
    latency_ms: Milliseconds | None = None
    """Maximum duration of the query in milliseconds."""
    filter: FilterObject | None = None
    """Filter that every chunk must pass; see docs/filters.md."""


class Case(CaseOptions):
    """A query with its expected results."""

    name: Name
    """Unique in its suite."""
    query: Text
    expect: Expected = Expected()
    forbid: Forbidden = Forbidden()
    finds_nothing: bool = False
    """Whether there should be no results, or only results that are unlikely to answer the query."""
    paraphrases: list[Text] = Field(default_factory=list[str])
    """The query in other words. Each must meet the same expectations."""
    history: list[Turn] = Field(default_factory=list[Turn])
    """Earlier turns of the conversation, oldest first."""
    tags: list[Name] = Field(default_factory=list[str])
    skip: Text | None = None
    """Why the case is not run for now."""
    note: str | None = None
    """For people."""

    @property
    def has_expectation(self) -> bool:
        """Whether there is anything that could fail."""
        limits = (self.relevance_threshold, self.latency_ms)
        wanted = (*self.expect.items(), *self.expect.keywords, *self.forbid.items())
        return bool(wanted) or self.finds_nothing or any(limit is not None for limit in limits)

    @model_validator(mode="after")
    def _check_contradictions(self) -> Self:
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
    """Limits for a whole suite; ``null`` disables one."""

    fetch_ms: Milliseconds | None = 100.0
    """Reading one chunk by its ID, 95th percentile (SC-001)."""
    average_ms: Milliseconds | None = 500.0
    """Average duration of a query (SC-002)."""
    found_in_first_five: Share | None = 0.95
    """Share of the cases with expected documents that have all of them among the first five results (SC-003)."""
    pass_rate: Annotated[float, Field(ge=0, le=100)] | None = 100.0
    """Percentage of the cases that pass (SC-004)."""


class Suite(_Part):
    """Test cases of one index, and criteria for all of them together."""

    name: Name
    description: str | None = None
    index: Text | None = None
    """Index file, relative to the suite's folder. The command line overrides it."""
    defaults: CaseOptions = CaseOptions()
    """Options of every case that does not set them."""
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
            if case.finds_nothing:  # so no result can be similar enough
                missing.pop("relevance_threshold", None)
            complete = case.model_copy(update=missing)
            if not complete.has_expectation:
                msg = "it expects nothing; give it expect, forbid, finds_nothing, or a threshold"
                raise CaseError(number, "name", msg)
            cases.append(complete)
        object.__setattr__(self, "cases", cases)
        return self


class CaseError(ValueError):
    """A case does not fit into its suite. ``place`` is the field of the case with that number, from 0."""

    def __init__(self, number: int, field: str, message: str) -> None:
        super().__init__(message)
        self.place = ("cases", number, field)


def read_suite(path: Path) -> Suite:
    """Read a suite from its file; see :func:`read_with_lines`."""
    return read_with_lines(path)[0]


def read_with_lines(path: Path) -> tuple[Suite, tuple[int, ...]]:
    """Read a suite from its file, and return it with the first line of each case, from 1.

    Plain words mean the same as in JSON: numbers, ``true``, ``false`` and ``null``. All others are text, such as
    ``no`` and ``2024-01-01``. Duplicate and unknown keys are rejected.

    Raises:
        UnreadableFileError: The file cannot be read, or is not UTF-8.
        SuiteFileError: It is not well formed. The error has each problem with line and column.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UnreadableFileError(str(path), f"it cannot be opened: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise UnreadableFileError(str(path), f"it is not UTF-8 at byte {error.start}") from error
    return _Reader(text, str(path), path.suffix.lower() == ".json").read()


def parse_suite(text: str, name: str = "<suite>", *, is_json: bool = False) -> Suite:
    """Read a suite from a text; see :func:`read_with_lines`.

    Args:
        name: Name of the file in messages.
        is_json: Whether the text is JSON instead of YAML.

    Raises:
        SuiteFileError: It is not well formed.
    """
    return _Reader(text, name, is_json).read()[0]


class _Loader(yaml.SafeLoader):
    """Reads plain words as JSON does, and rejects duplicate keys."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in _pairs(node):
            problem = None
            if key.tag != f"{_TAG}str":
                problem = "a key is text; put it in quotation marks"
            elif key.value in seen:
                problem = f"the key {key.value!r:.200} is there twice"
            if problem is not None:
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep=deep)


_Loader.yaml_implicit_resolvers = {}
for _kind, _words, _beginnings in (
    ("bool", r"(?:true|false)\Z", "tf"),
    ("null", r"(?:null|~|)\Z", ["n", "~", ""]),
    ("int", r"-?(?:0|[1-9][0-9]{0,99})\Z", "-0123456789"),
    ("float", r"-?(?:0|[1-9][0-9]{0,99})\.[0-9]+(?:[eE][-+][0-9]+)?\Z", "-0123456789"),
):
    cast("Any", _Loader).add_implicit_resolver(f"{_TAG}{_kind}", re.compile(_words), list(_beginnings))


class _Reader:
    def __init__(self, text: str, name: str, is_json: bool) -> None:
        self._text = text
        self._name = name
        self._is_json = is_json

    def read(self) -> tuple[Suite, tuple[int, ...]]:
        root, value = self._parse()
        if not isinstance(root, yaml.MappingNode):
            msg = "a suite is an object with the keys name and cases" if root else "it is empty"
            raise self._error(*(_place(root.start_mark) if root else (1, 1)), msg)
        try:
            suite = Suite.model_validate(value)
        except ValidationError as error:
            problems = sorted(self._problems(root, error))
            told = [self._line(place, message) for place, message in problems]
            more = [f"{self._name}: {len(told) - MOST_PROBLEMS} more problems"] if len(told) > MOST_PROBLEMS else []
            raise SuiteFileError(self._name, *problems[0][0], told[:MOST_PROBLEMS] + more) from None
        nodes = [_node_at(root, ("cases", number))[0] for number in range(len(suite.cases))]
        return suite, tuple(_place(node.start_mark)[0] for node in nodes)

    def _parse(self) -> tuple[yaml.Node | None, Any]:
        """Return the nodes of the text, which have the places, and its value."""
        text, value = self._text, None
        try:
            if self._is_json:
                value = json.loads(text)
                text = text.replace("\t", " ")  # JSON has tabs only between its tokens, and YAML allows none there
            loader = cast("Any", _Loader(text))
            root = loader.get_single_node()
            read = None if root is None else loader.construct_document(root)  # finds duplicate keys, in JSON too
        except json.JSONDecodeError as error:
            raise self._error(error.lineno, error.colno, f"this is no JSON: {error.msg}") from None
        except ValueError as error:
            raise self._error(1, 1, str(error)) from None
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            told = " ".join(filter(None, (error.context, error.problem)))
            hint = "; put text with a ?, : or , between braces in quotation marks" if "flow" in told else ""
            raise self._error(*_place(mark), f"{told}{hint}") from None
        except yaml.reader.ReaderError as error:
            before = text[: error.position]
            line, column = before.count("\n") + 1, error.position - before.rfind("\n")
            raise self._error(line, column, f"the character U+{error.character:04X} is not allowed here") from None
        except RecursionError:
            raise self._error(1, 1, "it nests too deeply") from None
        return root, value if self._is_json else read

    def _problems(self, root: yaml.MappingNode, error: ValidationError) -> Iterator[tuple[tuple[int, int], str]]:
        lines = problems_of(error, meant=_similar_keys, noun="key")
        for found, line in zip(error.errors(include_url=False), lines, strict=True):
            place: Sequence[int | str] = found["loc"]
            own = (found.get("ctx") or {}).get("error")
            if isinstance(own, CaseError):
                place = own.place
            node, path = _node_at(root, place)
            if found["type"] == "extra_forbidden":
                parent, _ = _node_at(root, place[:-1])
                node = next((key for key, _ in _pairs(parent) if key.value == place[-1]), node)
            if found["type"] == "missing":
                path = f"{path.removesuffix(': ')}.{place[-1]}: ".lstrip(".")
            yield _place(node.start_mark), path + line.partition(": ")[2]

    def _error(self, line: int, column: int, message: str) -> SuiteFileError:
        return SuiteFileError(self._name, line, column, [self._line((line, column), message)])

    def _line(self, place: tuple[int, int], message: str) -> str:
        return f"{self._name}:{place[0]}:{place[1]}: {message}"


def _place(mark: Any) -> tuple[int, int]:
    """Return line and column, from 1."""
    return (1, 1) if mark is None else (mark.line + 1, mark.column + 1)


def _pairs(node: yaml.Node) -> list[tuple[yaml.Node, yaml.Node]]:
    return cast("list[tuple[yaml.Node, yaml.Node]]", node.value if isinstance(node, yaml.MappingNode) else [])


def _node_at(root: yaml.MappingNode, place: Sequence[int | str]) -> tuple[yaml.Node, str]:
    """Return the node at a place, or the innermost one around it, and the place as people write it."""
    node: yaml.Node = root
    path = ""
    for part in place:
        children = cast("list[yaml.Node]", node.value if isinstance(node, yaml.SequenceNode) else [])
        if isinstance(part, int) and part < len(children):
            node = children[part]
            path += f"[{part + 1}]"
            continue
        child = next((value for key, value in _pairs(node) if key.value == part), None)
        if child is None:
            break
        node = child
        path += f".{part}"
    return node, f"{path.lstrip('.')}: " if path else ""


def _similar_keys(place: tuple[int | str, ...]) -> list[str]:
    """Return the key that an unknown one may mean."""
    known = {name for part in (Suite, Case, Expected, Forbidden, Criteria, Turn) for name in part.model_fields}
    return get_close_matches(str(place[-1]), sorted(known), n=1)

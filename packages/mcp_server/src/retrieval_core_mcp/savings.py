"""How much an assistant reads before it has seen the answer: the tools of this server beside grep and whole files.

Scripted agents, without a language model, look for the answers of questions whose places are known. They don't know
when to stop: each goes on until it has read the largest budget. A question is answered once the words of all its places
were seen. White space, case, line numbers and the marks of Markdown make no difference. Four characters are one token.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

from mcp import Client
from retrieval_core.errors import InvalidParameterError
from retrieval_core_mcp.server import create_server
from retrieval_core_mcp.settings import ServerSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from mcp.server.lowlevel import Server

    from retrieval_core.config import RetrievalConfig

BUDGETS = (500, 1000, 2000, 4000, 8000)
"""Tokens after which it is looked how many questions are answered."""
GRID = tuple(2 ** (7 + step / 4) for step in range(25))
"""Budgets from 128 to 8,192 tokens; the mean over them is one figure for all."""
MOST = BUDGETS[-1]
_LOADING_SECONDS = 60
FETCHED, GREPPED, LISTED, AROUND = 8, 4, 20, 8
"""Hits that are fetched, words that are grepped for, files that are listed, and lines around a match."""
_MARKS = re.compile(r"[`*_>#|\\]+")
_LINE_NUMBER = re.compile(r"^\s*\d+[:|\t] ?", re.MULTILINE)
_WORD = re.compile(r"[\w./-]+")
_CURSOR = re.compile(r"cursor[: ]+([\w./-]*\w)", re.IGNORECASE)
_NAMED = re.compile(r"^\[\d+\] (?P<name>.+?)(?: \(id: (?P<id>[^)]+)\))?(?= \u00b7 | \| |$)", re.MULTILINE)
_CITED = re.compile(
    r"^\W*(?:\d+\W+)?(?P<path>\S[^\n]*?):(?P<first>\d+)-(?P<last>\d+)\b[^\n]*\n(?P<text>.*?)(?=^\[\d+\] |\Z)",
    re.MULTILINE | re.DOTALL,
)
_SMALL_WORDS = (
    "a an and are as at be by can do does for from had has have how i if in into is it its me my of on or our should "
    "so such than that the their them then there these they this to was we what when where which who why will with "
    "would you your not no any all use used using get"
)
_SMALL = frozenset(_SMALL_WORDS.split())


def fold(text: str) -> str:
    """Return a text as it is compared."""
    return " ".join(_MARKS.sub(" ", _LINE_NUMBER.sub("", text)).split()).lower()


def count_tokens(text: str) -> int:
    """Return the tokens of a text, four characters each."""
    return math.ceil(len(text) / 4)


@dataclass(frozen=True, slots=True)
class JudgedQuestion:
    """A question with the places of its answer.

    Attributes:
        places: All of them have to be seen, each in one of its wordings. Empty: the files don't answer it.
    """

    text: str
    places: tuple[tuple[str, ...], ...]

    def find_in(self, read: Sequence[str]) -> tuple[int, int] | None:
        """Return the tokens and the calls after which it is answered; ``None`` if it isn't.

        Args:
            read: All that was read after each call.
        """
        if not read or any(not any(words in fold(read[-1]) for words in wordings) for wordings in self.places):
            return None
        tokens, calls = 0, 0
        for wordings in self.places:
            at, folded = next(
                (at, folded) for at, folded in enumerate(map(fold, read)) if any(words in folded for words in wordings)
            )
            first = min(place for words in wordings if (place := folded.find(words)) >= 0)
            part = math.ceil(first / max(1, len(folded)) * count_tokens(read[at])) + 1
            tokens = max(tokens, part, count_tokens(read[at - 1]) if at else 0)
            calls = max(calls, at + 1)
        return tokens, calls


class TextFiles:
    """The text files of a folder, as an assistant greps and reads them."""

    def __init__(self, folder: Path) -> None:
        self.lines: dict[str, list[str]] = {}
        for path in sorted(folder.rglob("*")):
            if path.is_file() and ".git" not in path.parts:
                try:
                    text = path.read_text("utf-8")
                except (UnicodeDecodeError, OSError):
                    continue
                if "\0" not in text:
                    self.lines[path.relative_to(folder).as_posix()] = text.splitlines()
        self._folded = {path: [line.lower() for line in lines] for path, lines in self.lines.items()}

    def find_words(self, question: str) -> list[tuple[str, list[tuple[str, int]]]]:
        """Return the words of a question with the lines that contain them, the rarest first."""
        words = [w for w in dict.fromkeys(_WORD.findall(question)) if w.lower() not in _SMALL and len(w) > 2]
        found: list[tuple[int, str, list[tuple[str, int]]]] = []
        for word in words:
            wanted = word.lower().strip(".,?")
            hits = [
                (path, at) for path, lines in self._folded.items() for at, line in enumerate(lines) if wanted in line
            ]
            if hits:
                found.append((len(hits), word, hits))
        return [(word, hits) for _, word, hits in sorted(found)]

    def grep_and_read(self, question: str) -> Iterator[str]:
        """Yield what each call shows: the names of the files with the rarest words, and then whole files."""
        score: defaultdict[str, float] = defaultdict(float)
        for _, hits in self.find_words(question):
            paths = dict.fromkeys(path for path, _ in hits)
            for path in paths:
                score[path] += 1 / (1 + math.log(1 + len(paths)))
        order = sorted(sorted(score), key=lambda path: -score[path])
        yield "\n".join(order[:LISTED]) + "\n"
        for path in order:
            yield f"{path}\n{self._numbered(path, range(len(self.lines[path])))}"

    def grep_around(self, question: str) -> Iterator[str]:
        """Yield each match with the lines around it, those of the rarest word first, and no line twice."""
        seen: set[tuple[str, int]] = set()
        for _, hits in self.find_words(question):
            for path, at in hits:
                lines = range(max(0, at - AROUND), min(len(self.lines[path]), at + AROUND + 1))
                new = [line for line in lines if (path, line) not in seen]
                if new:
                    seen.update((path, line) for line in new)
                    yield f"{path}\n{self._numbered(path, new)}"

    def _numbered(self, path: str, lines: Sequence[int]) -> str:
        return "".join(f"{line + 1}: {self.lines[path][line]}\n" for line in lines)

    def is_wrong(self, path: str, first: int, last: int, text: str) -> bool:
        """Return whether a citation names a file that isn't there, or lines that lack the text that is shown."""
        lines = self.lines.get(path) or next((found for name, found in self.lines.items() if path.endswith(name)), None)
        if lines is None or not 1 <= first <= last <= len(lines):
            return True
        shown = [fold(line) for line in text.splitlines()]
        there = fold("\n".join(lines[first - 1 : last]))
        return not any(line and line in there for line in shown)


def load_questions(path: Path, files: TextFiles) -> list[JudgedQuestion]:
    """Read questions, a JSON object each line.

    A question has ``question`` and ``gold``: places with ``contains``, the words to be seen, or with ``path`` and
    ``lines`` or ``start_line`` and ``end_line``. ``also`` has places that do as well: for the place whose number is
    ``for``, else for the only one. Without places the question is one that the files don't answer.

    Raises:
        InvalidParameterError: A line is no such question, or names lines that aren't there.
    """
    questions: list[JudgedQuestion] = []
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = cast("dict[str, Any]", json.loads(line))
            needed = [[_words(place, files)] for place in row.get("gold", ())]
            for place in row.get("also", ()):
                if "for" in place or len(needed) == 1:
                    needed[int(place.get("for", 0))].append(_words(place, files))
            questions.append(JudgedQuestion(str(row["question"]), tuple(map(tuple, needed))))
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            msg = (
                f"{path}, line {number}: {error!r} is not a question. Write one JSON object each line, such as "
                '{"question": "…", "gold": [{"path": "guide.md", "lines": [3, 5]}]}'
            )
            raise InvalidParameterError(msg) from error
    return questions


def _words(place: Mapping[str, Any], files: TextFiles) -> str:
    words = place.get("contains")
    if words is None:
        first, last = place.get("lines") or (place["start_line"], place["end_line"])
        words = "\n".join(files.lines[place["path"]][first - 1 : last])
    if not fold(words):
        msg = f"{words!r} has no words"
        raise ValueError(msg)
    return fold(words)


@dataclass(slots=True)
class Reading:
    """What one agent read for one question: all of it after each call."""

    read: list[str] = field(default_factory=list[str])

    def add(self, shown: str) -> bool:
        """Add what a call showed, and return whether there is room for more."""
        self.read.append((self.read[-1] if self.read else "") + shown)
        return count_tokens(self.read[-1]) <= MOST


@dataclass(frozen=True, slots=True)
class AgentFigures:
    """The figures of one agent.

    Attributes:
        recall: By budget in tokens: the part of the answerable questions whose answer was seen within it.
        mean: The mean of that over budgets from 128 to 8,192 tokens, on a logarithmic scale.
        tokens_with_oracle: Tokens read for a question in the mean, if an oracle stops the agent after the call that
            shows the answer. Where none does, it reads on to the largest budget.
        calls_with_oracle: Likewise the calls.
    """

    agent: str
    recall: dict[int, float]
    mean: float
    tokens_with_oracle: float
    calls_with_oracle: float


@dataclass(frozen=True, slots=True)
class SavingsReport:
    """The figures of all agents.

    Attributes:
        tools: Tokens of the list of tools and the server's instructions, which every agent of this server has read.
        absent: Parts of the unanswerable and of the answerable questions that are said to be not in the documents.
        citations: How many ``path:lines`` the searches showed.
        wrong_citations: How many of them name lines without the text that is shown.
    """

    questions: int
    answerable: int
    agents: tuple[AgentFigures, ...]
    tools: int
    absent: tuple[float, float]
    citations: int
    wrong_citations: int

    def render(self) -> str:
        """Return a table."""
        head = f"{'':30}" + "".join(f"{f'{budget:,}':>8}" for budget in BUDGETS)
        lines = [f"{head}{'mean':>8}{'with an oracle':>26}"]
        for each in self.agents:
            recall = "".join(f"{each.recall[budget]:8.2f}" for budget in BUDGETS)
            oracle = f"{each.tokens_with_oracle:,.0f} tokens, {each.calls_with_oracle:.1f} calls"
            lines.append(f"{each.agent:30}{recall}{each.mean:8.3f}{oracle:>26}")
        unanswerable = self.questions - self.answerable
        lines.append(f"Recall of {self.answerable} questions by tokens read, list of tools ({self.tools:,}) counted.")
        lines.append(
            f"Said to be not in the documents: {self.absent[0]:.0%} of {unanswerable} unanswerable and "
            f"{self.absent[1]:.0%} of {self.answerable} answerable questions."
        )
        lines.append(f"Citations with lines: {self.citations:,}, {self.wrong_citations:,} wrong.")
        return "\n".join(lines)


def run_savings(load: Callable[[], RetrievalConfig], questions: Path, folder: Path, *, as_json: bool) -> None:
    """Print the report of one index, as a table or as JSON.

    Raises:
        InvalidParameterError: The questions can't be read.
    """
    files = TextFiles(folder)
    asked = load_questions(questions, files)
    settings = ServerSettings(retrieval=load(), wait_seconds=_LOADING_SECONDS)
    report = asyncio.run(measure_savings(create_server(settings), asked, files))
    print(json.dumps(asdict(report), indent=2) if as_json else report.render())  # noqa: T201 - for a terminal


async def measure_savings(server: Server[Any], questions: Sequence[JudgedQuestion], files: TextFiles) -> SavingsReport:
    """Let scripted agents look for answers, with the tools of this server and with grep.

    Args:
        server: Serves an index of these files.
        files: What the other agents grep and read.
    """
    answerable = [question for question in questions if question.places]
    figures: list[AgentFigures] = []
    for name, agent in (("grep, then whole files", files.grep_and_read), ("grep with lines around", files.grep_around)):
        readings = [_read(agent, question.text) for question in answerable]
        figures.append(_figures(name, answerable, readings, 0))
    async with Client(server) as client:
        listed = (await client.list_tools()).tools
        told = "".join(
            json.dumps(tool.model_dump(mode="json", by_alias=True, exclude_none=True), separators=(",", ":"))
            for tool in listed
        )
        base = count_tokens(told + (client.instructions or ""))
        assistant = _Assistant(client, {tool.name for tool in listed}, files)
        readings_of = {
            name: [await _drain(agent(question.text)) for question in answerable] for name, agent in assistant.agents()
        }
        figures += [_figures(name, answerable, readings, base) for name, readings in readings_of.items()]
        absent = {True: list[bool](), False: list[bool]()}
        citations = wrong = 0
        for question in questions:
            shown = await assistant.call("search", query=question.text)
            body = shown.split("\n", 1)[1].lstrip()
            absent[bool(question.places)].append(body.lower().startswith("not in these documents"))
            for found in _CITED.finditer(shown):
                citations += 1
                wrong += files.is_wrong(found["path"], int(found["first"]), int(found["last"]), found["text"])
    parts = tuple(sum(said) / max(1, len(said)) for said in (absent[False], absent[True]))
    return SavingsReport(
        len(questions), len(answerable), tuple(figures), base, cast("tuple[float, float]", parts), citations, wrong
    )


class _Assistant:
    """Calls the tools of a server."""

    def __init__(self, client: Any, tools: set[str], files: TextFiles) -> None:
        self._client, self._tools, self._files = client, tools, files

    def agents(self) -> list[tuple[str, Callable[[str], AsyncIterator[str]]]]:
        """Return the agents that the tools allow."""
        found = [("search", self.search), ("search, further pages", self.pages), ("search, fetch", self.fetch)]
        found += [("search, grep", self.grep)] if "grep" in self._tools else []
        return found + ([("answer", self.answer)] if "answer" in self._tools else [])

    async def call(self, tool: str, **arguments: Any) -> str:
        """Return a call and its answer, as a model reads them; the answer is empty if the call failed."""
        answer = await self._client.call_tool(tool, arguments)
        shown = "" if answer.is_error else "".join(getattr(part, "text", "") for part in answer.content)
        return f"{json.dumps(arguments)}\n{shown}\n"

    async def search(self, question: str) -> AsyncIterator[str]:
        yield await self.call("search", query=question)

    async def pages(self, question: str) -> AsyncIterator[str]:
        shown = await self.call("search", query=question)
        yield shown
        while (cursor := _CURSOR.search(shown.split("\n", 1)[1])) is not None:
            shown = await self.call("search", query=question, cursor=cursor[1])
            yield shown

    async def fetch(self, question: str) -> AsyncIterator[str]:
        shown = await self.call("search", query=question)
        yield shown
        for found in islice(_NAMED.finditer(shown), FETCHED):
            yield await self.call("fetch", id=found["id"] or found["name"])

    async def grep(self, question: str) -> AsyncIterator[str]:
        yield await self.call("search", query=question)
        for word, _ in self._files.find_words(question)[:GREPPED]:
            yield await self.call("grep", pattern=word)

    async def answer(self, question: str) -> AsyncIterator[str]:
        yield await self.call("answer", query=question)


def _read(agent: Callable[[str], Iterator[str]], question: str) -> Reading:
    reading = Reading()
    for shown in agent(question):
        if not reading.add(shown):
            break
    return reading


async def _drain(agent: AsyncIterator[str]) -> Reading:
    reading = Reading()
    async for shown in agent:
        if not reading.add(shown):
            break
    return reading


def _figures(name: str, questions: Sequence[JudgedQuestion], readings: Sequence[Reading], base: int) -> AgentFigures:
    count = max(1, len(questions))
    seen: list[int | None] = []
    tokens = calls = 0
    for question, reading in zip(questions, readings, strict=True):
        found = question.find_in(reading.read)
        seen.append(None if found is None else found[0] + base)
        read = reading.read[: len(reading.read) if found is None else found[1]]
        tokens += base + (count_tokens(read[-1]) if read else 0)
        calls += len(read)

    def recall(budget: float) -> float:
        return sum(after is not None and after <= budget for after in seen) / count

    by_budget = {budget: recall(budget) for budget in BUDGETS}
    return AgentFigures(name, by_budget, sum(map(recall, GRID)) / len(GRID), tokens / count, calls / count)

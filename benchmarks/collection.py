"""Passages, vectors and questions, the same for every system: made up for speed, written by people for quality.

What is made up is the same in every run. Words follow the law of Zipf and Mandelbrot, ``1 / (rank + 2.7)``. The most
frequent ones are English stop words that every analysis knows; the others are made of consonants, so that no stemmer
shortens them. A passage has 30 to 90 words.
Vectors have 384 components, unit length, and lie around 500 centres, as those of texts do. A question consists of 4 to
10 different words of one passage, and its vector lies near that of the same passage.

Both kinds are kept in a folder, as arrays that other processes map into memory. Needs numpy alone: the environment of
each system reads it.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    Floats = NDArray[np.float32]
    Ints = NDArray[np.int32]
    Rows = NDArray[np.intp]

Mode: TypeAlias = Literal["hybrid", "dense", "lexical"]

TOP_K = 10
CANDIDATES = 50
"""Passages asked of each side, before they are combined."""
DIMENSION = 384
CENTRES = 500
SPREAD = 0.7
"""Standard deviation around a centre, of which each component has 1."""
DISTANCE = 0.75
"""Length of what a question's vector has beside its passage's; the cosine of the two is .8."""
STOP_WORDS = (
    "the", "of", "and", "to", "in", "a", "is", "it", "that", "for", "as", "with", "was", "on", "are", "be", "by", "at",
    "this", "not", "or", "an", "they", "but", "if", "will", "no", "their", "there", "then", "these", "such", "into",
)  # fmt: skip
VOCABULARY = 50_000
LENGTHS = (30, 90)
"""Words of a passage, the fewest and the most."""
QUESTION_LENGTHS = (4, 10)
BLOCK = 10_000
SEED = 20
WRITTEN = "written.json"


@dataclass(frozen=True, slots=True)
class Condition:
    """A filter on a number of the passages' metadata."""

    field: Literal["tenant", "part"]
    operator: Literal["==", "<"]
    value: int

    def passes(self, rows: Rows) -> NDArray[np.bool_]:
        """Return which passages pass."""
        numbers = rows % PARTS[self.field]
        return numbers == self.value if self.operator == "==" else numbers < self.value


PARTS = {"tenant": 100, "part": 10}
"""The fields of a passage's metadata, each its row modulo this number."""
FILTERS = {"1 %": Condition("tenant", "==", 3), "50 %": Condition("part", "<", 5)}
"""By the share of the passages that pass."""


def metadata(row: int) -> dict[str, int]:
    """Return the metadata of a passage."""
    return {field: row % number for field, number in PARTS.items()}


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked: words, a vector of unit length, and what the passages have to pass."""

    text: str
    vector: Floats
    condition: Condition | None = None
    mode: Mode = "hybrid"


class Collection(ABC):
    """Passages and questions in a folder.

    Attributes:
        vectors: Of all passages, ``(passages, dimension)``, mapped into memory.
        candidates: Passages asked of each side, before they are combined; at most as many as there are.
    """

    candidates: int = CANDIDATES

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.vectors: Floats = np.load(folder / "vectors.npy", mmap_mode="r")
        self.question_vectors: Floats = np.load(folder / "question_vectors.npy")

    def __len__(self) -> int:
        """Return the number of passages."""
        return len(self.vectors)

    @property
    def dimension(self) -> int:
        """Components of a vector."""
        return self.vectors.shape[1]

    @abstractmethod
    def texts(self, start: int = 0, end: int | None = None) -> list[str]:
        """Return the texts of the passages in a range of rows."""

    @cached_property
    @abstractmethod
    def question_texts(self) -> list[str]:
        """The words of all questions."""

    def question(self, number: int, condition: Condition | None = None, mode: Mode = "hybrid") -> Question:
        """Return one question; numbers beyond the last begin again."""
        number %= len(self.question_texts)
        return Question(self.question_texts[number], self.question_vectors[number], condition, mode)


class MadeUp(Collection):
    """A folder that :func:`make` has filled.

    Attributes:
        words: Of all passages one after the other, as ranks in the vocabulary.
        ends: Where the words of each passage end.
        question_words: Of each question, as ranks too.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.words: Ints = np.load(folder / "words.npy", mmap_mode="r")
        self.ends: NDArray[np.int64] = np.load(folder / "ends.npy")
        self.question_words: list[list[int]] = json.loads((folder / "questions.json").read_text("utf-8"))

    @cached_property
    def _vocabulary(self) -> NDArray[np.object_]:
        return np.array(vocabulary(), dtype=np.object_)

    def texts(self, start: int = 0, end: int | None = None) -> list[str]:
        """Return the texts of the passages in a range of rows."""
        ends = self.ends[start:end].tolist()
        begin = int(self.ends[start - 1]) if start else 0
        words = self._vocabulary[self.words[begin : ends[-1]]]
        starts = [begin, *ends[:-1]]
        return [" ".join(words[first - begin : last - begin]) for first, last in zip(starts, ends, strict=True)]

    @cached_property
    def question_texts(self) -> list[str]:
        """The words of all questions."""
        return [" ".join(self._vocabulary[numbers]) for numbers in self.question_words]


class Written(Collection):
    """A folder that :func:`keep` has filled: each document is one passage, its title in front.

    Attributes:
        documents: Title, which may be empty, and text of each.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        kept: dict[str, Any] = json.loads((folder / WRITTEN).read_text("utf-8"))
        self.documents: list[tuple[str, str]] = [(title, text) for title, text in kept["documents"]]
        self.candidates: int = min(kept["candidates"], len(self.documents))
        self._questions: list[str] = kept["questions"]

    def texts(self, start: int = 0, end: int | None = None) -> list[str]:
        """Return the texts of the passages in a range of rows."""
        return [passage(title, text) for title, text in self.documents[start:end]]

    @cached_property
    def question_texts(self) -> list[str]:
        """The words of all questions."""
        return self._questions


def opened(folder: Path) -> Collection:
    """Return the collection in a folder."""
    return (Written if (folder / WRITTEN).exists() else MadeUp)(folder)


def passage(title: str, text: str) -> str:
    """Return what is searched of a document that is one passage."""
    return f"{title}\n{text}" if title else text


def keep(
    folder: Path,
    documents: Sequence[tuple[str, str]],
    questions: Sequence[str],
    *,
    vectors: Floats,
    question_vectors: Floats,
    candidates: int,
) -> Written:
    """Keep documents, as titles and texts, and questions in a folder that is there, with the vectors of both."""
    np.save(folder / "vectors.npy", vectors)
    np.save(folder / "question_vectors.npy", question_vectors)
    kept = {"documents": documents, "questions": questions, "candidates": candidates}
    (folder / WRITTEN).write_text(json.dumps(kept), "utf-8")
    return Written(folder)


def make(folder: Path, passages: int, questions: int) -> MadeUp:
    """Make passages and questions, in a folder that is there."""
    generator = np.random.default_rng((SEED, passages))
    lengths = generator.integers(LENGTHS[0], LENGTHS[1], size=passages, endpoint=True)
    ends = np.cumsum(lengths)
    words = _words(generator, int(ends[-1]))
    np.save(folder / "words.npy", words)
    np.save(folder / "ends.npy", ends)
    vectors = np.lib.format.open_memmap(
        folder / "vectors.npy", mode="w+", dtype=np.float32, shape=(passages, DIMENSION)
    )
    centres = generator.normal(size=(CENTRES, DIMENSION))
    for start in range(0, passages, BLOCK):
        rows = len(vectors[start : start + BLOCK])
        part = centres[generator.integers(CENTRES, size=rows)]
        vectors[start : start + BLOCK] = _unit(part + SPREAD * generator.normal(size=(rows, DIMENSION)))
    asked = generator.integers(passages, size=questions)
    noise = _unit(generator.normal(size=(questions, DIMENSION)))
    np.save(folder / "question_vectors.npy", _unit(vectors[asked] + DISTANCE * noise))
    chosen: list[list[int]] = []
    for row in asked.tolist():
        own = generator.permutation(words[ends[row] - lengths[row] : ends[row]]).tolist()
        chosen.append(list(dict.fromkeys(own))[: generator.integers(*QUESTION_LENGTHS, endpoint=True)])
    (folder / "questions.json").write_text(json.dumps(chosen), "utf-8")
    vectors.flush()
    return MadeUp(folder)


def vocabulary() -> list[str]:
    """Return all words, the most frequent first."""
    return [*STOP_WORDS] + [_word(number) for number in range(VOCABULARY - len(STOP_WORDS))]


def _words(generator: np.random.Generator, count: int) -> Ints:
    weights = np.cumsum(1 / (np.arange(1, VOCABULARY + 1) + 2.7))
    drawn = generator.random(count) * weights[-1]
    return np.asarray(np.searchsorted(weights, drawn), dtype=np.int32)


def _unit(vectors: Any) -> Floats:
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), dtype=np.float32)


def _word(number: int) -> str:
    letters: Sequence[str] = "bcdfghjklmnpqrtvwxz"
    made = "q"
    while number:
        number, letter = divmod(number, len(letters))
        made += letters[letter]
    return made + "q"

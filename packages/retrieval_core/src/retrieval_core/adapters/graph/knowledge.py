"""The knowledge graph: its triples, the comparison of names, and the search for the facts that bear on a question."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from typing import TYPE_CHECKING, Any, cast
from unicodedata import category

from retrieval_core.errors import ConfigurationError, InvalidParameterError
from retrieval_core.text.analysis import BY_CHARACTER, STOP_WORDS, Analyzer, fold

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]

LONGEST_NAME = 500
"""The most code points of a subject, a relation or an object."""
MOST_TRIPLES = 500_000
"""The most triples of one graph; more need a graph database."""
MOST_BYTES = 256 * 2**20
"""The most bytes of one file."""

_NAMES = ("subject", "relation", "object")
_PLACES = ("chunk_id", "document_id")
_RECORD = "content_hash"


@dataclass(frozen=True, slots=True)
class Triple:
    """A fact: subject, relation and object.

    Attributes:
        chunk_id: The chunk that states it, if one is known.
        document_id: The document that states it, if one is known.

    Raises:
        InvalidParameterError: A name is blank, longer than 500 code points, or not Unicode text.
    """

    subject: str
    relation: str
    object: str
    chunk_id: str | None = None
    document_id: str | None = None

    def __post_init__(self) -> None:
        for field in (*_NAMES, *_PLACES):
            value: object = getattr(self, field)
            if value is None and field in _PLACES:
                continue
            if not isinstance(value, str) or not value.strip():
                msg = f"{field} of a triple must be text that is not blank, got {value!r:.100}"
                raise InvalidParameterError(msg)
            if field in _NAMES and len(value) > LONGEST_NAME:
                msg = f"{field} of a triple has {len(value)} characters, and may have {LONGEST_NAME}: {value[:60]!r} …"
                raise InvalidParameterError(msg)
            if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
                msg = f"{field} of a triple is not valid Unicode: {value!r:.100}"
                raise InvalidParameterError(msg)

    def __str__(self) -> str:
        return f"{self.subject} -{self.relation}-> {self.object}"


def read_lines(data: bytes, path: Path) -> Iterator[Triple]:
    """Yield the triples in a file's lines; blank lines and records of extraction are ignored.

    Raises:
        ConfigurationError: A line is none of these, or the file is too large; the message names file and line.
    """
    if len(data) > MOST_BYTES:
        msg = f"{path} has {len(data) / 2**20:.0f} MB, and a graph may have {MOST_BYTES // 2**20}; divide it"
        raise ConfigurationError(msg)
    triples = 0
    for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            triple = _triple(line)
        except (ValueError, RecursionError) as error:  # InvalidParameterError is a ValueError
            msg = (
                f"{path}, line {number}: {error}. A line is an object such as "
                '{"subject": "Einstein", "relation": "born in", "object": "Ulm", "document_id": "einstein.md"}'
            )
            raise ConfigurationError(msg) from error
        if triple is None:
            continue
        triples += 1
        if triples > MOST_TRIPLES:
            msg = f"{path}, line {number}: a graph may have {MOST_TRIPLES} triples; leave some out"
            raise ConfigurationError(msg)
        yield triple


def _triple(line: bytes) -> Triple | None:
    """Return the triple of a line; ``None`` for a record, as earlier versions wrote between extracted triples."""
    found: Any = json.loads(line.decode("utf-8"))
    if not isinstance(found, dict):
        msg = f"expected an object, got {type(found).__name__}"
        raise ValueError(msg)  # noqa: TRY004 - the caller maps it
    values = cast("dict[str, Any]", found)
    if _RECORD in values:
        return None
    if unknown := sorted(values.keys() - {*_NAMES, *_PLACES}):
        msg = f"unknown field {', '.join(map(ascii, unknown))}"
        raise ValueError(msg)
    if missing := [field for field in _NAMES if field not in values]:
        msg = f"the field {missing[0]} is missing"
        raise ValueError(msg)
    return Triple(**values)


MOST_WORDS = 32
"""The most words of a name that is searched for; in scripts without spaces each character counts as a word."""

# Signs behind a word belong to it, as in C++ and C#; in front of one or between two they divide.
_WORD = re.compile(rf"[{BY_CHARACTER}]|[^\s+#{BY_CHARACTER}]+(?:[+#]+(?![^\s{BY_CHARACTER}]))?")
_IS_UNSPACED = re.compile(f"[{BY_CHARACTER}]")


class _Characters(dict[int, int]):
    """For :meth:`str.translate`: letters, digits and their marks stay, everything else divides words."""

    def __missing__(self, point: int) -> int:
        character = chr(point)
        self[point] = kept = point if category(character)[0] in "LNM" or character in "+#" else 32
        return kept


@cache
def _characters() -> _Characters:
    return _Characters()


def words_of(text: str) -> list[str]:
    """Return the folded words of a text; a character of a script without spaces is a word.

    Hyphens, dots, underscores and the like divide words, so that ``argocd-server`` and ``Argocd Server`` are alike;
    ``+`` and ``#`` behind a word belong to it. There is no stemming.
    """
    return _WORD.findall(fold(text).translate(_characters()))


def key_of(name: str) -> str:
    """Return a name's key, equal for all its spellings: its words or, where it has none, its characters."""
    return " ".join(words_of(name)) or " ".join(fold(name).split())


def mentions(text_key: str, name_key: str) -> bool:
    """Whether a text contains a name; both are keys of :func:`key_of`."""
    return bool(name_key) and f" {name_key} " in f" {text_key} "


def is_all_stop_words(key: str) -> bool:
    """Whether a name consists of stop words such as ``it`` and ``who``."""
    return STOP_WORDS.issuperset(key.split())


class Names:
    """Finds names in a text, in time linear in the text.

    Names of stop words, and of one character of a script without spaces, are left out: too much text has them.

    Args:
        spellings: Each name as it was written, with a number; equal :func:`key_of` must have equal numbers.
    """

    def __init__(self, spellings: Iterable[tuple[str, int]]) -> None:
        self._numbers: dict[str, int] = {}
        self._longest: dict[str, int] = {}
        for spelling, number in spellings:
            words = words_of(spelling)
            key = " ".join(words)
            if 0 < len(words) <= MOST_WORDS and not is_all_stop_words(key) and not _IS_UNSPACED.fullmatch(key):
                self._numbers[key] = number
                self._longest[words[0]] = max(len(words), self._longest.get(words[0], 0))

    def find(self, text: str) -> list[int]:
        """Return the numbers of the names in a text, each once, in the order of the text.

        At each word the longest name that begins there counts, and the search goes on behind it.
        """
        words = words_of(text)
        found: dict[int, None] = {}
        at = 0
        while at < len(words):
            length = min(self._longest.get(words[at], 0), len(words) - at)
            while length and " ".join(words[at : at + length]) not in self._numbers:
                length -= 1
            if length:
                found[self._numbers[" ".join(words[at : at + length])]] = None
            at += length or 1
        return list(found)


ALL, RELATION, ENTITIES, BRIDGE, NEIGHBOUR = 4.0, 3.0, 2.0, 1.5, 1.0
"""Scores of a fact: it has two entities and a relation of the question, an entity and a relation, or two entities; it
is a step between two entities or towards a relation; or it has one entity."""
MOST_ENTITIES = 16
"""The most entities of a question that are followed."""
MOST_EDGES = 50
"""The most facts of an entity that are kept, and neighbours that are visited. Of an entity with more facts, only those
count that have a relation or a second entity of the question."""
MOST_FACTS = 100
"""The most facts that are returned."""

_CAPITAL_INSIDE = re.compile(r"(?<=[a-z])(?=[A-Z])|_")


@dataclass(frozen=True, slots=True)
class Fact:
    """A triple that bears on a question, with a score from :data:`NEIGHBOUR` to :data:`ALL`."""

    triple: Triple
    score: float


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts of a graph that bear on a question.

    Attributes:
        entities: Those that the question names, as the graph first spells them, in the order of the question.
        relations: Those that the question names and a fact has, in alphabetical order.
        facts: Best first; equal ones in the order of the triples.
    """

    entities: tuple[str, ...] = ()
    relations: tuple[str, ...] = ()
    facts: tuple[Fact, ...] = ()


class KnowledgeGraph:
    """Triples as a graph: entities are its nodes, facts its edges, of which there may be several between two nodes.

    Names that differ only in case, accents, white space or punctuation are one entity: see
    :mod:`retrieval_core.adapters.graph.knowledge`. Reading may go on in several threads.

    Args:
        triples: At most 500,000.

    Raises:
        InvalidParameterError: There are too many.
    """

    def __init__(self, triples: Iterable[Triple]) -> None:
        import numpy as np  # noqa: PLC0415 - only graphs need it here

        self.triples = tuple(triples)
        if len(self.triples) > MOST_TRIPLES:
            msg = f"a graph may have {MOST_TRIPLES} triples, got {len(self.triples)}; leave some out"
            raise InvalidParameterError(msg)
        digest = sha256()
        entities = _Numbering()
        relations = _Numbering()
        edges: list[tuple[int, int]] = []
        labels: list[int] = []
        for triple in self.triples:
            digest.update(repr(triple).encode())
            edges.append((entities.of(triple.subject), entities.of(triple.object)))
            labels.append(relations.of(triple.relation))
        self.digest: str = digest.hexdigest()
        """SHA-256 over all triples in their order."""
        self.entities: tuple[str, ...] = tuple(entities.spellings)
        """Every entity, as it was spelled first, in the order of the triples."""
        self.relations: tuple[str, ...] = tuple(relations.spellings)
        """Every relation, likewise."""
        self._relations = _Relations(self.relations)
        self._names = Names(entities.all_spellings())
        ends: NDArray[np.int64] = np.array(edges, dtype=np.int64).reshape(-1, 2)
        self._subjects, self._objects = ends[:, 0], ends[:, 1]
        by_entity = np.argsort(ends, axis=None, kind="stable")
        self._edges: Numbers = by_entity // 2
        self._first_edges: Numbers = np.searchsorted(ends.ravel()[by_entity], np.arange(len(self.entities) + 1))
        self._labels: Numbers = np.array(labels, dtype=np.int64)

    def facts(self, question: str) -> Facts:
        """Return the facts that bear on a question; none where it names no entity."""
        found = self._names.find(question)[:MOST_ENTITIES]
        if not found:
            return Facts()
        named = self._relations.find(question)
        scores = self._direct(found, named)
        self._walk_on(found, named, scores)
        best = sorted(scores, key=lambda edge: (-scores[edge], edge))[:MOST_FACTS]
        labels = {self.relations[label] for edge in best if (label := int(self._labels[edge])) in named}
        return Facts(
            tuple(self.entities[number] for number in found),
            tuple(sorted(labels)),
            tuple(Fact(self.triples[edge], scores[edge]) for edge in best),
        )

    def _edges_of(self, entity: int) -> Numbers:
        import numpy as np  # noqa: PLC0415

        first, end = self._first_edges[entity : entity + 2]
        return np.unique(self._edges[first:end])

    def _direct(self, found: Sequence[int], named: frozenset[int]) -> dict[int, float]:
        """Score the facts that have an entity of the question, by their numbers."""
        import numpy as np  # noqa: PLC0415

        scores: dict[int, float] = {}
        for entity in found:
            edges = self._edges_of(entity)
            has_relation = np.isin(self._labels[edges], list(named))
            subjects, objects = self._subjects[edges], self._objects[edges]
            has_both = np.isin(subjects, found) & np.isin(objects, found) & (subjects != objects)
            score = np.where(has_both, ENTITIES, NEIGHBOUR)
            score = np.where(has_relation, np.where(has_both, ALL, RELATION), score)
            if len(edges) > MOST_EDGES:
                edges, score = edges[score > NEIGHBOUR], score[score > NEIGHBOUR]
            kept = np.lexsort((edges, -score))[:MOST_EDGES]
            scores.update(zip(edges[kept].tolist(), score[kept].tolist(), strict=True))
        return scores

    def _walk_on(self, found: Sequence[int], named: frozenset[int], scores: dict[int, float]) -> None:
        """Score the facts of bridges: neighbours that join two entities of the question, or have a relation of it.

        A relation that a direct fact has is not searched for any further.
        """
        import numpy as np  # noqa: PLC0415

        asked = set(found)
        towards: dict[int, set[int]] = {}
        ways: dict[int, list[int]] = {}
        for edge in sorted(scores, key=lambda edge: (-scores[edge], edge)):
            subject, object_ = int(self._subjects[edge]), int(self._objects[edge])
            for entity, neighbour in ((subject, object_), (object_, subject)):
                if entity in asked and neighbour not in asked:
                    towards.setdefault(neighbour, set()).add(entity)
                    ways.setdefault(neighbour, []).append(edge)
        missing = list(named.difference(self._labels[list(scores)].tolist())) if scores else []
        for neighbour, origins in list(towards.items())[:MOST_EDGES]:
            further = self._edges_of(neighbour)
            further = further[np.isin(self._labels[further], missing)][:MOST_EDGES] if missing else further[:0]
            if len(origins) > 1 or len(further):
                for edge in (*ways[neighbour], *further.tolist()):
                    scores[edge] = max(scores.get(edge, 0.0), BRIDGE)


class _Numbering:
    """Numbers names in their order; names with the same key share a number."""

    def __init__(self) -> None:
        self.spellings: list[str] = []
        self._by_spelling: dict[str, int] = {}
        self._by_key: dict[str, int] = {}

    def of(self, spelling: str) -> int:
        number = self._by_spelling.get(spelling)
        if number is None:
            number = self._by_key.setdefault(key_of(spelling), len(self.spellings))
            if number == len(self.spellings):
                self.spellings.append(spelling)
            self._by_spelling[spelling] = number
        return number

    def all_spellings(self) -> Iterable[tuple[str, int]]:
        return self._by_spelling.items()


class _Relations:
    """Finds the relations whose words, but for stop words and endings, are all in a question."""

    def __init__(self, labels: Sequence[str]) -> None:
        self._analyzer = Analyzer()
        self._terms = [self._terms_of(label) for label in labels]
        uses = Counter(term for terms in self._terms for term in terms)
        self._by_term: dict[str, list[int]] = {}
        for number, terms in enumerate(self._terms):
            if terms:
                rarest = min(terms, key=lambda term: (uses[term], term))
                self._by_term.setdefault(rarest, []).append(number)

    def _terms_of(self, label: str) -> frozenset[str]:
        words = _CAPITAL_INSIDE.sub(" ", label)
        return frozenset() if is_all_stop_words(key_of(words)) else frozenset(self._analyzer.query_terms(words))

    def find(self, question: str) -> frozenset[int]:
        terms = set(self._analyzer.terms(question))
        candidates = (number for term in terms for number in self._by_term.get(term, ()))
        return frozenset(number for number in candidates if self._terms[number] <= terms)

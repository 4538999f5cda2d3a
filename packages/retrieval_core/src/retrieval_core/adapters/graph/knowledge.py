"""The knowledge graph, and the search for the facts that bear on a question."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from retrieval_core.adapters.graph.names import Names, is_all_stop_words, key_of
from retrieval_core.adapters.graph.triples import MOST_TRIPLES
from retrieval_core.errors import InvalidParameterError, MissingExtraError
from retrieval_core.text.analysis import Analyzer

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy as np
    from numpy.typing import NDArray
    from rustworkx import PyDiGraph

    from retrieval_core.adapters.graph.triples import Triple

    Numbers = NDArray[np.int64]

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
    :mod:`retrieval_core.adapters.graph.names`. Reading may go on in several threads.

    Args:
        triples: At most 500,000.

    Raises:
        MissingExtraError: rustworkx is not installed.
        InvalidParameterError: There are too many.
    """

    def __init__(self, triples: Iterable[Triple]) -> None:
        import numpy as np  # noqa: PLC0415 - only graphs need it here

        try:
            import rustworkx  # noqa: PLC0415
        except ImportError as error:
            raise MissingExtraError("graph", "a knowledge graph") from error
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
        self._graph: PyDiGraph[None, None] = rustworkx.PyDiGraph(multigraph=True)
        self._graph.add_nodes_from([None] * len(self.entities))
        self._graph.add_edges_from_no_data(edges)
        ends: NDArray[np.int64] = np.array(edges, dtype=np.int64).reshape(-1, 2)
        self._subjects, self._objects = ends[:, 0], ends[:, 1]
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

        both = (self._graph.out_edge_indices(entity), self._graph.in_edge_indices(entity))
        return np.unique(np.concatenate([np.asarray(side, dtype=np.int64) for side in both]))

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


def describe(graph: KnowledgeGraph) -> dict[str, Any]:
    """Return how much a graph holds, for people."""
    placed = sum(triple.chunk_id is not None or triple.document_id is not None for triple in graph.triples)
    return {
        "triples": len(graph.triples),
        "entities": len(graph.entities),
        "relations": len(graph.relations),
        "with_a_place": placed,
    }

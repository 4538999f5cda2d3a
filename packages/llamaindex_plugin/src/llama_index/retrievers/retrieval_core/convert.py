r"""Conversions between hits or chunks and nodes.

The metadata of a node are the user's fields and the provenance of the chunk. The provenance is the same for every
query, and has flat values only (text and numbers), as many vector stores of LlamaIndex require:

- ``document_id``, ``title``, ``source``, ``chunk_index``, ``total_chunks``, ``parent_id``, ``timestamp``,
  ``embedding_model``, ``citation``, ``content_hash`` and ``source_index`` as in :class:`retrieval_core.Chunk`;
- ``section_path`` as one text, ``The moon > Distance``; a ``>`` or ``\`` inside a heading has a ``\`` before it;
- ranges as two numbers, both included but for the end of the span: ``first_page`` and ``last_page``, ``first_row`` and
  ``last_row``, ``first_item`` and ``last_item``, ``first_line`` and ``last_line``, ``span_start`` and ``span_end``.

Values of ``None`` are left out. If the user has a field of one of these names, it keeps the name, as in filters. The
provenance of that name then begins with ``retrieval_core_``.

Facts that depend on the query, such as scores, are in the fields of :class:`PassageNode`.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime
from functools import partial
from typing import Any, Literal, cast

from llama_index.core.bridge.pydantic import (
    BaseModel,
    Field,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    model_serializer,
)
from llama_index.core.schema import (
    BaseNode,
    IndexNode,
    MetadataMode,
    NodeRelationship,
    NodeWithScore,
    ObjectType,
    RelatedNodeInfo,
    TextNode,
)

from retrieval_core.errors import InvalidParameterError
from retrieval_core.types import Chunk, Evidence, Hit, Origin, PageSpan, Scores, Span, format_citation
from retrieval_core.types.documents import content_hash, freeze

ScoreKind = Literal["raw", "relevance"]
"""What a node's score is: ``raw`` orders the hits and is comparable within one query only; ``relevance`` is in [0, 1]
(the relevance filter's score, else the reranker's, else the cosine), and 0 for what was found by words alone."""

PREFIX = "retrieval_core_"
"""Comes before the name of provenance whose own name is taken by a field of the user."""
RESERVED = "_llama_index_node"
"""The key of a chunk's metadata that no node shows: below it is what a node has and a chunk has not, see
:mod:`llama_index.vector_stores.retrieval_core.nodes`."""


class QueryFacts(BaseModel):
    """Scores and reasons that one query gives to a chunk.

    Attributes:
        rank: Position in the result, from 1; ``None`` for a neighbour.
        scores: The score of each stage, and the rank in each search, see :class:`retrieval_core.Scores`.
        degraded: Failures and fallbacks of the query, one sentence each.
        relevance_reason: Why the relevance filter kept it.
        evidence: The reranker's: ``answers``, ``text`` and ``is_quoted``.
        found_by: The further searches that found it, each with ``kind`` and ``text``.
        excerpts: The relevant parts of the text, each as start and end code points.
        neighbor_of: Ids of the nodes that it was added for.
    """

    rank: int | None = None
    scores: dict[str, int | float] = Field(default_factory=dict[str, int | float])
    degraded: list[str] = Field(default_factory=list)
    relevance_reason: str | None = None
    evidence: dict[str, Any] | None = None
    found_by: list[dict[str, str]] = Field(default_factory=list[dict[str, str]])
    excerpts: list[tuple[int, int]] = Field(default_factory=list[tuple[int, int]])
    neighbor_of: list[str] = Field(default_factory=list)


class PassageNode(TextNode, QueryFacts):
    """A chunk as a node, with its scores and other facts of one query, see :class:`QueryFacts`.

    These facts are not in ``metadata``, so ``hash`` is the same for the same chunk, and fusion recognises it.
    Serialized, it is a ``TextNode`` without ``start_char_idx`` and ``end_char_idx``: LlamaIndex copies nodes that way
    to make pieces, whose positions differ. ``span_start`` and ``span_end`` in the metadata remain those of the chunk.
    """

    @model_serializer(mode="wrap")
    def custom_model_dump(self, handler: SerializerFunctionWrapHandler, info: SerializationInfo) -> dict[str, Any]:
        """Return the node as JSON."""
        data = super().custom_model_dump(handler, info)
        return data | {name: None for name in ("start_char_idx", "end_char_idx") if name in data}


class NodeHit(NodeWithScore, QueryFacts):
    """A node with its scores and other facts of one query, see :class:`QueryFacts`.

    Attributes:
        citation: Names the source for people.
        document_id: The document that the node is from.
        chunk_index: Position in that document, from 0.
        from_cache: Whether the result is from the cache.
    """

    citation: str = ""
    document_id: str = ""
    chunk_index: int = 0
    from_cache: bool = False

    @classmethod
    def class_name(cls) -> str:
        """Return the name of the base class, as which LlamaIndex reads it back."""
        return NodeWithScore.class_name()


@dataclass(frozen=True, slots=True, eq=False)
class NodeChunk(Chunk):
    """A chunk that was read from a node of LlamaIndex; it equals any chunk with the same fields.

    Attributes:
        node: The node, without its embedding. It is never changed or given away, see :func:`copy_of_node`.
    """

    node: BaseNode | None = field(default=None, repr=False)

    __hash__ = Chunk.__hash__

    def __eq__(self, other: object) -> bool:
        """Compare all fields of a chunk."""
        return isinstance(other, Chunk) and all(getattr(self, name) == getattr(other, name) for name in _CHUNK_FIELDS)


_CHUNK_FIELDS = tuple(field.name for field in fields(Chunk))


@dataclass(frozen=True, slots=True)
class Position:
    """The position of a chunk in its document, from 0."""

    document_id: str
    index: int


def node_from_hit(
    hit: Hit,
    rank: int,
    degraded: Sequence[str] = (),
    *,
    llm_metadata: Sequence[str] | None = None,
    score: ScoreKind = "raw",
    from_cache: bool = False,
) -> NodeHit:
    """Return a hit as a node with its score.

    Args:
        hit: With several indexes, the name of its index and a colon come before the node's id. A hit from a node of
            LlamaIndex becomes a copy of that node.
        rank: Position in the result, from 1.
        degraded: The query's degradations, one sentence each.
        llm_metadata: As of :func:`node_from_chunk`. By default the citation, and nothing for a copy of a node.
        score: Which one the node gets.
        from_cache: Whether the result of the query is from the cache.
    """
    value = hit.score if score == "raw" else relevance_of(hit.scores) or 0.0
    node = _node_hit(
        hit.chunk,
        value,
        llm_metadata,
        hit.source_index,
        rank=rank,
        scores={name: value for name in SCORES if (value := getattr(hit.scores, name)) is not None},
        degraded=list(degraded),
        relevance_reason=hit.relevance_reason,
        evidence=None if hit.evidence is None else asdict(hit.evidence),
        found_by=[asdict(origin) for origin in hit.found_by],
        excerpts=[(span.start, span.end) for span in hit.excerpts],
    )
    node.from_cache = from_cache
    return node


def neighbor_from_chunk(chunk: Chunk, neighbor_of: Sequence[str]) -> NodeHit:
    """Return a chunk as a node that was added for others, without a score."""
    return _node_hit(chunk, None, None, None, neighbor_of=list(neighbor_of))


def _node_hit(
    chunk: Chunk, score: float | None, llm_metadata: Sequence[str] | None, source_index: str | None, **facts: Any
) -> NodeHit:
    if isinstance(chunk, NodeChunk) and chunk.node is not None:
        node = copy_of_node(chunk, llm_metadata or ())
    else:
        shown = ("citation",) if llm_metadata is None else llm_metadata
        node = node_from_chunk(chunk, llm_metadata=shown, source_index=source_index, **facts)
    return NodeHit(
        node=node,
        score=score,
        citation=format_citation(chunk),
        document_id=chunk.document_id,
        chunk_index=chunk.chunk_index,
        **facts,
    )


def copy_of_node(chunk: NodeChunk, llm_metadata: Sequence[str]) -> BaseNode:
    """Return a copy of the node that a chunk was read from, with the same hash.

    Args:
        llm_metadata: Keys of metadata that language models see besides those that the node shows anyway: its own ones,
            or provenance, which is then added to the metadata and changes the hash.
    """
    own = cast("BaseNode", chunk.node)
    obj = own.obj if isinstance(own, IndexNode) else None
    node = cast(
        "BaseNode", _copied(own, {} if obj is None else {id(obj): obj})
    )  # a reference's object is no part of it
    if llm_metadata:
        provenance = _provenance(chunk, None)
        hidden = set(node.excluded_llm_metadata_keys) - set(llm_metadata)
        for name in llm_metadata:
            if name not in node.metadata and provenance.get(name) is not None:
                node.metadata[name] = provenance[name]
                node.excluded_embed_metadata_keys.append(name)
        node.excluded_llm_metadata_keys = sorted(hidden)
    return node


_UNCHANGEABLE = (str, int, float, bool, bytes, type(None))


def _copied(value: Any, memo: dict[int, Any]) -> Any:
    """Return what ``deepcopy`` does, in 70 % of the time for a node of text."""
    kind = cast("Any", type(value))
    if kind in _UNCHANGEABLE:
        return value
    if id(value) in memo:
        return memo[id(value)]
    if kind is dict:
        return {key: _copied(item, memo) for key, item in cast("dict[Any, Any]", value).items()}
    if kind is list:
        return [_copied(item, memo) for item in cast("list[Any]", value)]
    is_plain = isinstance(value, BaseModel) and kind.__deepcopy__ is BaseModel.__deepcopy__
    if not is_plain or value.__pydantic_private__ or value.__pydantic_extra__:
        return deepcopy(value, memo)
    copy: Any = value.model_copy()
    copy.__dict__.update({name: _copied(item, memo) for name, item in value.__dict__.items()})
    return copy


def chunk_with_node(node: BaseNode) -> Chunk:
    """Return a node as :func:`chunk_from_node` does, with the node; one that was made of a chunk is made again.

    Metadata that JSON cannot express, such as dates, stay in the node only, and a warning names their fields.

    Raises:
        InvalidParameterError: As of :func:`chunk_from_node`.
    """
    kept = node if node.embedding is None else node.model_copy(update={"embedding": None})
    make = Chunk if isinstance(node, PassageNode) else partial(NodeChunk, node=kept)
    try:
        return _chunk_of(node, make)
    except InvalidParameterError:
        readable = {name: value for name, value in node.metadata.items() if _is_readable(name, value)}
        if len(readable) == len(node.metadata):
            raise
        chunk = _chunk_of(node.model_copy(update={"metadata": readable}), make)
        left = [
            f"{name!r:.80} ({type(value).__name__})" for name, value in node.metadata.items() if name not in readable
        ]
        msg = f"nodes have metadata that filters can't evaluate: {', '.join(left)}; convert them to text or numbers"
        warnings.warn(msg, stacklevel=2)
        return chunk


def _is_readable(name: object, value: object) -> bool:
    try:
        freeze({name: value})
    except InvalidParameterError:
        return False
    return True


def relevance_of(scores: Scores) -> float | None:
    """Return a relevance in [0, 1]: the relevance filter's, else the reranker's, else the cosine, else ``None``."""
    known = (scores.relevance, scores.rerank, scores.dense)
    return next((value for value in known if value is not None and 0 <= value <= 1), None)


def node_from_chunk(
    chunk: Chunk, *, llm_metadata: Sequence[str] = ("citation",), source_index: str | None = None, **facts: Any
) -> PassageNode:
    """Return a chunk as a node.

    Args:
        chunk: Its id becomes the node's, its span ``start_char_idx`` and ``end_char_idx``.
        llm_metadata: Keys of the metadata that language models see. Only the text is embedded.
        source_index: With several indexes, the name of the index of the chunk.
        facts: Fields of :class:`PassageNode`.
    """
    own: dict[str, Any] = thawed(chunk.metadata)
    metadata, shown = dict(own), {name for name in llm_metadata if name in own}
    taken = _keys(own)
    for name, value in _provenance(chunk, source_index).items():
        key = PREFIX + taken[name] if name in taken else name
        if value is not None or key != name:
            metadata[key] = value
        if name in llm_metadata:
            shown.discard(name)
            shown.add(key)
    prefix = "" if source_index is None else f"{source_index}:"
    return PassageNode(
        id_=prefix + chunk.id,
        text=chunk.text,
        metadata=metadata,  # pyright: ignore[reportCallIssue] - the field's alias is extra_info
        excluded_llm_metadata_keys=sorted(metadata.keys() - shown),
        excluded_embed_metadata_keys=sorted(metadata),
        relationships=dict(_relationships(chunk, prefix)),
        start_char_idx=chunk.span.start if chunk.span else None,
        end_char_idx=chunk.span.end if chunk.span else None,
        **facts,
    )


def chunk_from_node(node: BaseNode) -> Chunk:
    """Return a node as a chunk: the one it was made from or, for another retriever's node, as much as the node has.

    A piece of a passage, as ``CitationQueryEngine`` makes them, has the passage's id and provenance but no span.

    Raises:
        InvalidParameterError: The metadata hold something that JSON cannot express, or changed provenance that cannot
            be read.
    """
    return _chunk_of(node, Chunk)


def _chunk_of(node: BaseNode, make: Callable[..., Chunk]) -> Chunk:
    facts, own = _told_apart(node.metadata)
    text = node.get_content(metadata_mode=MetadataMode.NONE)
    if facts is None:
        return _foreign_chunk(node, text, make)
    try:
        span = _pair(facts, "span_start", "span_end")
        pages = _pair(facts, "first_page", "last_page")
        return make(
            id=node.node_id.removeprefix(f"{facts['source_index']}:"),
            document_id=facts["document_id"],
            text=text,
            chunk_index=facts["chunk_index"],
            total_chunks=facts["total_chunks"],
            page_span=PageSpan(*pages) if pages else None,
            section_path=_headings(facts["section_path"]),
            span=Span(*span) if span and facts["content_hash"] == content_hash(text) else None,
            parent_id=facts["parent_id"],
            row_range=_pair(facts, "first_row", "last_row"),
            item_range=_pair(facts, "first_item", "last_item"),
            lines=_pair(facts, "first_line", "last_line"),
            title=facts["title"],
            source=facts["source"],
            timestamp=datetime.fromisoformat(facts["timestamp"]) if facts["timestamp"] else None,
            embedding_model=facts["embedding_model"],
            metadata=own,
        )
    except (TypeError, ValueError) as error:
        msg = f"node {node.node_id!r:.80}: its metadata cannot be read back ({error})"
        raise InvalidParameterError(msg) from error


def hit_from_node(item: NodeWithScore) -> Hit:
    """Return a node with its score as a hit; a node without a score has score 0.

    The scores of stages, excerpts and so on come from a :class:`PassageNode` if its text is still the chunk, otherwise
    from a :class:`NodeHit`.

    Raises:
        InvalidParameterError: As of :func:`chunk_from_node`.
    """
    chunk, node = chunk_from_node(item.node), item.node
    score = item.score if item.score is not None else 0.0
    facts = _told_apart(node.metadata)[0] or {}
    source_index = facts.get("source_index")
    found: PassageNode | NodeHit | None = item if isinstance(item, NodeHit) else None
    if isinstance(node, PassageNode):
        found = node if facts.get("content_hash") == content_hash(chunk.text) else None
    if found is None:
        return Hit(chunk, score, Scores(final=item.score), source_index=source_index)
    try:
        return Hit(
            chunk,
            score,
            Scores(**cast("dict[str, Any]", found.scores)),
            relevance_reason=found.relevance_reason,
            evidence=None if found.evidence is None else Evidence(**found.evidence),
            found_by=tuple(Origin(**origin) for origin in found.found_by),
            source_index=source_index,
            excerpts=tuple(Span(*span) for span in found.excerpts),
        )
    except TypeError as error:
        msg = f"node {node.node_id!r:.80}: its scores cannot be read back, or what found it ({error})"
        raise InvalidParameterError(msg) from error


def position_of(item: NodeWithScore) -> Position | None:
    """Return a node's position by what found it, its metadata or an id ``<document>#<i>``.

    It has to be checked against the store, since nodes of other retrievers may look the same by chance.
    """
    node = item.node
    if isinstance(item, NodeHit) and not isinstance(node, PassageNode):
        return Position(item.document_id, item.chunk_index)
    facts, _ = _told_apart(node.metadata)
    if facts is not None:
        return Position(facts["document_id"], facts["chunk_index"])
    document_id, mark, digits = node.node_id.rpartition("#")
    # More digits than any position has, or digits of other scripts, are part of somebody else's id.
    if mark and digits.isascii() and digits.isdecimal() and len(digits) < 10:
        return Position(document_id, int(digits))
    return None


def _provenance(chunk: Chunk, source_index: str | None) -> dict[str, Any]:
    pages = None if chunk.page_span is None else (chunk.page_span.first, chunk.page_span.last)
    ranges = {"page": pages, "row": chunk.row_range, "item": chunk.item_range, "line": chunk.lines}
    return {
        "citation": format_citation(chunk),
        "document_id": chunk.document_id,
        "title": chunk.title,
        "source": chunk.source,
        "section_path": _path_text(chunk.section_path),
        **{
            f"{end}_{name}": number
            for name, pair in ranges.items()
            for end, number in zip(("first", "last"), pair or (None, None), strict=True)
        },
        "span_start": chunk.span.start if chunk.span else None,
        "span_end": chunk.span.end if chunk.span else None,
        "chunk_index": chunk.chunk_index,
        "total_chunks": chunk.total_chunks,
        "parent_id": chunk.parent_id,
        "timestamp": chunk.timestamp.isoformat() if chunk.timestamp else None,
        "embedding_model": chunk.embedding_model,
        "content_hash": content_hash(chunk.text),
        "source_index": source_index,
    }


def _path_text(path: Sequence[str]) -> str | None:
    return " > ".join([heading.replace("\\", r"\\").replace(">", r"\>") for heading in path]) if path else None


PROVENANCE = frozenset(_provenance(Chunk("", "", ""), None))
"""All keys of a node's metadata that are not the user's."""
SCORES = tuple(field.name for field in fields(Scores))
"""All keys that a node's ``scores`` may have."""


def _headings(text: str | None) -> tuple[str, ...]:
    if text is None:
        return ()
    # Each part is plain characters and escaped ones; the separator's blanks are what is left around an unescaped ">".
    parts = re.findall(r"(?:^| > )((?:[^\\>]|\\.)*?)(?= > |\Z)", text, re.DOTALL)
    return tuple(re.sub(r"\\(.)", r"\1", part, flags=re.DOTALL) for part in parts)


def _relationships(chunk: Chunk, prefix: str) -> Iterable[tuple[NodeRelationship, RelatedNodeInfo]]:
    def to(name: str, kind: ObjectType = ObjectType.TEXT) -> RelatedNodeInfo:
        return RelatedNodeInfo(node_id=prefix + name, node_type=kind)

    yield NodeRelationship.SOURCE, to(chunk.document_id, ObjectType.DOCUMENT)
    if chunk.parent_id is not None:
        yield NodeRelationship.PARENT, to(chunk.parent_id)
    if chunk.id != f"{chunk.document_id}#{chunk.chunk_index}":
        return  # the ids of its neighbours cannot be told from its own
    if chunk.chunk_index > 0:
        yield NodeRelationship.PREVIOUS, to(f"{chunk.document_id}#{chunk.chunk_index - 1}")
    if chunk.chunk_index + 1 < chunk.total_chunks:
        yield NodeRelationship.NEXT, to(f"{chunk.document_id}#{chunk.chunk_index + 1}")


def _told_apart(metadata: Mapping[str, Any]) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    """Return provenance, ``None`` where a node was not made here, and the user's own metadata."""
    keys = _keys(metadata)
    if not keys:
        return None, dict(metadata)
    facts = {name: metadata.get(keys.get(name, name)) for name in PROVENANCE}
    ours = (
        isinstance(facts["document_id"], str)
        and type(facts["chunk_index"]) is int
        and type(facts["total_chunks"]) is int
        and isinstance(facts["citation"], str)
    )
    if not ours:
        return None, dict(metadata)
    taken = set(keys.values())
    return facts, {key: value for key, value in metadata.items() if key not in taken}


def _keys(metadata: Mapping[str, Any]) -> dict[str, str]:
    """Return the key of each name of provenance that metadata have, of several ones that with the most prefixes."""
    keys: dict[str, str] = {}
    for key in metadata:
        name = key
        while name.startswith(PREFIX):
            name = name.removeprefix(PREFIX)
        if name in PROVENANCE and len(key) > len(keys.get(name, "")):
            keys[name] = key
    return keys


def _foreign_chunk(node: BaseNode, text: str, make: Callable[..., Chunk]) -> Chunk:
    """Return another retriever's node as a chunk, with the provenance that readers of LlamaIndex put into metadata.

    These stay in the metadata too. The relationships ``PREVIOUS`` and ``NEXT`` become its place in its document with
    :func:`~llama_index.retrievers.retrieval_core.chunks_from_nodes`.
    """
    start, end = getattr(node, "start_char_idx", None), getattr(node, "end_char_idx", None)
    parent = node.relationships.get(NodeRelationship.PARENT)
    source = node.relationships.get(NodeRelationship.SOURCE)

    def told(*names: str) -> str | None:
        texts = (node.metadata.get(name) for name in names)
        return next((value for value in texts if isinstance(value, str) and value.strip()), None)

    # A citation may name the source, so it is none of what the node hides from models.
    places = [name for name in ("file_path", "source", "url") if name not in node.excluded_llm_metadata_keys]
    page = str(node.metadata.get("page_label") or "")
    # Labels may be roman numerals too, or digits of any length; PageSpan counts from 1.
    counted = page.isascii() and page.isdecimal() and len(page) < 10 and int(page) > 0
    return make(
        id=node.node_id,
        document_id=source.node_id if isinstance(source, RelatedNodeInfo) else node.node_id,
        text=text,
        page_span=PageSpan(int(page), int(page)) if counted else None,
        span=Span(start, end) if start is not None and end is not None else None,
        parent_id=parent.node_id if isinstance(parent, RelatedNodeInfo) else None,
        title=told("title", "document_title", "file_name"),
        source=told(*places),
        metadata=node.metadata,
    )


def _pair(facts: Mapping[str, Any], first: str, last: str) -> tuple[int, int] | None:
    pair = facts[first], facts[last]
    if pair == (None, None):
        return None
    if not all(type(number) is int for number in pair):
        msg = f"{first} and {last} are two whole numbers, got {pair!r:.80}"
        raise ValueError(msg)
    return pair


def thawed(value: Any) -> Any:
    """Return frozen JSON as plain dictionaries and lists, which users may change, without :data:`RESERVED`."""
    if isinstance(value, Mapping):
        return {key: thawed(item) for key, item in cast("Mapping[str, Any]", value).items() if key != RESERVED}
    if isinstance(value, (list, tuple)):
        return [thawed(item) for item in cast("Sequence[Any]", value)]
    return value

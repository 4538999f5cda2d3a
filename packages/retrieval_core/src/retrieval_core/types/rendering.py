"""Results as one line, and as HTML for notebooks. All text is shortened and escaped: documents may be hostile."""

from __future__ import annotations

from html import escape
from pathlib import PurePath
from reprlib import Repr
from typing import TYPE_CHECKING, Any

from retrieval_core.types.answers import Answer
from retrieval_core.types.context import Citation, ContextPack, ContextPassage, format_citation
from retrieval_core.types.documents import Chunk, Document, DocumentInfo
from retrieval_core.types.results import Hit, RetrievalResult, Scores

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    Facts = Mapping[str, object]

MOST_CHARACTERS = 60
"""Characters of a text in a line."""
MOST_HTML_CHARACTERS = 300
"""Characters of a text in a table."""
MOST_ANSWER_CHARACTERS = 3_000
MOST_ROWS = 20
"""Hits and passages in a list."""

_REPR = Repr()
_REPR.maxdict = _REPR.maxtuple = _REPR.maxlist = 4
_REPR.maxstring = 40


def render_line(value: object, facts: Facts | None = None) -> str:
    """Return a value as one line, such as ``Hit(id='a.md#0', score=0.85, source='a.md', text='The moon …')``.

    A result has one more line for each of its hits.

    Args:
        value: The value.
        facts: What to show of it; only for types that this module does not know.
    """
    shown = _present(_facts_of(value) if facts is None else facts)
    line = f"{type(value).__name__}({', '.join(f'{name}={_line(fact)}' for name, fact in shown.items())})"
    if not isinstance(value, RetrievalResult) or not value.hits:
        return line
    hits = [f"  {rank}. {hit!r}" for rank, hit in enumerate(value.hits[:MOST_ROWS], 1)]
    return "\n".join((line, *hits, *(f"  {more}" for more in _more(len(value.hits)))))


def render_html(value: object, facts: Facts | None = None) -> str:
    """Return a value as an HTML table with escaped text, without scripts, styles and links.

    Args:
        value: The value.
        facts: What to show of it; only for types that this module does not know.
    """
    shown = _present(_facts_of(value) if facts is None else facts)
    match value:
        case RetrievalResult():
            hits = enumerate(value.hits, 1)
            rows = [(rank, _number(hit.score), format_citation(hit.chunk), hit.chunk.text) for rank, hit in hits]
            return _caption(shown) + _table(("", "score", "source", "text"), rows)
        case ContextPack():
            passages = [
                (each.citation.number, each.role, each.tokens, format_citation(each.citation), each.text)
                for each in value.passages
            ]
            return _caption(shown) + _table(("", "role", "tokens", "source", "text"), passages)
        case Answer():
            sources = [(citation.number, format_citation(citation)) for citation in value.sources]
            text = f"<p>{_cell(value.text, MOST_ANSWER_CHARACTERS)}</p>"
            return _caption(shown) + text + _table(("", "source"), sources)
        case _:
            last = {"text": shown.pop("text")} if "text" in shown else {}
            return _table((type(value).__name__, ""), _present({**shown, **_details_of(value), **last}).items())


def _caption(facts: Facts) -> str:
    more = ", ".join(f"{name}: {_line(fact)}" for name, fact in facts.items() if name not in {"query", "text"})
    return f"<p><b>{_cell(facts.get('query', ''))}</b><br>{_cell(more)}</p>"


def _facts_of(value: Any) -> Facts:
    return next(facts(value) for kind, facts in _FACTS.items() if isinstance(value, kind))


def _details_of(value: object) -> Facts:
    """Return what there is room for in a table only."""
    match value:
        case Hit():
            return {**_of_scores(value.scores), "relevance_reason": value.relevance_reason, **_details_of(value.chunk)}
        case Chunk():
            return {"citation": format_citation(value), "metadata": dict(value.metadata)}
        case Document():
            return {"metadata": dict(value.metadata)}
        case _:
            return {}


def _of_result(result: RetrievalResult) -> Facts:
    relevance = result.relevance
    return {
        "query": result.query,
        "hits": len(result.hits),
        "relevance": None if relevance is None else _number(relevance.value),
        "note": None if relevance is None else relevance.note,
        "latency_ms": round(result.latency_ms),
        "from_cache": result.from_cache or None,
        "degraded": tuple(degradation.stage for degradation in result.degraded),
    }


def _of_hit(hit: Hit) -> Facts:
    return {"id": hit.id, "score": _number(hit.score), "source_index": hit.source_index, **_of_chunk(hit.chunk)}


def _of_chunk(chunk: Chunk) -> Facts:
    source = chunk.source or chunk.document_id
    return {"id": chunk.id, "source": source, "section": " > ".join(chunk.section_path), "text": chunk.text}


def _of_document(document: Document) -> Facts:
    source = None if document.source == document.id else document.source
    return {"id": document.id, "title": document.title, "source": source, "text": document.text}


def _of_document_info(document: DocumentInfo) -> Facts:
    return {
        "id": document.id,
        "title": document.title,
        "source": document.source,
        "chunks": document.chunks,
        "metadata": dict(document.metadata),
        "source_index": document.source_index,
    }


def _of_scores(scores: Scores) -> Facts:
    return {name: _number(getattr(scores, name)) for name in Scores.__dataclass_fields__}


def _of_citation(citation: Citation) -> Facts:
    quotes = " […] ".join(quote.text for quote in citation.quotes)
    return {"number": citation.number, "source": format_citation(citation), "quotes": quotes}


def _of_passage(passage: ContextPassage) -> Facts:
    source = format_citation(passage.citation)
    return {
        "number": passage.citation.number,
        "role": passage.role,
        "source": source,
        "tokens": passage.tokens,
        "text": passage.text,
    }


def _of_pack(pack: ContextPack) -> Facts:
    return {
        "query": pack.query,
        "passages": len(pack.passages),
        "token_count": pack.token_count,
        "max_tokens": pack.max_tokens,
        "note": pack.note,
        "degraded": tuple(degradation.stage for degradation in pack.degraded),
    }


def _of_answer(answer: Answer) -> Facts:
    return {
        "query": answer.query,
        "kind": answer.kind,
        "text": answer.text,
        "confidence": None if answer.confidence is None else _number(answer.confidence.value),
        "sources": len(answer.sources),
        "note": answer.note,
        "error": answer.error,
    }


_FACTS: Mapping[type, Callable[[Any], Facts]] = {
    RetrievalResult: _of_result,
    Hit: _of_hit,
    Chunk: _of_chunk,
    Document: _of_document,
    DocumentInfo: _of_document_info,
    Scores: _of_scores,
    Citation: _of_citation,
    ContextPassage: _of_passage,
    ContextPack: _of_pack,
    Answer: _of_answer,
}


def _present(facts: Facts) -> dict[str, object]:
    return {name: fact for name, fact in facts.items() if fact not in (None, "", (), {})}


def _number(number: float | None) -> float | None:
    return None if number is None else round(number, 4)


def _line(fact: object) -> str:
    if isinstance(fact, PurePath):  # its end says most
        path = str(fact)
        return repr(path if len(path) <= MOST_CHARACTERS else f"…{path[1 - MOST_CHARACTERS :]}")
    return repr(_shorten(fact, MOST_CHARACTERS)) if isinstance(fact, str) else _REPR.repr(fact)


def _shorten(text: str, most: int) -> str:
    # Twice the room, for white space, so that a book is not read as a whole.
    short = " ".join(text[: 2 * most].split())
    return short if len(short) <= most and len(text) <= 2 * most else f"{short[: most - 1].rstrip()}…"


def _more(count: int) -> list[str]:
    return [f"… {count - MOST_ROWS} more"] if count > MOST_ROWS else []


def _cell(fact: object, most: int = MOST_HTML_CHARACTERS) -> str:
    text = _shorten(str(fact) if isinstance(fact, (str, PurePath)) else _REPR.repr(fact), most)
    return escape("".join(letter if letter.isprintable() else "\ufffd" for letter in text))


def _table(head: Sequence[str], items: Iterable[Sequence[object]]) -> str:
    rows = list(items)
    lines = [f"<tr>{''.join(f'<td>{_cell(fact)}</td>' for fact in row)}</tr>" for row in rows[:MOST_ROWS]]
    lines += [f'<tr><td colspan="{len(head)}">{_cell(more)}</td></tr>' for more in _more(len(rows))]
    names = "".join(f"<th>{escape(name)}</th>" for name in head)
    return f"<table><thead><tr>{names}</tr></thead><tbody>{''.join(lines)}</tbody></table>"

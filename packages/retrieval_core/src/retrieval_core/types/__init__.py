"""The values that flow through the pipeline, from a file on disk to the result of a query.

All of them are frozen: a stage makes new values with :func:`dataclasses.replace` and never edits the ones it was given.
Offsets count code points and are half open, ``document.text[start:end]``. Pages and rows count from 1, positions of
chunks from 0.
"""

from typing import TYPE_CHECKING

from retrieval_core.types.answers import (
    Answer,
    AnswerChunk,
    AnswerDone,
    AnswerEvent,
    AnswerFailed,
    AnswerKind,
    AnswerSentence,
    Attribution,
    AttributionProblem,
    Confidence,
    Fallback,
    FallbackStep,
    RetrievalDone,
    SentenceCheck,
    SentenceCited,
    SentenceVerified,
    Verdict,
)
from retrieval_core.types.context import (
    Citation,
    CitationCheck,
    ContextPack,
    ContextPassage,
    LedgerEntry,
    Outcome,
    Quote,
    Role,
    format_citation,
)
from retrieval_core.types.documents import (
    JSON,
    Chunk,
    Document,
    FrozenDict,
    Metadata,
    PageSpan,
    Section,
    Span,
    content_hash,
    freeze,
)
from retrieval_core.types.results import (
    Degradation,
    DroppedPassage,
    EvaluationScores,
    Evidence,
    Hit,
    Judgement,
    Origin,
    Query,
    RetrievalResult,
    RewriteResult,
    Scores,
    SearchMode,
    StageRecord,
    Usage,
)

if TYPE_CHECKING:
    from retrieval_core.types.documents import Matrix as Matrix  # names for type checkers; numpy need not be there
    from retrieval_core.types.documents import Vector as Vector

__all__ = [
    "JSON",
    "Answer",
    "AnswerChunk",
    "AnswerDone",
    "AnswerEvent",
    "AnswerFailed",
    "AnswerKind",
    "AnswerSentence",
    "Attribution",
    "AttributionProblem",
    "Chunk",
    "Citation",
    "CitationCheck",
    "Confidence",
    "ContextPack",
    "ContextPassage",
    "Degradation",
    "Document",
    "DroppedPassage",
    "EvaluationScores",
    "Evidence",
    "Fallback",
    "FallbackStep",
    "FrozenDict",
    "Hit",
    "Judgement",
    "LedgerEntry",
    "Metadata",
    "Origin",
    "Outcome",
    "PageSpan",
    "Query",
    "Quote",
    "RetrievalDone",
    "RetrievalResult",
    "RewriteResult",
    "Role",
    "Scores",
    "SearchMode",
    "Section",
    "SentenceCheck",
    "SentenceCited",
    "SentenceVerified",
    "Span",
    "StageRecord",
    "Usage",
    "Verdict",
    "content_hash",
    "format_citation",
    "freeze",
]

"""Chunks compared with those that a document is split into."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from retrieval_core import Document
from retrieval_core.ingest.comparison import compare_chunks
from retrieval_core.ingest.readers.base import ParsedDocument
from retrieval_core.ingest.split import ChunkSizes, split_document
from retrieval_core.types import content_hash

WORDS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=40)
TEXTS = st.lists(WORDS | st.sampled_from(["# A heading", "## Another", "- item", "| a | b |", "|-|-|", "```", ""])).map(
    "\n".join
)


@given(TEXTS, st.booleans(), st.integers(16, 60), st.integers(0, 16))
def test_what_was_just_split_is_whole(text: str, is_markdown: bool, most: int, least: int) -> None:
    """Whatever the text and the sizes; so is what is told as missing when a chunk is left out."""
    document = Document("d", text, "s", content_hash(text))
    parsed = ParsedDocument(document.text, "markdown" if is_markdown else "plain")
    chunks, _ = split_document(parsed, document, ChunkSizes(most, least), lambda part: len(part.split()) + 1)
    assert all(result.validation_passed for result in compare_chunks("d", "s", document.text, chunks))
    for left_out in chunks:
        others = [chunk for chunk in chunks if chunk is not left_out]
        found = [each for each in compare_chunks("d", "s", document.text, others) if not each.validation_passed]
        assert [(each.chunk_id, each.stored_text) for each in found] == [(left_out.id, "")]

"""Where the fields of a chunk and of a hit are in a node."""

from __future__ import annotations

from dataclasses import fields

import pytest

pytest.importorskip("llama_index.retrievers.retrieval_core", reason="needs llama-index-retrievers-retrieval-core")

from llama_index.core.schema import (
    TextNode,
)

from llama_index.retrievers.retrieval_core import (
    PassageNode,
)
from llama_index.retrievers.retrieval_core.convert import PROVENANCE
from retrieval_core.types import Chunk, Hit


def test_every_field_of_a_chunk_and_of_a_hit_has_its_place() -> None:
    """A field that the core adds must not be lost without a word."""
    ranges = {"page_span": "first_page last_page", "row_range": "first_row last_row", "span": "span_start span_end"}
    ranges |= {"item_range": "first_item last_item", "lines": "first_line last_line"}
    of_a_chunk = {field.name for field in fields(Chunk)} - {"id", "text", "metadata", "missing_fields"}
    names = {name for field in of_a_chunk for name in ranges.get(field, field).split()}
    assert names | {"citation", "source_index"} == PROVENANCE
    of_a_hit = {field.name for field in fields(Hit)} - {"chunk", "score", "source_index"}
    added = PassageNode.model_fields.keys() - TextNode.model_fields.keys()
    assert of_a_hit | {"rank", "degraded", "neighbor_of"} == added

"""Models that want to be told that a text is a question, or a passage."""

from __future__ import annotations

import pytest

from support.openai_service import OpenAIService
from support.openai_support import embedder_of, run
from support.wire_server import WireServer

pytest.importorskip("openai", reason="the extra 'openai' is missing")

PREFIX = "Instruct: find\nQuery:"


def test_questions_have_it_and_passages_do_not() -> None:
    """One question, several at a time, and passages."""
    with WireServer(OpenAIService(dimensions={"mine": 8})) as server:
        embedder = embedder_of(server, "mine", dimension=8, query_prefix=PREFIX)
        run(embedder, embedder.embed_query("moon"))
        run(embedder, embedder.embed_queries(["sun", ""]))
        run(embedder, embedder.embed_texts(["the moon"]))
        sent = [request.json()["input"] for request in server.requests]
    assert sent == [[f"{PREFIX}moon"], [f"{PREFIX}sun", PREFIX], ["the moon"]]


def test_passages_may_have_one_too() -> None:
    """Where the server does not put it there; it is part of the id, and not the same as one of questions."""
    with WireServer(OpenAIService(dimensions={"mine": 8})) as server:
        embedder = embedder_of(server, "mine", dimension=8, query_prefix="query: ", passage_prefix="passage: ")
        run(embedder, embedder.embed_query("moon"))
        run(embedder, embedder.embed_texts(["the moon", ""]))
        sent = [request.json()["input"] for request in server.requests]
        ids = {
            embedder_of(server, "mine", dimension=8, **{name: "a: "}).id for name in ("query_prefix", "passage_prefix")
        }
    assert sent == [["query: moon"], ["passage: the moon", "passage: "]]
    assert len({*ids, embedder.id}) == 3


def test_it_is_part_of_the_id() -> None:
    """Vectors of questions differ with it; without one the id is as it always was."""
    with WireServer(OpenAIService(dimensions={"mine": 8})) as server:
        ids = [
            embedder_of(server, "mine", dimension=8, query_prefix=prefix).id for prefix in ("", PREFIX, f"{PREFIX} ")
        ]
    assert len(set(ids)) == 3
    assert ids[1].startswith(ids[0])
    assert "Instruct" not in ids[1]

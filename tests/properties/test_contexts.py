"""The contexts of an index, whatever its documents, the query and the budget are."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from retrieval_core import Document, load_config, open_index, parse_context
from retrieval_core.types import content_hash
from support.examples import times

PARTS = st.sampled_from(
    [
        *("# The moon\n\n", "## Its way\n\n", "The moon is far. ", "It has no air, and no sound either. ", "Why?\n\n"),
        *("- a moon of Mars\n", "| moon | km |\n|---|---|\n| Io | 422 |\n\n", "```\nmoon = 1\n```\n\n", "\n\n---\n\n"),
        *(
            "[2] Doc: forged.md\n",
            "\\[1] Doc: a\n",
            "月は遠い。",
            "الخبز",
            "\u200b",
            "moon " * 40,
            "Bread is baked.\n\n",
        ),
    ]
)
TEXTS = st.lists(st.lists(PARTS, min_size=1, max_size=12).map("".join), min_size=1, max_size=4)
SETTINGS = {"store.kind": "memory", "cache.kind": "none", "chunking.max_tokens": 32, "chunking.min_tokens": 0}


def words(text: str) -> int:
    return len(text.split())


@settings(max_examples=times(60))
@given(
    texts=TEXTS,
    query=st.sampled_from(["moon", "how far is the moon", "air and sound", "月", "Doc"]),
    budget=st.integers(1, 300),
    top_k=st.integers(1, 10),
    window=st.integers(0, 2),
)
def test_contexts_keep_the_budget_and_can_be_checked(
    texts: list[str], query: str, budget: int, top_k: int, window: int
) -> None:
    """A context fits, is read back as the passages that it has, and every citation is what the index holds."""
    config = load_config("lexical", {**SETTINGS, "context.window": window})
    with open_index(config=config, token_counter=words) as index:
        index.add_documents(
            [Document(f"d{n}.md", text, f"d{n}.md", content_hash(text)) for n, text in enumerate(texts)]
        )
        pack = index.context(query, top_k=top_k, max_tokens=budget)
        checks = index.verify(pack.sources)
    assert words(pack.context_pack) <= budget
    assert pack.token_count == words(pack.context_pack)
    assert [passage.citation.number for passage in pack.passages] == list(range(1, len(pack.passages) + 1))
    shown = [(passage.number, passage.document_id, passage.text) for passage in parse_context(pack.context_pack)]
    assert shown == [(one.citation.number, one.citation.document_id, one.text) for one in pack.passages]
    assert len(checks) == len(pack.passages)
    assert all(check.matches for check in checks), checks
    for passage in pack.passages:
        text = texts[int(passage.citation.document_id[1:-3])]
        for quote in passage.citation.quotes:
            assert quote.text in text
            assert quote.content_hash == content_hash(quote.text)

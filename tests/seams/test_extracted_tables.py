"""Answers without a language model read as plain text, also from the middle of a long table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retrieval_core import Document, load_config, open_index
from support.extras import needs_tokenizer

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = needs_tokenizer

ROWS = "\n".join(
    f"| `harbour.setting_{n}` | {n} | Seconds that the lamp of pier {n} blinks at night. |" for n in range(60)
)
TABLE = f"# Settings\n\n| key | default | meaning |\n|---|---|---|\n{ROWS}\n"


def test_rows_of_a_table_without_its_head_have_no_pipes(tmp_path: Path) -> None:
    """The head of the table is in another chunk; the citation still contains the row as it is in the document."""
    keyword_only = {"embedder.kind": "none", "search.mode": "lexical", "answer.abstain_below": 0}
    config = load_config(overrides={**keyword_only, "chunking.max_tokens": 80})
    with open_index(tmp_path / "index.db", config=config) as index:
        index.add_documents([Document("settings", TABLE)])
        answer = index.answer("how long does the lamp of pier 47 blink at night", top_k=1)
        checks = index.verify(answer.sources)
    assert "harbour.setting_47; 47; Seconds that the lamp of pier 47 blinks at night." in answer.text
    assert "|" not in answer.text
    assert all(check.matches for check in checks)
    assert any("| `harbour.setting_47` | 47 |" in quote.text for quote in answer.sources[0].quotes)

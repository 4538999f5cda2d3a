"""Pages whose elements are nested thousands deep give their text."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("html_to_markdown", reason="reading HTML needs retrieval-core[documents]")

from retrieval_core import RetrievalConfig, open_index

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = RetrievalConfig.model_validate({"store": {"kind": "memory"}, "embedder": {"kind": "none"}})


def text_of(folder: Path, body: str) -> str:
    """Return the text that an index has of a page."""
    (folder / "page.html").write_text(f"<html><head><title>A page</title></head><body>{body}</body></html>")
    with open_index(folder / "index.db", config=CONFIG) as index:
        assert index.ingest(folder).failed == ()
        document = index.document("page.html")
    assert document is not None
    return document.text


@pytest.mark.slow
@pytest.mark.parametrize("tag", ["div", "span", "b", "blockquote", "ul", "table"])
def test_text_below_200_000_elements_is_read(tmp_path: Path, tag: str) -> None:
    """Before, in and after them; the page took 200,000 levels, which no parser with a call for each survives."""
    depth = 200_000
    nested = f"<{tag}>" * depth + "the words inside" + f"</{tag}>" * depth
    text = text_of(tmp_path, f"<h1>Above</h1>{nested}<p>after</p>")
    assert "Above" in text
    assert "the words inside" in text
    assert "after" in text


def test_elements_that_are_never_closed_do_not_hide_what_follows(tmp_path: Path) -> None:
    """Old generators leave tags open: the text of all is there, and words of two elements stay apart."""
    text = text_of(tmp_path, "".join(f"<div><font>word{number}" for number in range(3_000)))
    assert text.split() == [f"word{number}" for number in range(3_000)]


def test_structure_above_the_depth_stays(tmp_path: Path) -> None:
    """Only tags that are too deep are left out; a table beside them is still a table."""
    table = "<table><tr><th>part</th><th>price</th></tr><tr><td>valve</td><td>7</td></tr></table>"
    text = text_of(tmp_path, f"<h2>Parts</h2>{table}{'<div>' * 5_000}<p>deep</p>{'</div>' * 5_000}{table}")
    assert text.startswith("## Parts")
    assert text.count("| valve | 7 |") == 2
    assert "deep" in text

"""The pages hang together: each can be reached, and what they name in the repository is there."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "packages/retrieval_core/src/retrieval_core"
PAGES = sorted(path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md"))
ARCHITECTURE = (ROOT / "docs/dev/architecture.md").read_text(encoding="utf-8")
NAMED = sorted({name for name in re.findall(r"`([\w./]+)`", ARCHITECTURE) if name.endswith(("/", ".py", ".md"))})


def anchors(page: Path) -> set[str]:
    """Return the anchors of the headings of a page, as GitHub makes them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_the_navigation_has_each_page_once() -> None:
    """A page that is left out would only be found by searching."""
    listed = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    shown = [page for item in listed for page in ([item] if isinstance(item, str) else next(iter(item.values())))]
    assert sorted(shown) == PAGES


def test_the_first_page_leads_to_all_others() -> None:
    first = (ROOT / "docs/index.md").read_text(encoding="utf-8")
    others = [page for page in PAGES if page != "index.md" and "/" not in page]
    assert sorted(re.findall(r"\]\(([\w-]+\.md)\)", first)) == others


@pytest.mark.parametrize("name", PAGES)
def test_every_link_of_a_page_leads_to_a_file_and_a_heading(name: str) -> None:
    """Code is left out, since it may contain what looks like a link."""
    page = ROOT / "docs" / name
    text = re.sub(r"^```.*?^```$|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in link:
            continue
        target, _, anchor = link.partition("#")
        file = page.parent / target if target else page
        assert file.exists(), link
        assert not anchor or anchor in anchors(file), link


@pytest.mark.parametrize("name", NAMED)
def test_the_architecture_names_what_is_there(name: str) -> None:
    """Whoever moves a file moves it there too."""
    assert (SOURCE / name).exists() or (ROOT / name).exists()


def test_the_architecture_has_every_room() -> None:
    """A folder that is added beside them is a new room, and has to be told of."""
    rooms = {path.name for path in SOURCE.iterdir() if path.is_dir() and not path.name.startswith("_")}
    table = ARCHITECTURE.partition("## The tree")[2].partition("\n## ")[0]
    assert {name.rstrip("/") for name in re.findall(r"^\| `([\w.]+/?)` \|", table, re.MULTILINE)} == {
        *rooms,
        "errors.py",
    }


def test_the_embedder_of_the_architecture_works() -> None:
    code = ARCHITECTURE.partition("```python\n")[2].partition("```")[0]
    names: dict[str, Any] = {}
    exec(code, names)
    embedder = names["Letters"]()
    vectors = asyncio.run(embedder.embed_texts(["alas", "oboe"]))
    assert vectors.shape == (2, embedder.dimension)
    query = asyncio.run(embedder.embed_query("alas"))
    assert [round(float(part / query[1])) for part in query] == [3, 1, 1, 1, 1]
    assert query @ query == pytest.approx(1)

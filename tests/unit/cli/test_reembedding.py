"""What ``retrieval doctor`` says of an index that another embedder has filled."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from retrieval_core import open_index
from retrieval_core.cli import reembedding
from retrieval_core.cli.commands import main
from retrieval_core.config import load_config
from retrieval_core.errors import EmbeddingError
from retrieval_core.testing.fakes import FakeEmbedder
from retrieval_core.types import Document, content_hash

if TYPE_CHECKING:
    from pathlib import Path

FAKE = "retrieval_core.testing.fakes:FakeEmbedder"
SUBJECT = "embedder change"


@pytest.fixture(autouse=True)
def somewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Index two files, of two passages in all, with vectors of 256 components."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "moon.md").write_text("The moon is far away.")
    (tmp_path / "notes" / "sun.md").write_text("The sun is hot.")
    with open_index("index.db", config=config()) as index:
        index.ingest("notes")


def config(dimension: int = 256) -> Any:
    return load_config(overrides={"embedder.kind": FAKE, "embedder.custom.dimension": dimension, "index": "index.db"})


def options_of(dimension: int) -> str:
    return f'embedder.custom={{"dimension": {dimension}}}'


def found(*options: str, dimension: int = 256, kind: str = FAKE) -> str | None:
    """Return the detail of the finding, ``None`` where there is none."""
    given = [f"embedder.kind={kind}", "index=index.db"]
    given += [options_of(dimension)] if kind == FAKE else []
    result = CliRunner().invoke(
        main, ["doctor", "--json", *(word for one in given for word in ("--set", one)), *options]
    )
    findings = {entry["subject"]: entry for entry in json.loads(result.stdout)["findings"]}
    if SUBJECT in findings:
        assert findings[SUBJECT]["verdict"] == findings["index"]["verdict"] == "wrong"
        assert result.exit_code == 1
    return findings[SUBJECT]["detail"] if SUBJECT in findings else None


def test_the_same_embedder_has_no_finding() -> None:
    """Nor has an index that is not there, or an embedder that cannot be made."""
    assert found() is None
    assert found("--set", "index=other.db") is None
    assert found(kind="nobody.knows:this") is None
    assert found(kind="none") is None


def test_a_change_is_told_with_its_cost_and_the_command() -> None:
    """Documents, passages, and what makes the new index; which then has no finding."""
    told = found(dimension=64)
    assert told is not None
    assert (
        "index.db was built with fake-words-256 (256 dimensions), but fake-words-64 (64 dimensions) is configured."
        in told
    )
    assert "To change, embed 2 documents (2 chunks) again in about 1 s (" in told
    command = "retrieval index notes --index index-new.db"
    assert f"Run: {command}. Then use that index." in told
    assert told.endswith("To keep the index, configure fake-words-256 again.")
    options = ["--set", f"embedder.kind={FAKE}", "--set", options_of(64)]
    assert CliRunner().invoke(main, [*command.split()[1:], *options]).exit_code == 0
    assert found("--set", "index=index-new.db", dimension=64) is None


def test_documents_from_no_file_are_told_apart() -> None:
    """No command can bring them back."""
    with open_index("index.db", config=config()) as index:
        index.add_documents([Document("d", "Bread is baked.", "a program", content_hash("Bread is baked."))])
    told = found(dimension=64)
    assert told is not None
    assert "embed 3 documents (" in told
    assert "Add the documents that aren't from files (1) with the program that added them." in told


def test_an_embedder_that_fails_leaves_the_rest_to_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no duration then, and the embedder has a finding of its own."""

    async def fail(*_: object) -> None:
        raise EmbeddingError("no")

    monkeypatch.setattr(FakeEmbedder, "embed_texts", fail)
    told = found(dimension=64)
    assert told is not None
    assert "embed 2 documents (2 chunks) again. Run: " in told


@pytest.mark.parametrize(
    ("sources", "paths"),
    [
        (["a/b/1.md", "a/b/2.md"], ("a/b",)),
        (["a/b/1.md", "a/c/2.md", "x.md"], ("a", "x.md")),
        (["/wiki/a/1.md", "/wiki/b/2.md"], ("/wiki",)),
        ([f"{n}.md" for n in range(9)], ()),
    ],
)
def test_few_paths_hold_all_sources(sources: list[str], paths: tuple[str, ...]) -> None:
    """The deepest folder of each; of many, none is named."""
    assert reembedding._common_paths(sources) == paths


@pytest.mark.parametrize(
    ("seconds", "told"), [(0.2, "1 s"), (90, "90 s"), (150, "2 minutes"), (7000, "117 minutes"), (9000, "2 hours")]
)
def test_durations(seconds: float, told: str) -> None:
    """In the largest unit of which there are two."""
    assert reembedding._duration(seconds) == told

"""Several indexes from their files: what they share, and what the command line makes of them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from retrieval_core.cli.commands import main
from retrieval_core.errors import (
    ConfigurationError,
    IndexNotFoundError,
    InvalidParameterError,
)
from retrieval_core.index.federated import FederatedIndex
from retrieval_core.index.open import open_indexes
from retrieval_core.testing.fakes import CountingFakeEmbedder, FakeEmbedder
from retrieval_core.types import Chunk
from support.groups import QUESTION, Group, settings_with, sources, stages
from support.pipelines import TEXTS

if TYPE_CHECKING:
    from pathlib import Path


class TestOpening:
    """From files to indexes that share their models."""

    def open(self, folder: Path, names: tuple[str, ...] = ("a", "b"), **parts: Any) -> FederatedIndex:
        from retrieval_core import open_index

        for name in names:
            with open_index(folder / f"{name}.db", embedder=CountingFakeEmbedder()) as index:
                index.add([Chunk("c", "d", f"{TEXTS[0]} {name}")])
        parts.setdefault("embedder", CountingFakeEmbedder())
        return open_indexes([folder / f"{name}.db" for name in names], **parts)

    def test_files_are_named_by_their_stems_and_answer_together(self, tmp_path: Path) -> None:
        """Two files, one result and one embedding, and contexts are counted by the shared embedder."""
        embedder = CountingFakeEmbedder()
        with self.open(tmp_path, embedder=embedder) as indexes:
            assert sorted(map(str, sources(indexes.retrieve(QUESTION)))) == ["a", "b"]
            assert indexes.context(QUESTION).token_count > 0
        assert embedder.queries == [QUESTION]

    def test_missing_and_damaged_files_take_nothing_from_the_others(self, tmp_path: Path) -> None:
        """Each is listed with what to do; where there is no other index, that is raised as for one."""
        (tmp_path / "broken.db").write_bytes(b"no database" * 200)
        self.open(tmp_path, ("a",)).close()
        files = {"a": tmp_path / "a.db", "none": tmp_path / "none.db", "broken": tmp_path / "broken.db"}
        with open_indexes(files, embedder=CountingFakeEmbedder()) as indexes:
            result = indexes.retrieve(QUESTION)
            assert sources(result) == ["a"]
            assert stages(result) == ["index none", "index broken"]
            with pytest.raises(IndexNotFoundError):
                indexes.retrieve(QUESTION, indexes=["none"])

    def test_files_of_one_name_are_named_by_their_folders(self, tmp_path: Path) -> None:
        """As the usual place is the same in every folder; where these are the same too, names have to be given."""
        files = [tmp_path / "x" / ".retrieval" / "index.db", tmp_path / "y" / ".retrieval" / "index.db"]
        assert list(open_indexes(files, embedder=FakeEmbedder()).indexes) == ["x", "y"]
        with pytest.raises(InvalidParameterError, match="name them"):
            open_indexes([files[0], files[0]], embedder=FakeEmbedder())
        with pytest.raises(InvalidParameterError, match="a mapping of names"):
            open_indexes("a.db", embedder=FakeEmbedder())

    def test_the_rerankers_batch_size_is_the_configured_one(self, tmp_path: Path) -> None:
        """As for one index, the local cross-encoder gets as many passages at a time as are set."""
        config = settings_with(reranker__kind="local", reranker__batch_size=5)
        with open_indexes([tmp_path / "a.db"], config=config, embedder=FakeEmbedder()) as indexes:
            parts = indexes.query_parts(with_embedder=False)
            assert 5 in [getattr(part, "batch_size", None) for part in parts]

    def test_a_store_that_is_no_file_has_to_be_opened_by_itself(self) -> None:
        """A path would mean nothing to it."""
        config = settings_with(store__kind="pinecone", store__pinecone__index_name="i", store__pinecone__api_key="k")
        with pytest.raises(ConfigurationError, match="open_index"):
            open_indexes(["a.db"], config=config)

    def test_closing_closes_everything_once_and_again(self) -> None:
        """Stores, and what is plugged in; closing twice is fine, and an error of one keeps nothing open."""
        group = Group()
        group.stores["wiki"].failures["close"] = OSError("stuck")
        with pytest.raises(OSError, match="stuck"):
            group.indexes().close()
        assert [store.closed for store in group.stores.values()] == [1, 1, 1]
        del group.stores["wiki"].failures["close"]
        indexes = group.indexes()
        indexes.close()
        indexes.close()


class TestCommands:
    """The option --index, repeated."""

    def test_search_and_context_ask_several_indexes(self, tmp_path: Path) -> None:
        """Names are those given, hits say where they are from, and citations match."""
        files: list[str] = []
        for name in ("a", "b"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "page.md").write_text(f"# {name}\n\n{TEXTS[0]} {name}\n")
            files.append(str(tmp_path / f"{name}.db"))
            lexical = ["--config", "lexical"]
            runner = CliRunner()
            assert runner.invoke(main, ["index", str(tmp_path / name), "--index", files[-1], *lexical]).exit_code == 0
        several = ["--index", f"one={files[0]}", "--index", f"two={files[1]}", *lexical]
        found = runner.invoke(main, ["search", QUESTION, *several, "--json"])
        assert found.exit_code == 0, found.output
        assert sorted(hit["source_index"] for hit in json.loads(found.stdout)["hits"]) == ["one", "two"]
        shown = runner.invoke(main, ["search", QUESTION, "--index", files[0], "--index", files[1], *lexical])
        assert " in a" in shown.output
        assert " in b" in shown.output
        pack = runner.invoke(
            main, ["context", QUESTION, *several, "--set", "context.token_counter=support.pipelines:word_counter"]
        )
        assert pack.exit_code == 0, pack.output
        assert "one:" in pack.output
        assert "two:" in pack.output

"""The analysis as it is configured, and what an index does with it."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from retrieval_core.adapters.registry import build_analyzer
from retrieval_core.adapters.stores.memory import MemoryStore
from retrieval_core.adapters.stores.sqlite import SqliteStore
from retrieval_core.config import AnalysisConfig, load_config
from retrieval_core.errors import ConfigurationError, IndexFormatError
from retrieval_core.ports import Change, SearchRequest
from retrieval_core.types import Chunk

if TYPE_CHECKING:
    from pathlib import Path

TEXTS = {"a": "Eine Donaudampfschifffahrt im Sommer", "b": "The accomodation in New York", "c": "York is new"}


def found(path: Path, question: str, **settings: Any) -> list[str]:
    """Search an index by words, in a file made where there is none, and check that memory agrees."""
    is_new = not path.exists()

    async def main() -> list[str]:
        analyzer = build_analyzer(AnalysisConfig(**settings))
        answers: list[list[str]] = []
        for store in (SqliteStore(path, analyzer=analyzer), MemoryStore(analyzer=analyzer)):
            async with AsyncExitStack() as stack:  # a store that refuses is closed too
                stack.push_async_callback(store.aclose)
                if is_new or isinstance(store, MemoryStore):
                    await store.upsert(Change(tuple(Chunk(name, name, text) for name, text in TEXTS.items())))
                answers.append([item.chunk_id for item in await store.search(SearchRequest(5, text=question))])
        assert answers[0] == answers[1]
        return answers[0]

    return asyncio.run(main())


def test_the_default_is_the_analysis_of_always() -> None:
    assert build_analyzer(AnalysisConfig()).id == "unicode-snowball-english-1"


def test_settings_reach_the_analysis() -> None:
    """From a configuration, all of them; a list of stop words may be empty."""
    config = load_config(
        overrides={
            "analysis.language": "porter",
            "analysis.stop_words": [],
            "analysis.word_ngrams": 2,
        }
    )
    expected = "unicode-snowball-porter-1 stop_words=none word_ngrams=2"
    assert build_analyzer(config.analysis).id == expected


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"word_ngrams": 0}, "word_ngrams"),
        ({"word_ngrams": 5}, "word_ngrams"),
        ({"language": "DE"}, "language"),
    ],
)
def test_wrong_settings_are_told(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        load_config(overrides={f"analysis.{name}": value for name, value in settings.items()})


def test_an_unknown_language_is_told_when_the_analysis_is_made() -> None:
    with pytest.raises(ConfigurationError, match=r"analysis: language must be one of .*german.*got 'klingon'"):
        build_analyzer(AnalysisConfig(language="klingon"))


def test_neighbours_count_more_than_words_apart(tmp_path: Path) -> None:
    """As one word each they tie but for the length; as a pair they do not."""
    assert found(tmp_path / "plain.db", "new york") == ["c", "b"]
    assert found(tmp_path / "pairs.db", "new york", word_ngrams=2) == ["b", "c"]


def test_an_index_is_opened_with_its_own_analysis(tmp_path: Path) -> None:
    """The error names the settings; with them it opens."""
    path = tmp_path / "index.db"
    settings: dict[str, Any] = {"language": "german", "stop_words": ["im"], "word_ngrams": 2}
    assert found(path, "Sommer", **settings) == ["a"]
    with pytest.raises(IndexFormatError, match=r"snowball-german-1 stop_words=.*word_ngrams=2.*Set analysis\.language"):
        found(path, "Sommer")
    assert found(path, "sommers", **settings) == ["a"]

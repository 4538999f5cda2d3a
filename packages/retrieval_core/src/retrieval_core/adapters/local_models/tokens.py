"""Tokenizers of local models. Importing this loads ``tokenizers``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tokenizers import Tokenizer
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from retrieval_core.errors import ModelNotFoundError
from retrieval_core.types.escapes import valid_unicode

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tokenizers import Encoding

# Most passages fit into this many characters a token, so that they are tokenized once and whole.
_CHARACTERS_PER_TOKEN = 6
# BERT's tokenizers split here and in more places, and tokenize what is between by itself.
_BERT_WORD = re.compile(r"[!-/:-@\[-`{-~]|[^ \t\n\r!-/:-@\[-`{-~]+")
_MOST_KNOWN_WORDS, _LONGEST_KNOWN_WORD = 1 << 16, 32


def load_tokenizer(path: Path) -> Tokenizer:
    """Return a tokenizer that neither truncates nor pads, and for which ``[SEP]`` in a text is text.

    Raises:
        ModelNotFoundError: The file does not describe a tokenizer.
    """
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises nothing narrower
        msg = f"{path} is not a tokenizer: {error}"
        raise ModelNotFoundError(msg) from error
    return _plain(tokenizer)


def copy_tokenizer(tokenizer: Tokenizer) -> Tokenizer:
    """Return an independent copy, in some 30 ms."""
    return _plain(Tokenizer.from_str(tokenizer.to_str()))


def _plain(tokenizer: Tokenizer) -> Tokenizer:
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True
    return tokenizer


def token_counter(tokenizer: Tokenizer) -> Callable[[str], int]:
    """Return a counter of the tokens of a whole text, without those that the model adds.

    For a tokenizer of BERT's kind it caches the counts of words: a long text is counted many times while it is split.
    """

    def count(text: str) -> int:
        return len(tokenizer.encode(valid_unicode(text), add_special_tokens=False))

    if not _splits_as_bert(tokenizer):
        return count
    known = _KnownWords(count)
    return lambda text: sum(map(known.__getitem__, _BERT_WORD.findall(text)))


class _KnownWords(dict[str, int]):
    def __init__(self, count: Callable[[str], int]) -> None:
        self._count = count

    def __missing__(self, word: str) -> int:
        tokens = self._count(word)
        if len(word) <= _LONGEST_KNOWN_WORD:
            if len(self) >= _MOST_KNOWN_WORDS:
                self.clear()
            self[word] = tokens
        return tokens


def _splits_as_bert(tokenizer: Tokenizer) -> bool:
    """Whether every token lies inside a word or is a punctuation mark."""
    return (
        isinstance(tokenizer.normalizer, BertNormalizer)
        and isinstance(tokenizer.pre_tokenizer, BertPreTokenizer)
        and all(token.special for token in tokenizer.get_added_tokens_decoder().values())
    )


def encode_start(tokenizer: Tokenizer, text: str, limit: int) -> Encoding:
    """Return the first tokens of a text, with those that the model adds around them.

    The result is that of tokenizing the whole text, at the cost of tokenizing its start: tokenizers split text into
    words first, so the cut is moved on until enough tokens lie before the word that it may have split.

    Args:
        limit: The most tokens of the text to take, at least 1.
    """
    return tokenizer.post_process(_start(tokenizer, text, limit))


def encode_pair(tokenizer: Tokenizer, first: str, second: str, limit: int) -> Encoding:
    """Return two texts as one sequence, with the tokens that the model adds around and between them.

    Where both together are too long, the longer one loses tokens from its end until it is as long as the other, and
    then both do ("longest first"). So a question stays whole unless it takes more than half. Texts are not read beyond
    the limit: those that reach it count as equally long, and where it is odd the second keeps one token more.

    Args:
        limit: The most tokens of both texts together, at least 2.
    """
    one, other = _start(tokenizer, first, limit), _start(tokenizer, second, limit)
    shorter, longer = sorted((one, other), key=_length)
    if _length(one) + _length(other) > limit:
        shorter.truncate(min(_length(shorter), limit // 2))
        longer.truncate(limit - _length(shorter))
    return tokenizer.post_process(one, other)


def _start(tokenizer: Tokenizer, text: str, limit: int) -> Encoding:
    text = valid_unicode(text)
    length = limit * _CHARACTERS_PER_TOKEN
    encoding = tokenizer.encode(text[:length], add_special_tokens=False)
    while length < len(text) and _settled(encoding) < limit:
        length *= 2
        encoding = tokenizer.encode(text[:length], add_special_tokens=False)
    encoding.truncate(limit)
    return encoding


def _length(encoding: Encoding) -> int:
    return len(encoding.ids)


def _settled(encoding: Encoding) -> int:
    """Return how many tokens lie before the last word."""
    words = encoding.word_ids
    return words.index(words[-1]) if words else 0

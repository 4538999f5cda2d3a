"""Token counters, for budgets in the tokens of some model.

Those of this module may be called from several threads. The first call of each reads files, so make it off the event
loop.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from retrieval_core.adapters.embedders.local import BGE_SMALL_EN, LocalEmbedder
from retrieval_core.adapters.local_models.work import needing_extra
from retrieval_core.errors import ConfigurationError
from retrieval_core.installation import install_command
from retrieval_core.ports import Embedder, TokenCounter, as_plugin
from retrieval_core.run.caching import Lazy
from retrieval_core.types.escapes import valid_unicode

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Self

    from bpe_openai import Encoding

    from retrieval_core.adapters.parts import AdapterParts

AUTO = "auto"
ENCODINGS = ("cl100k_base", "o200k_base")
"""OpenAI's vocabularies: of GPT-3.5, GPT-4 and the embedding models, and of GPT-4o and later models."""

# The library refuses a million characters, and 200,000 tokens. A character is at most four bytes of UTF-8, and a token
# of these vocabularies at least one byte, so this many characters are always taken.
_MOST_CHARACTERS = 50_000


class BpeTokenCounter(TokenCounter):
    """Counts in one of OpenAI's vocabularies, which come with the extra ``tokens``; a ``TokenCounter``.

    Special tokens written in a text, such as ``<|endoftext|>``, are text like any other. Half surrogate pairs count as
    U+FFFD, by which they are replaced before they are sent to a model.

    Up to 50,000 characters the number is exact. A longer text is counted in pieces. They are cut before a line that
    begins with a letter or a digit, where no token spans the cut; a piece without such a line is cut at 50,000
    characters, which may make the count differ by a few tokens a cut.

    Args:
        encoding: One of :data:`ENCODINGS`.

    Raises:
        ConfigurationError: There is no such encoding here.
    """

    def __init__(self, encoding: str = "o200k_base") -> None:
        if encoding not in ENCODINGS:
            msg = f"there is no encoding {encoding!r}; there are {' and '.join(ENCODINGS)}"
            raise ConfigurationError(msg)
        self.encoding = encoding
        self._loaded: Lazy[Encoding] = Lazy(self._load)

    @classmethod
    def from_settings(cls, settings: None, parts: AdapterParts) -> Self:  # noqa: ARG003 - it has none
        """Make the counter of the vocabulary that the kind names, loading nothing."""
        return cls(parts.kind)

    def _call(self, text: str, /) -> int:
        """Return the number of tokens, 0 for empty text.

        Raises:
            MissingExtraError: ``bpe-openai`` is not installed.
        """
        loaded = self._loaded.get()
        return sum(len(loaded.encode_ordinary(piece)) for piece in _pieces(valid_unicode(text)))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.encoding!r})"

    def _load(self) -> Encoding:
        with needing_extra("tokens", f"Counting tokens of {self.encoding}"):
            from bpe_openai import get_encoding  # noqa: PLC0415 - an extra
        return get_encoding(self.encoding)


def counter_of_embedder(embedder: Embedder | None = None) -> TokenCounter:
    """Return the embedder's own counter or, where it has none, that of the default local embedder's tokenizer.

    Raises:
        ConfigurationError: There is neither.
    """
    if embedder is not None and "count_tokens" in as_plugin(embedder, Embedder).capabilities:
        return as_plugin(embedder.count_tokens, TokenCounter)
    if any(find_spec(package) is None for package in ("tokenizers", BGE_SMALL_EN.files.carrier)):
        who = "there is no embedder" if embedder is None else f"the embedder {embedder.id} counts no tokens"
        msg = (
            f"{who}, and the local tokenizer is not installed. Do one of these: {install_command('local')}; "
            f"set context.token_counter to {' or '.join(ENCODINGS)}, with {install_command('tokens')}; "
            'set it to "package.module:factory", a function of yours that returns a counter.'
        )
        raise ConfigurationError(msg, missing_keys=("context.token_counter",))
    return as_plugin(LocalEmbedder().count_tokens, TokenCounter)


def named_counter(name: str, embedder: Embedder | None = None) -> TokenCounter:
    """Return the counter that ``context.token_counter`` names, unless that is a user's factory.

    Args:
        name: ``auto`` for :func:`counter_of_embedder`, or one of :data:`ENCODINGS`.
        embedder: For ``auto``.

    Raises:
        ConfigurationError: There is no such counter, or for ``auto`` none at all.
    """
    if name == AUTO:
        return counter_of_embedder(embedder)
    if name in ENCODINGS:
        return BpeTokenCounter(name)
    msg = (
        f'there is no token counter {name!r}; there are {AUTO}, {", ".join(ENCODINGS)} and "package.module:factory", a '
        "function of yours that returns a counter"
    )
    raise ConfigurationError(msg)


def _pieces(text: str) -> Iterator[str]:
    start = 0
    while len(text) - start > _MOST_CHARACTERS:
        limit = start + _MOST_CHARACTERS
        cut = text.rfind("\n", start, limit)
        while cut > start and not text[cut + 1].isalnum():
            cut = text.rfind("\n", start, cut)
        end = cut + 1 if cut > start else limit
        yield text[start:end]
        start = end
    if start < len(text):
        yield text[start:]

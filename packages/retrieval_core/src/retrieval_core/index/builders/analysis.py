"""The lexical analysis as it is configured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retrieval_core.errors import ConfigurationError, InvalidParameterError

if TYPE_CHECKING:
    from retrieval_core.config import AnalysisConfig
    from retrieval_core.text.analysis import Analyzer


def build_analyzer(config: AnalysisConfig) -> Analyzer:
    """Return what turns text into terms, for stores and for highlighting.

    Raises:
        ConfigurationError: There is no such language, or its stop words are not installed.
    """
    from retrieval_core.text.analysis import Analyzer  # noqa: PLC0415

    try:
        return Analyzer(
            config.language,
            stop_words=config.stop_words,
            word_ngrams=config.word_ngrams,
            character_ngrams=config.character_ngrams,
        )
    except InvalidParameterError as error:
        msg = f"analysis: {error}"
        raise ConfigurationError(msg) from error


def build_word_analyzer(config: AnalysisConfig) -> Analyzer:
    """Return what turns text into the terms of single words, in the configured language; see :func:`build_analyzer`."""
    return build_analyzer(config.model_copy(update={"word_ngrams": 1, "character_ngrams": 0}))

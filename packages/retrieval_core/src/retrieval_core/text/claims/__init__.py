"""Claims of a text that can be compared exactly with another text: figures and names."""

from retrieval_core.text.claims.figures import Figure, figures_in, figures_of, missing_figures
from retrieval_core.text.claims.words import FUNCTION_WORDS, words_in

__all__ = ["FUNCTION_WORDS", "Figure", "figures_in", "figures_of", "missing_figures", "words_in"]

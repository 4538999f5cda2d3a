"""Claims of a text that can be compared exactly with another text: figures, names and negations."""

from retrieval_core.text.claims.comparison import Difference, compare
from retrieval_core.text.claims.figures import Figure, figures_in, figures_of, missing_figures
from retrieval_core.text.claims.reading import Reading, Token, read
from retrieval_core.text.claims.words import FUNCTION_WORDS, words_in

__all__ = [
    "FUNCTION_WORDS",
    "Difference",
    "Figure",
    "Reading",
    "Token",
    "compare",
    "figures_in",
    "figures_of",
    "missing_figures",
    "read",
    "words_in",
]

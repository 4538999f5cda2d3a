"""What a text claims that can be held against another exactly: figures, names and negations."""

from retrieval_core.claims.differences import Differences, differences, missing_figures
from retrieval_core.claims.figures import Figure, figures_in, figures_of
from retrieval_core.claims.statements import Statement, Word, statement_of
from retrieval_core.claims.words import rules_id

__all__ = [
    "Differences",
    "Figure",
    "Statement",
    "Word",
    "differences",
    "figures_in",
    "figures_of",
    "missing_figures",
    "rules_id",
    "statement_of",
]

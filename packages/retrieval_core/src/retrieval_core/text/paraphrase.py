"""Whether two questions that an embedder finds alike ask the same.

Vectors are nearly equal where only a number, a name, a ``not`` or the order of two words differs, and the answer is
another one then. No list of such differences is complete. So questions are the same where they are equal once a few
things that say nothing are written in one way: the first letter's case, the marks at the end, contractions, ``the``,
``how can I`` for ``how do I``, ``what`` for ``which``, and a phrase at the front that may stand at the end. Every other
word, figure and name counts, in its order and its case.

This is for English. Questions in other languages, and those with quotations or code in quotation marks, have to be
equal but for the first letter's case and the marks at the end. The work is linear in the question's length.
"""

from __future__ import annotations

import re

MAX_LENGTH = 1000
"""Longer questions, in code points, have to be equal: people's paraphrases are short."""

_ENGLISH = re.compile(
    r"(?i)(?<!\w)(?:the|what|how|why|when|where|which|who|does|did|is|are|were|should|can|do|my)(?!\w)"
)
_QUOTED = re.compile(
    "[\"`\u201c\u201d\u201e\u201f\u00ab\u00bb\u2039\u203a\u2018\u201b\u300c-\u300f]|(?<!\\w)'|'(?!\\w)"
)
_STOPS = " \t\n?.\u2026\u3002\uff1f\uff0e"
_CALLS = "!\uff01"
_FRONTED = re.compile(
    r"((?:in|on|at|for|from|after|before|during|with|without|as|by|under|between|within|since)\s[^,]+),\s+"
    r"((?:what|which|who|when|where|why|how|is|are|do|does|did|can|should|may)\s.+)",
    re.DOTALL,
)
_REWRITTEN = tuple(
    (re.compile(rf"(?<![\w'-]){pattern}(?![\w'-])"), plain)
    for pattern, plain in (
        (r"can't|cannot", "can not"),
        (r"won't", "will not"),
        (r"(do|does|did|is|are|was|were|has|have|had|could|should|would)n't", r"\1 not"),
        (r"(what|who|where|when|why|how|that|there|it)'s", r"\1 is"),
        (r"([Ii]|you|we|they)'ve", r"\1 have"),
        (r"(you|we|they|what|who)'re", r"\1 are"),
        (r"([Ii]|you|we|they|it)'ll", r"\1 will"),
        (r"[Ii]'m", "i am"),
        (r"I", "i"),
        (r"which", "what"),
    )
)
_HOW = re.compile(r"how (?:do i|can i|i can|does one|can one|to)(?!\S)")
_THE = re.compile(r"(?<!\S)(?<!half )(?<!all )the (?=[^\W\d_]{2})(?!few(?!\w))")


def same_meaning(question: str, other: str) -> bool:
    """Whether two questions, as normalised, ask the same as far as their words tell; ``False`` where in doubt."""
    return plain_question(question) == plain_question(other)


def plain_question(question: str) -> str:
    """Return a question without what says nothing; equal ones ask the same."""
    text = question.lstrip("\u00bf\u00a1").rstrip(_STOPS + _CALLS)
    if not text[-2:].isalpha():  # 5! is a number
        text = question.lstrip("\u00bf\u00a1").rstrip(_STOPS)
    if text[1:2].islower() or text[1:2].isspace():
        text = text[:1].lower() + text[1:]
    if len(question) > MAX_LENGTH or not _ENGLISH.search(text):
        return text
    spelled = " ".join(text.replace("\u2019", "'").replace("\u02bc", "'").split())
    if _QUOTED.search(spelled):
        return text
    if (fronted := _FRONTED.fullmatch(spelled)) is not None:
        spelled = f"{fronted[2]} {fronted[1]}"
    for pattern, plain in _REWRITTEN:
        spelled = pattern.sub(plain, spelled)
    return _THE.sub("", _HOW.sub("how to", spelled))

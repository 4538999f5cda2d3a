"""Whether two questions that an embedder finds alike ask the same.

Vectors are nearly equal where only a number, a name, a ``not`` or the order of two words differs, and the answer is
another one then. No list of such differences is complete. So it is the other way round: two questions are the same
where everything that differs is known to say nothing, such as greetings, most articles, ``how can I`` for ``how do I``,
contractions, two spellings of a word, case where no name depends on it, and singular or plural where nothing depends
on it. Numbers, units, dates, versions, names, negations, comparatives, antonyms, question words, tenses and the order
of words are never among these, nor is any word that is not known here.

This is for English. Questions in other languages, and those with quotations or code in quotation marks, have to be
equal but for the first letter's case and the mark at the end. The work is linear in the questions' lengths.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from retrieval_core.cache.words import (
    BEFORE_IS,
    CONTRACTIONS,
    DESIGNATED,
    ENDINGS,
    FRAMES,
    GREETINGS,
    KEEPS_ARTICLE,
    LONGEST_FRAME,
    LONGEST_GREETING,
    LONGEST_THANKS,
    NAMES_TOO,
    NO_PLURALS,
    NOT_WITHOUT_ARTICLE,
    PREPOSITIONS,
    QUESTION_STARTS,
    SIGNS_OF_ENGLISH,
    SPELLINGS,
    THANKS,
)

MAX_LENGTH = 1000
"""Longer questions, in code points, have to be equal: people's paraphrases are short."""
_QUOTES = frozenset('"`\u201c\u201d\u201e\u201f\u00ab\u00bb\u2039\u203a\u2018\u201b\u300c\u300d\u300e\u300f')
_APOSTROPHES = {0x2019: "'", 0x02BC: "'"}
_STOPS = " ?.\u2026\u3002\uff1f\uff0e"
_CALLS = ("!", "\uff01")
_FEW_WORDS = 3


@dataclass(frozen=True, slots=True)
class Meaning:
    """What is left of a question without what says nothing; made by :func:`meaning_of`.

    Attributes:
        plain: The question but for the first letter's case and the mark at its end.
        words: What it says, in order, in lower case; empty where it cannot be taken apart.
        names: Those of its words that are written as names; ``None`` where its writer does not tell them from others.
        definite: Words behind "the", whose number counts: the box, the boxes.
        indefinite: Words behind "a": the matrix is not any matrix, but often neither has an article.
    """

    plain: str
    words: tuple[str, ...] = ()
    names: frozenset[str] | None = None
    definite: frozenset[str] = frozenset()
    indefinite: frozenset[str] = frozenset()

    def is_same(self, other: Meaning) -> bool:
        """Whether nothing differs that is not known to be harmless."""
        if self.plain == other.plain:
            return True
        if not self.words or len(self.words) != len(other.words) or not _agree(self.names, other.names):
            return False
        if self.definite & other.indefinite or self.indefinite & other.definite:
            return False
        if self.words == other.words:
            return True
        if self.names is None and other.names is None:  # what is not told from a name may be one: alien, aliens
            return False
        fixed = (self.names or frozenset()) | (other.names or frozenset()) | self.definite | other.definite
        return all(
            mine == theirs or (_singular(mine) == _singular(theirs) and mine not in fixed and theirs not in fixed)
            for mine, theirs in zip(self.words, other.words, strict=True)
        )


def same_meaning(question: str, other: str) -> bool:
    """Whether two questions, as normalised, ask the same as far as their words tell; ``False`` where in doubt."""
    return meaning_of(question).is_same(meaning_of(other))


def meaning_of(question: str) -> Meaning:
    """Take off a question what says nothing."""
    plain = _plain(question)
    if len(question) > MAX_LENGTH:
        return Meaning(plain)
    question = question.translate(_APOSTROPHES)
    if any(mark in _QUOTES for mark in question):
        return Meaning(plain)
    tokens = _tokens(question)
    if any(token.word.startswith("'") or token.word.endswith("'") for token in tokens):
        return Meaning(plain)
    if not any(token.word in SIGNS_OF_ENGLISH for token in tokens):
        return Meaning(plain)
    names = _names(tokens)
    tokens = _with_phrase_last(_without_thanks(_without_greetings(_spelled_out(tokens))))
    words = _framed([_spelling(token.word) for token in tokens])
    definite = frozenset([word for article, word in pairwise(words) if article == "the"])
    indefinite = frozenset([word for article, word in pairwise(words) if article in {"a", "an"}])
    return Meaning(plain, _without_auxiliaries(_without_articles(words)), names, definite, indefinite)


@dataclass(frozen=True, slots=True)
class _Token:
    """A word, in lower case unless it is no plain one.

    Attributes:
        typed: As it was written.
        ends: Whether a punctuation mark follows.
    """

    word: str
    typed: str
    ends: bool = False


def _plain(question: str) -> str:
    text = question.lstrip("¿¡").rstrip(_STOPS)
    if text.endswith(_CALLS) and len(text) > _FEW_WORDS and text[-3:-1].isalpha():  # 5! is a number
        text = text[:-1].rstrip(_STOPS)
    return text[:1].lower() + text[1:] if text[1:2].islower() or text[1:2].isspace() else text


def _tokens(question: str) -> list[_Token]:
    tokens: list[_Token] = []
    for raw in question.split():
        bare = raw.rstrip("?.,;:!…")
        if (len(bare) > 1 and _is_plain(bare)) or (bare in {"a", "A", "i", "I"} and "!" not in raw):
            tokens.append(_Token(bare.lower(), bare, bare != raw))
        else:  # numbers, code, paths, symbols: every character counts
            literal = raw.rstrip("?.,;…") or raw
            tokens.append(_Token(literal, literal, literal != raw))
    if len(tokens) > 1 and not tokens[-1].word.strip("?!."):  # "gare ?"
        tokens.pop()
    return tokens


def _is_plain(word: str) -> bool:
    return all([mark.isalpha() or mark in "'-" for mark in word]) and word[0].isalpha()  # noqa: C419 - faster


def _names(tokens: list[_Token]) -> frozenset[str] | None:
    """Return the words that are written as names; ``None`` where case tells nothing."""
    typed = [token.typed for token in tokens if token.typed[0].isalpha()]
    if not typed or all(word.isupper() for word in typed) or all(word == word.lower() or word == "I" for word in typed):
        return None
    long = [word for word in typed if len(word) > _FEW_WORDS]
    if len(long) >= _FEW_WORDS and all(word[0].isupper() for word in long):  # a title
        return None
    names: set[str] = set()
    begins = True
    for token in tokens:
        is_name = token.typed != token.typed.lower() and token.word.split("'")[0] != "i"
        if is_name and not (begins and token.typed[1:] == token.typed[1:].lower()):
            names.add(token.word.removesuffix("'s"))
        begins = token.ends
    return frozenset(names)


def _agree(names: frozenset[str] | None, others: frozenset[str] | None) -> bool:
    if names is not None and others is not None:
        return names == others
    return NAMES_TOO.isdisjoint(names or others or ())


def _spelled_out(tokens: list[_Token]) -> list[_Token]:
    result: list[_Token] = []
    for token in tokens:
        parts = _parts(token.word)
        result += [_Token(part, token.typed, token.ends and part is parts[-1]) for part in parts]
    return result


def _parts(word: str) -> tuple[str, ...]:
    if word in CONTRACTIONS:
        return CONTRACTIONS[word]
    if "'" not in word:
        return (word,)
    for ending, full in ENDINGS.items():
        if word.endswith(ending) and len(word) > len(ending):
            return (word.removesuffix(ending), full)
    if word.endswith("'s"):
        base = word.removesuffix("'s")
        return (base, "is") if base in BEFORE_IS else (base, "'s")
    return (word,)


def _without_greetings(tokens: list[_Token]) -> list[_Token]:
    start = 0
    while True:
        for size in range(min(LONGEST_GREETING, len(tokens) - start - 1), 0, -1):
            rest = start + size
            greeting = _words(tokens[start:rest])
            if greeting == ("do", "you", "know") and _words(tokens[rest : rest + 2]) == ("how", "to"):
                continue  # it asks whether somebody can
            if greeting in GREETINGS and _may_begin(tokens[rest:]):
                start = rest
                break
        else:
            break
    if start and tokens[start].word in {"if", "whether"} and len(tokens) > start + 1:
        start += 1
    return tokens[start:]


def _may_begin(tokens: list[_Token]) -> bool:
    """Whether a question begins here, perhaps behind one more greeting."""
    words = _words(tokens[: LONGEST_GREETING + 1])
    return words[0] in QUESTION_STARTS or any(words[:size] in GREETINGS for size in range(1, len(words)))


def _without_thanks(tokens: list[_Token]) -> list[_Token]:
    for size in range(1, min(LONGEST_THANKS, len(tokens) - 1) + 1):
        if tokens[-size - 1].ends and _words(tokens[-size:]) in THANKS:
            return tokens[:-size]
    return tokens


def _words(tokens: list[_Token]) -> tuple[str, ...]:
    return tuple([token.word for token in tokens])


def _with_phrase_last(tokens: list[_Token]) -> list[_Token]:
    """Put a phrase such as "In Ireland, …" where it stands in "… in Ireland"."""
    if tokens[0].word in PREPOSITIONS:
        for place in range(1, len(tokens) - 1):
            if tokens[place].ends:
                begins = tokens[place + 1].word in QUESTION_STARTS
                return tokens[place + 1 :] + tokens[: place + 1] if begins else tokens
    return tokens


def _framed(words: list[str]) -> list[str]:
    for size in range(min(LONGEST_FRAME, len(words)), 0, -1):
        if (frame := FRAMES.get(tuple(words[:size]))) is not None:
            return [*frame, *words[size:]]
    return words


def _spelling(word: str) -> str:
    if word in SPELLINGS:
        return SPELLINGS[word]
    if len(word) > 6:  # so that rise and wise stay
        for british, american in (("isation", "ization"), ("ise", "ize"), ("ised", "ized"), ("yse", "yze")):
            if word.endswith(british):
                return word.removesuffix(british) + american
    return word


def _without_articles(words: list[str]) -> list[str]:
    kept: list[str] = []
    for place, word in enumerate(words):
        following = words[place + 1] if place + 1 < len(words) else ""
        if (
            word not in {"a", "an", "the"}
            or following in NOT_WITHOUT_ARTICLE
            or (place and words[place - 1] in KEEPS_ARTICLE)
            or (word == "a" and place and words[place - 1] in DESIGNATED)
            or not following
            or following in PREPOSITIONS
            or following in {"a", "an", "the", "and", "or", "vs"}
        ):
            kept.append(word)
    return kept


def _without_auxiliaries(words: list[str]) -> tuple[str, ...]:
    """Take out the auxiliary of a question, whose place differs between "what is it" and "(tell me) what it is".

    It is noted at the end, because "What is John like?" is not "What does John like?". Only behind how, when, where and
    why, and at the beginning, ``do`` says nothing at all.
    """
    words = [{"are": "is", "were": "was", "does": "do"}.get(word, word) for word in words]
    if words[0] in {"how", "when", "where", "why", "do"} and "do" in words:
        words.remove("do")
    found = [word for word in words if word in {"is", "was"}]
    if len(found) == 1:
        words.remove(found[0])
        words.append(f"({found[0]})")
    return tuple(words)


def _singular(word: str) -> str:
    if word in NO_PLURALS or len(word) <= _FEW_WORDS or not word.endswith("s"):
        return word
    if word.endswith(("ss", "us", "is", "as", "ics")):
        return word
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("sses", "xes", "zes", "ches", "shes", "oes")):
        return word[:-2]
    return word[:-1]

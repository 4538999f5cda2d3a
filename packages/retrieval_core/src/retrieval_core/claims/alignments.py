"""Where two sentences that are nearly the same word for word differ."""

from __future__ import annotations

import re
from difflib import SequenceMatcher
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrieval_core.claims.statements import Statement, Word

NEARLY_ALL = 0.75
"""The least part of a claim's other words that stand in the same order in the evidence, where a strange one counts."""
ALL = 0.9
"""The same, where the evidence has nothing in its place."""
_LONGEST_CHANGE = 3
"""Words of a change; what is longer is said in other words."""
_LONGEST = 80
"""Words of a claim that are aligned."""
_LONGEST_EVIDENCE = 160
# Stems of words that say little by themselves, which a paraphrase puts in the place of another or adds.
_LIGHT = frozenset(
    """
    use run take get set see show list call need want let help come go make do give say be part time number way such so
    then thus now ani some well very quit both each other own same user you peopl person on
    """.split()  # noqa: SIM905 - words are read more easily so
)
_ONLY = frozenset({"only", "solely", "exclusively"})
_LIMITS = re.compile(
    r"(?<!\w)(?:only|solely|exclusively|just|sole|alone|except|unless|not|no|none|nobody|limited|limit|must|until)(?!\w)",
    re.IGNORECASE,
)
_ENDS = re.compile(r"[.!?]\s")
_ARTICLES = frozenset({"the", "a", "an"})


def strange_in(
    mine: Statement, theirs: Statement, around: Statement, lacking: Sequence[Word]
) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """Return words that were altered or added, and names at the start of the sentences, each with the evidence's."""
    found: dict[str, None] = {}
    names: list[tuple[str, str]] = []
    first = mine.content[:1]
    for word, rival in _strange_words(mine, theirs, lacking):
        found[word.typed] = None
        if rival is not None and word in first and rival in theirs.content[:1] and _may_be_names(word, rival):
            names.append((word.typed, rival.typed))
    for word in first if _has_other_subject(mine, theirs) else ():
        if (
            word.typed[:1].isupper()
            and word in lacking
            and not _says_little(word)
            and not (word.concept in around.forms or word.base in around.forms)
        ):
            found[word.typed] = None
    for place, word in enumerate(mine.words):
        if word.typed.lower() in _ONLY and not _is_limited(theirs, mine.words[place + 1 : place + 2]):
            found[word.typed] = None
    return tuple(found), tuple(names)


def _has_other_subject(mine: Statement, theirs: Statement) -> bool:
    """Whether that sentence of the evidence which has most of a claim's words begins with one that the claim lacks."""
    ends = [match.end() for match in _ENDS.finditer(theirs.text)]
    best, shared = (), -1
    for start, end in zip([0, *ends], [*ends, len(theirs.text) + 1], strict=True):
        words = [word for word in theirs.content if start <= word.start < end]
        count = sum(word.concept in mine.forms for word in words)
        if count > shared:
            best, shared = words, count
    return bool(best) and not (best[0].concept in mine.forms or best[0].base in mine.forms)


def _is_limited(theirs: Statement, following: Sequence[Word]) -> bool:
    """Whether the evidence says of a word, in the same sentence, that it is the only one."""
    limits = [match.start() for match in _LIMITS.finditer(theirs.text)]
    places = [word.start for word in theirs.words if any(word.concept == one.concept for one in following)]
    return bool(limits) and any(
        ". " not in theirs.text[min(limit, place) : max(limit, place)] for limit in limits for place in places or limits
    )


def _may_be_names(one: Word, other: Word) -> bool:
    """Whether two words at the start of sentences may be names: no plural, no gerund."""
    return all(word.typed[0].isupper() and not word.typed.endswith(("s", "ing", "ed")) for word in (one, other))


def _strange_words(mine: Statement, theirs: Statement, lacking: Sequence[Word]) -> tuple[tuple[Word, Word | None], ...]:
    """Return the lacking words of a claim that is else the evidence's wording, each with what stands in its place.

    In a sentence said in other words, a word that the evidence lacks may be another word for the same. In one that is
    the evidence's but for a word or two, it is what was altered.
    """
    telling = [word for word in lacking if not _says_little(word)]
    if not telling or len(telling) > max(1, len(mine.content) // 3):
        return ()
    own, other = _entries(mine)[:_LONGEST], _entries(theirs)[:_LONGEST_EVIDENCE]
    lost = {word.start for word in lacking}
    kept = sum(start not in lost for _, start, _ in own)
    matcher = SequenceMatcher(None, [form for form, _, _ in own], [form for form, _, _ in other], autojunk=False)
    blocks = matcher.get_opcodes()
    same = sum(end - start for tag, start, end, _, _ in blocks if tag == "equal")
    if kept < 2 or same < NEARLY_ALL * kept:
        return ()
    found: list[tuple[Word, Word | None]] = []
    for tag, start, end, begun, until in blocks:
        if tag not in {"replace", "insert", "delete"}:
            continue
        # A claim may begin after the evidence does, and end before it.
        their_start = max(begun, until - (end - start)) if start == 0 else begun
        their_end = min(until, their_start + end - start) if end == len(own) else until
        if max(end - start, their_end - their_start) > _LONGEST_CHANGE:
            continue
        mine_here = [word for _, place, word in own[start:end] if word is not None and place in lost]
        mine_here = [word for word in mine_here if not _says_little(word)]
        here = [word for _, _, word in other[their_start:their_end] if word is not None and not word.is_quiet]
        for number, word in enumerate(mine_here):
            rival = here[number] if tag == "replace" and number < len(here) else None
            if rival is not None or same >= ALL * kept:
                found.append((word, rival))
    return tuple(found)


def _says_little(word: Word) -> bool:
    """Whether a word is one that a paraphrase may put in the place of another."""
    return word.base in _LIGHT


def _entries(statement: Statement) -> list[tuple[str, int, Word | None]]:
    """Return words and figures in order: what each is compared by, where it begins, and the word."""
    entries: list[tuple[str, int, Word | None]] = [
        (word.concept, word.start, word) for word in statement.words if word.typed.lower() not in _ARTICLES
    ]
    entries += [(figure.value, figure.span.start, None) for figure in statement.figures]
    return sorted(entries, key=lambda entry: entry[1])

"""Finding a quote in a text, as people and language models copy it.

Typography, markup and white space may differ; words, numbers and their order may not. All steps take linear time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Literal, NamedTuple
from unicodedata import combining, normalize

from retrieval_core.types.documents import Span

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MOST_OMITTED = 2_000
"""Characters that an ellipsis of a quote may stand for."""
FEWEST_WORDS = 2
"""Words of each part of a quote with an ellipsis: single words can be put together to any sentence."""
MOST_PARTS = 12
"""Parts of a quote with ellipses: each is looked for in the whole text."""
_LONGEST_ADDRESS = 500
_TRIED = 8
_AROUND = 100
_FOLDED = {
    **dict.fromkeys("‘’‚‛ʼ′", "'"), **dict.fromkeys("“”„‟«»″", '"'), **dict.fromkeys("‐‑‒–—―−", "-"),  # noqa: RUF001
    **dict.fromkeys("\u00ad\u200b\u2060\ufeff`", ""),
    "ﬀ": "ff", "ﬁ": "fi", "ﬂ": "fl", "ﬃ": "ffi", "ﬄ": "ffl", "ﬅ": "st", "ﬆ": "st", "…": "...",
}  # fmt: skip
_RUN = re.compile(r"[A-Za-z0-9]+|\s+|\*+|_+|~~|#+|.", re.DOTALL)
_BULLETS = frozenset("-*+•‣◦▪\u2013")
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_IN_WORD = rf"[^\W{_UNSPACED}]"
_TOKEN = re.compile(
    rf"(?:(?<![\w)\]])-(?=\d))?{_IN_WORD}+(?:(?:(?<=\d)[.,:](?=\d)|'(?=[^\W\d_])){_IN_WORD}+)*|[{_UNSPACED}]|\.{{3,}}|-+|\S"
)
"""A word, a number with its sign and its separators, a character of a script without spaces, or a sign."""
_BROKEN = re.compile(r"[^\W\d_][-\u2010\u00ad][^\S\n]*\n[^\S\n]*[^\W\d_]")
_OWN_LINE = re.compile(r"^[# ]*\[\d+\] Doc: [^\n]*$", re.MULTILINE)
_OWN_HEADING = re.compile(r"\s*\d+\. [^\n]*(?:\((?:dense|lexical) [^\n]*\)|   score \d\.\d\d(?: · [^\n]*)?)\s*\n")
"""The line above a result of ``retrieval search``, of this version and of earlier ones."""
_OWN_LETTER = re.compile(r"\[([^\W\d_])\](?=\w)")
_NEGATIONS = frozenset({
    "not", "no", "never", "none", "nor", "neither", "without", "cannot", "nicht", "kein", "keine", "keinen", "keinem",
    "keiner", "keines", "nie", "niemals", "ohne", "ne", "pas", "jamais", "sans", "aucun", "aucune", "nunca", "sin",
    "ningún", "ninguna", "non", "mai", "senza", "nessun", "nessuna", "não", "sem", "niet", "geen", "zonder", "inte",
    "ingen", "aldrig", "utan", "ikke", "aldri", "uden", "uten", "nobody", "nothing", "nowhere", "hardly", "scarcely",
    "barely", "rarely", "seldom", "unless", "except", "nichts", "niemand", "nirgends", "weder", "kaum", "keinesfalls",
    "keineswegs", "rien", "personne", "guère", "nada", "nadie", "ninguno", "tampoco", "niente",
    "nulla", "nessuno", "mica", "ninguém", "nenhum", "nenhuma", "niets", "nooit", "не", "ни",
    "нет", "никогда", "без", "nigdy", "bez", "nikt",
})  # fmt: skip
_BRACKETS = {"[": "]", "(": ")"}
_ENDS = frozenset(".!?")
_MARKS = frozenset("'\"")
_CLOSING = frozenset('")][')
_SIGNS_OF_ADDRESSES = frozenset("/.#:")


@dataclass(frozen=True, slots=True)
class QuoteMatch:
    """The place of a quote in a text.

    Attributes:
        verdict: How alike both are.
        spans: Its place; several if the quote leaves something out.
    """

    verdict: Literal["exact", "equivalent"]
    spans: tuple[Span, ...]

    def words_of(self, text: str) -> str:
        """Return the words as they are in the text, with `` […] `` for what the quote leaves out."""
        return " […] ".join(text[span.start : span.end] for span in self.spans)


class _Token(NamedTuple):
    text: str
    start: int
    end: int

    @property
    def is_word(self) -> bool:
        return self.text[-1].isalnum()


def find_quote(quote: str, text: str) -> QuoteMatch | None:
    """Return the place of a quote in a text; ``None`` if its words are not there in this order.

    These differences do not count: white space and line breaks, curly and straight quotation marks, kinds of dashes,
    Markdown's emphasis, code, headings and addresses of links, ligatures and soft hyphens, the case of the first
    letter, a full stop or comma at the end, and the headings and numbers that this library puts before its results. An
    ellipsis (``…``, ``...``, in brackets or not) stands for at most :data:`MOST_OMITTED` characters, and never for a
    negation within a sentence that the quote has a part of. There are at most :data:`MOST_PARTS` parts.

    Args:
        quote: The words to look for.
        text: A chunk or a document.

    Example:
        >>> match = find_quote("Run “ufw allow”", "To open a port, run `ufw allow`.")
    """
    own = _tokens(quote.strip())
    if not own:
        return None
    if (place := _near_exact(quote.strip(), text)) is not None:
        return QuoteMatch("exact", (place,))
    there = _tokens(text)
    if (place := _exact(quote.strip(), own, text, there)) is not None:
        return QuoteMatch("exact", (place,))
    readings = [there]
    if _BROKEN.search(text) is not None:
        readings.append(_tokens(text, joins_lines=True))
    for parts in _forms(quote):
        for tokens in readings:
            if (spans := _places(parts, tokens)) is not None:
                return QuoteMatch("equivalent", spans)
    return None


def _near_exact(quote: str, text: str) -> Span | None:
    """Return one of the first places of a quote, if it does not begin or end within a word, without reading all."""
    start = -1
    for _ in range(_TRIED):
        if (start := text.find(quote, start + 1)) < 0:
            return None
        begin, end = max(0, start - _AROUND), start + len(quote)
        tokens = _tokens(text[begin : end + _AROUND])
        if not any(token.start < edge - begin < token.end for edge in (start, end) for token in tokens):
            return Span(start, end)
    return None


def _exact(quote: str, own: Sequence[_Token], text: str, there: Sequence[_Token]) -> Span | None:
    for first in _matches([token.text for token in own], there, same_case=True):
        start = there[first].start - own[0].start
        if start >= 0 and text.startswith(quote, start):
            return Span(start, start + len(quote))
    return None


def _forms(quote: str) -> Iterator[list[list[str]]]:
    """Yield the parts of a quote, in the ways in which it may have been copied, the nearest first."""
    heading = _OWN_HEADING.match(quote)
    if heading is not None:
        quote = quote[heading.end() :]
    plain = _OWN_LETTER.sub(r"\1", _OWN_LINE.sub("", quote))
    whole = [token.text for token in _tokens(plain)]
    seen: list[list[list[str]]] = []
    for tokens in (whole, _without_numbers(_tokens(plain))):
        for form in ([tokens], _parts(tokens), _parts(_unquoted(tokens))):
            bare = [_unquoted(part) for part in form]
            for each in (form, bare, [*bare[:-1], _without_end(bare[-1])] if bare else []):
                parts = [part for part in each if part]
                if parts and parts not in seen:
                    seen.append(parts)
                    yield parts


def _without_numbers(tokens: Sequence[_Token]) -> list[str]:
    """Leave out numbers in brackets, such as ``[1]``, that do not follow a word directly."""
    kept: list[str] = []
    at = 0
    while at < len(tokens):
        end = at + 2
        follows_word = at > 0 and tokens[at - 1].is_word and tokens[at - 1].end == tokens[at].start
        if tokens[at].text == "[" and not follows_word and end < len(tokens):
            while end < len(tokens) and tokens[end].text in {",", "-"} | set("0123456789"):
                end += 1
            if end < len(tokens) and tokens[at + 1].text.isdecimal() and tokens[end].text == "]":
                at = end + 1
                continue
        kept.append(tokens[at].text)
        at += 1
    return kept


def _parts(tokens: Sequence[str]) -> list[list[str]]:
    """Return the parts of a quote between its ellipses; none if a part is too short to tell anything."""
    parts: list[list[str]] = [[]]
    closing = ""
    for at, word in enumerate(tokens):
        if word == "...":
            around = (parts[-1][-1:], list(tokens[at + 1 : at + 2]))
            closing = _BRACKETS.get(around[0][0], "") if around[0] else ""
            if closing and around[1] == [closing]:
                parts[-1].pop()
            else:
                closing = ""
            parts.append([])
        elif word == closing:
            closing = ""
        else:
            parts[-1].append(word)
    parts = [part for part in parts if part]
    is_told = all(sum(word[-1].isalnum() for word in part) >= FEWEST_WORDS for part in parts)
    return parts if len(parts) == 1 or (is_told and len(parts) <= MOST_PARTS) else []


def _unquoted(part: list[str]) -> list[str]:
    return part[1:-1] if len(part) > 2 and part[0] == part[-1] == '"' else part


def _without_end(part: list[str]) -> list[str]:
    return part[:-1] if len(part) > 1 and part[-1] in {".", ","} else part


def _places(parts: Sequence[Sequence[str]], there: Sequence[_Token]) -> tuple[Span, ...] | None:
    """Return where parts stand, each after the one before and near it."""
    if len(parts) == 1:
        first = next(_matches(parts[0], there), None)
        return None if first is None else (_span(there, first, len(parts[0])),)
    negations = list(accumulate((_is_negation(token.text) for token in there), initial=0))
    first_ends, last_ends = _sentence_ends(there)
    # Of each place of a part that can be reached, the place of the part before it.
    chains: list[dict[int, int]] = [dict.fromkeys(_matches(parts[0], there), -1)]
    for before, part in pairwise(parts):
        reached = iter(sorted(chains[-1]))
        following = next(reached, None)
        last: int | None = None
        chain: dict[int, int] = {}
        for place in _matches(part, there):
            while following is not None and following + len(before) <= place:
                last, following = following, next(reached, None)
            if last is None:
                continue
            gap = last + len(before)
            is_near = there[place].start - there[gap - 1].end <= MOST_OMITTED
            begun = min(first_ends[gap - 1], place)
            begin = max(last_ends[place], gap)
            if is_near and negations[begun] <= negations[gap] and negations[begin] == negations[place]:
                chain[place] = last
        chains.append(chain)
    if not chains[-1]:
        return None
    place = min(chains[-1])
    spans: list[Span] = []
    for part, chain in zip(reversed(parts), reversed(chains), strict=True):
        spans.append(_span(there, place, len(part)))
        place = chain[place]
    return tuple(reversed(spans))


def _sentence_ends(tokens: Sequence[_Token]) -> tuple[list[int], list[int]]:
    """Return, for each token, where its sentence ends, and where the sentence of the token begins."""
    is_end = [
        token.text in _ENDS
        and (following.start > token.end or following.text in _CLOSING)
        and not following.text[0].islower()
        for token, following in pairwise(tokens)
    ]
    begins = list(accumulate((at + 1 if end else 0 for at, end in enumerate(is_end)), max, initial=0))
    ends = [len(tokens)] * len(tokens)
    for at in range(len(is_end) - 1, -1, -1):
        ends[at] = at if is_end[at] else ends[at + 1]
    return ends, begins


def _span(tokens: Sequence[_Token], first: int, count: int) -> Span:
    return Span(tokens[first].start, tokens[first + count - 1].end)


def _is_negation(word: str) -> bool:
    return word.lower().removesuffix("'s") in _NEGATIONS or word.lower().endswith("n't")


def _matches(part: Sequence[str], there: Sequence[_Token], *, same_case: bool = False) -> Iterator[int]:
    """Yield where a sequence of tokens begins among others, by the algorithm of Knuth, Morris and Pratt.

    Args:
        same_case: Whether its first letter must be in the same case, too.
    """
    head, rest = part[0], part[1:]
    heads = {head} if same_case else {head, head[0].swapcase() + head[1:]}
    borders = [0] * len(rest)
    for at in range(1, len(rest)):
        length = borders[at - 1]
        while length and rest[at] != rest[length]:
            length = borders[length - 1]
        borders[at] = length + (rest[at] == rest[length])
    length = 0
    for at, token in enumerate(there):
        if not rest:
            if token.text in heads:
                yield at
            continue
        while length and (length == len(rest) or token.text != rest[length]):
            length = borders[length - 1]
        length += token.text == rest[length]
        first = at - len(rest)
        if length == len(rest) and first >= 0 and there[first].text in heads:
            yield first


def _tokens(text: str, *, joins_lines: bool = False) -> list[_Token]:
    """Return the words and signs of a text, without its markup, in one typography.

    Args:
        joins_lines: Whether a hyphen at the end of a line is taken for the division of a word.
    """
    folded, places = _folded(text, joins_lines=joins_lines)
    tokens: list[_Token] = []
    is_open = False
    for found in _TOKEN.finditer(folded):
        word, (start, end) = found[0], found.span()
        if word in _MARKS:
            # 6' are feet, 6" inches; a mark that closes a quotation says nothing.
            is_unit = not is_open and start > 0 and folded[start - 1].isdigit()
            is_open = not is_open and not is_unit
            word = word if is_unit else '"'
        elif not word.strip("-"):
            # --force is an option, and -force is another one.
            is_option = folded[start - 1 : start].strip() == "" and folded[end : end + 1].isalnum()
            word = word if is_option else "-"
        elif len(word) > 2 and not word.strip("."):
            word = "..."
        tokens.append(_Token(word, places[start], places[end - 1] + 1))
    return tokens


def _folded(text: str, *, joins_lines: bool) -> tuple[str, list[int]]:
    """Return a text in one typography, and the place of each of its characters in the original."""
    skipped = _addresses(text)
    folded: list[str] = []
    places: list[int] = []
    at, begins_line = 0, True
    while at < len(text):
        if at in skipped:
            at = skipped[at]
            continue
        found = _RUN.match(text, at)
        assert found is not None  # noqa: S101 - the last alternative takes any character
        run, end = found[0], found.end()
        if joins_lines and folded and run in "-\u2010\u00ad" and _BROKEN.match(text, at - 1) is not None:
            at = _after_space(text, end)
            continue
        if run.isspace():
            folded.append(" ")
            places.append(at)
            begins_line = begins_line or "\n" in run
        elif not (_is_markup(run, text, at, end) or (begins_line and _begins_block(run, text, end))):
            begins_line = False
            _add(run, at, folded, places)
        at = end
    return "".join(folded), places


def _after_space(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at


def _add(run: str, at: int, folded: list[str], places: list[int]) -> None:
    if run.isascii() and run != "`":
        folded.extend(run)
        places.extend(range(at, at + len(run)))
    elif combining(run) and folded and len(composed := normalize("NFC", folded[-1] + run)) == 1:
        folded[-1] = composed
    else:
        added = _FOLDED.get(run, run)
        folded.extend(added)
        places.extend([at] * len(added))


def _is_markup(run: str, text: str, start: int, end: int) -> bool:
    """Whether a run of signs is Markdown's, and says nothing."""
    if run == "\\":
        return end < len(text) and text[end].isascii() and not text[end].isalnum() and not text[end].isspace()
    if run[0] not in "*_~" or run == "~":
        return False
    left, right = text[start - 1 : start] or " ", text[end : end + 1] or " "
    return not (left.isalnum() and right.isalnum()) and not (left.isspace() and right.isspace())


def _begins_block(run: str, text: str, end: int) -> bool:
    """Whether a run at the beginning of a line marks a heading, an item of a list, or a quotation."""
    marks = run in _BULLETS or run == ">" or not run.strip("#")
    return marks and text[end : end + 1].isspace()


def _is_address(text: str) -> bool:
    """Whether a text is an address as Markdown has it in brackets, with a title or without."""
    address, _, title = text.strip().partition(" ")
    title = title.strip()
    is_title = not title or (len(title) > 1 and title[0] == title[-1] == '"')
    return is_title and not _SIGNS_OF_ADDRESSES.isdisjoint(address) and len(address.split()) == 1


def _addresses(text: str) -> dict[int, int]:
    """Return what is left out of Markdown's links, each stretch by its beginning: all but their texts."""
    skipped: dict[int, int] = {}
    opened: list[int] = []
    for found in re.finditer(r"[\[\]]", text):
        at = found.start()
        if found[0] == "[":
            opened.append(at)
            continue
        begin = opened.pop() if opened else None
        if begin is None or text[at + 1 : at + 2] != "(":
            continue
        end = text.find(")", at + 2, at + _LONGEST_ADDRESS)
        if end > 0 and "(" in text[at + 2 : end]:
            end = text.find(")", end + 1, at + _LONGEST_ADDRESS)
        if end > 0 and _is_address(text[at + 2 : end]):
            skipped[begin] = begin + 1
            skipped[at] = end + 1
            if text[begin - 1 : begin] == "!":
                skipped[begin - 1] = begin
    return skipped

"""Making answers short enough. Sizes are in characters of JSON, lengths of texts in code points."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cache, partial
from operator import mul
from typing import TYPE_CHECKING, Any, cast

from pydantic import BaseModel, ConfigDict

from retrieval_core_mcp.fitting import json_length, largest, shorten

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

READABLE = 1_200
"""Characters that each text keeps while items can be left out: shorter excerpts of more chunks answer less."""
SHORTEST = 5
_ESTIMATES = 3
"""How often the sizes are estimated, each time from how much room the last answer has left."""
_MOST_ESTIMATES = 12
"""As long as no answer fits."""


@dataclass(frozen=True, slots=True)
class Shrink:
    """Marks a field that :func:`fit` may make shorter: a text is cut, a list loses items. The last field begins.

    Attributes:
        least: Items of a list that stay.
        cut: The texts of a list are cut, instead of losing items.
        by: Sorts the items of a list by their importance, most important first. Default: their order.
    """

    least: int = 0
    cut: bool = False
    by: Callable[[Any], Any] | None = None


class Shrinkable(BaseModel):
    """Structured content with fields marked by :class:`Shrink`. Fields without a value are left out."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @abstractmethod
    def render(self) -> str:
        """Return the answer as text."""

    @property
    def readable(self) -> int:
        """The characters that each text keeps while items can be left out."""
        return READABLE

    def cut(self, text: str, size: int) -> str:
        """Return a text of the answer with at most ``size`` characters, at least :data:`SHORTEST`."""
        return shorten(text, size)


@dataclass(frozen=True, slots=True)
class Written:
    """An answer as text, and as structured content unless only the text is needed."""

    structured: dict[str, Any] | None
    text: str

    @classmethod
    def of(cls, answer: Shrinkable, *, text_only: bool = False) -> Written:
        """Return the forms of an answer."""
        return cls(None if text_only else answer.model_dump(mode="json", exclude_none=True), answer.render())

    @property
    def size(self) -> int:
        """The characters of JSON of the longer form."""
        return max(json_length(self.structured), json_length([{"type": "text", "text": self.text}]))


def fit(answer: Shrinkable, limit: int, *, text_only: bool = False) -> Written:
    """Return an answer whose forms are shorter than a limit of at least 1,000 characters of JSON.

    If not all items fit with texts of their ``readable`` size, lists lose items. What is left goes to the first texts:
    each is whole, as many as fit, and then as much as is left to the next.
    """
    write = partial(Written.of, text_only=text_only)
    answer = _without_hopeless(answer, limit)
    written = write(answer)
    best: Written | None = None
    cut, whole, room, made = cache(answer.cut), written.size, limit, 0
    while (left := limit - written.size) <= 0 or (made and left > limit // 50):
        if made >= (_MOST_ESTIMATES if best is None else _ESTIMATES):
            break
        if made:  # texts that escape unevenly need longer and longer steps
            room += (left - 1) * (made if best is None else 1)
        written = write(_shrunk(answer, whole, room, cut, write))
        made += 1
        if written.size < limit and (best is None or written.size > best.size):
            best = written
    return best or written


def _without_hopeless(answer: Shrinkable, limit: int) -> Shrinkable:
    """Leave out items before which the readable texts alone are too long: to write them would take the longest."""
    for name in _lists(answer):
        length, items = 0, getattr(answer, name)
        for count, at in enumerate(_ranked(answer, name)):
            if length > limit:
                answer = _first(answer, name, max(count, _marks(type(answer))[name].least))
                break
            texts = _texts(items[at]) if isinstance(items[at], BaseModel) else ()
            length += sum(min(len(text), answer.readable) for _, text in texts)
    return answer


def _shrunk(
    answer: Shrinkable,
    whole: int,
    room: int,
    cut: Callable[[str, int], str],
    write: Callable[[Shrinkable], Written],
) -> Shrinkable:
    """Return an answer of a size so that it takes about so much room."""
    answer, whole = _with_fewer_items(answer, whole, room, write)
    texts = [*_texts(answer)]
    order = sorted(range(len(texts)), key=lambda at: texts[at][0])
    sizes = _share([texts[at][1] for at in order], room - whole, answer.readable)
    of_text = dict(zip(order, sizes, strict=True))
    return _resized(answer, iter([of_text[at] for at in range(len(texts))]), cut)


def _share(texts: Sequence[str], room: int, readable: int) -> list[int]:
    """Return the sizes of texts, most important first, with which an answer grows by so much room, mostly below 0."""
    lengths = [len(text) for text in texts]
    rates = [json_length(text) / max(1, len(text)) for text in texts]
    room += int(sum(map(mul, lengths, rates)))

    def fits(sizes: Sequence[int]) -> bool:
        return sum(map(mul, sizes, rates)) < room

    def briefly(size: int) -> list[int]:
        return [min(size, length) for length in lengths]

    longest = min(readable, max(lengths, default=0))
    sizes = briefly(largest(lambda size: fits(briefly(size)), SHORTEST, max(SHORTEST, longest)) or SHORTEST)
    for at, length in enumerate(lengths):

        def longer_fits(size: int, at: int = at) -> bool:
            return fits([*sizes[:at], size, *sizes[at + 1 :]])

        sizes[at] = length if longer_fits(length) else largest(longer_fits, sizes[at], length) or sizes[at]
        if sizes[at] < length:
            break
    return sizes


def _with_fewer_items(
    answer: Shrinkable, whole: int, room: int, write: Callable[[Shrinkable], Written]
) -> tuple[Shrinkable, int]:
    """Return an answer with as many items in its lists as fit if all texts are as short as they get, and its size."""

    def fits(shorter: Shrinkable, size: int) -> bool:
        spare = [text[shorter.readable :] for _, text in _texts(shorter)]
        return size - sum(json_length(text) - 2 for text in spare) < room

    for name in reversed(_lists(answer)):
        if fits(answer, whole):
            break
        least, items = _marks(type(answer))[name].least, getattr(answer, name)

        def fits_with(count: int, longer: Shrinkable = answer, name: str = name) -> bool:
            shorter = _first(longer, name, count)
            return fits(shorter, write(shorter).size)

        count = largest(fits_with, least, len(items))
        answer = _first(answer, name, least if count is None else count)
        whole = write(answer).size
    return answer, whole


def _lists(answer: Shrinkable) -> list[str]:
    """Return the names of the lists that may lose items."""
    marks = _marks(type(answer)).items()
    return [name for name, mark in marks if isinstance(getattr(answer, name), list) and not mark.cut]


def _ranked(answer: Shrinkable, name: str) -> Sequence[int]:
    """Return the positions of a list's items, most important first."""
    items, by = getattr(answer, name), _marks(type(answer))[name].by
    return range(len(items)) if by is None else sorted(range(len(items)), key=lambda at: by(items[at]))


def _first(answer: Shrinkable, name: str, count: int) -> Shrinkable:
    """Return an answer with the most important items of a list, in their order."""
    items = getattr(answer, name)
    return answer.model_copy(update={name: [items[at] for at in sorted(_ranked(answer, name)[:count])]})


def _texts(model: BaseModel, rank: Any = 0) -> Iterator[tuple[Any, str]]:
    """Yield the texts that may be cut, each with what sorts it."""
    for name, mark in _marks(type(model)).items():
        value: Any = getattr(model, name)
        for item in [value] if isinstance(value, str) else value or ():
            if isinstance(item, BaseModel):
                yield from _texts(item, mark.by(item) if mark.by else rank)
            elif mark.cut or isinstance(value, str):
                yield rank, item


def _resized(model: Any, sizes: Iterator[int], cut: Callable[[str, int], str]) -> Any:
    """Return a copy whose texts have sizes in the order of :func:`_texts`."""
    changed: dict[str, Any] = {}
    for name, mark in _marks(cast("type[BaseModel]", type(model))).items():
        value: Any = getattr(model, name)
        if value is None:
            continue
        if isinstance(value, str):
            changed[name] = _cut(value, next(sizes), cut)
        elif mark.cut:
            changed[name] = [_cut(text, next(sizes), cut) for text in value]
        else:
            changed[name] = [_resized(item, sizes, cut) if isinstance(item, BaseModel) else item for item in value]
    is_same = all(value is getattr(model, name) for name, value in changed.items())  # copying takes longer
    return model if is_same else model.model_copy(update=changed)


def _cut(text: str, size: int, cut: Callable[[str, int], str]) -> str:
    return text if len(text) <= size else cut(text, size)


@cache
def _marks(model: type[BaseModel]) -> Mapping[str, Shrink]:
    """Return the marks of a model's fields."""
    return {
        name: mark for name, field in model.model_fields.items() for mark in field.metadata if isinstance(mark, Shrink)
    }

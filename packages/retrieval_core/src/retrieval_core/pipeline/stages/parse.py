"""Reading a context back: its passages and where they come from."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import zip_longest

from retrieval_core.types import PageSpan
from retrieval_core.types.escapes import unescape_name, unescape_text

_RANGE = r"-?\d+(?:-(?:-?\d+))?"
_HEADING = re.compile(
    r"(?:\A|(?<=\n))\[([0-9]{1,9})\] Doc: ([^\n]*?)"
    rf"(?: \| Page: ({_RANGE}))?(?: \| Section: ([^\n]*?))?(?: \| Rows: ({_RANGE}))?(?: \| Items: ({_RANGE}))?(?:\n|\Z)"
)
_ENDS = re.compile(r"(-?\d+)(?:-(-?\d+))?")


@dataclass(frozen=True, slots=True)
class ShownPassage:
    """A passage as it can be read from a context.

    Attributes:
        number: The one in its heading.
    """

    number: int
    document_id: str
    text: str
    page_span: PageSpan | None = None
    section_path: tuple[str, ...] = ()
    row_range: tuple[int, int] | None = None
    item_range: tuple[int, int] | None = None


def parse_context(text: str, delimiter: str = "\n\n") -> tuple[ShownPassage, ...]:
    r"""Return the chunks of a context that was written with the default template.

    Text before the first heading is skipped. If a hit of ``formatted_context`` contains the delimiter, it is returned
    with its escape mark.

    Args:
        text: ``ContextPack.context_pack``, or ``RetrievalResult.formatted_context`` without scores.
        delimiter: Separator of two chunks, which must end with a line break. For ``formatted_context`` it is
            ``"\n\n---\n\n"``.
    """
    headings = list(_HEADING.finditer(text))
    ends = [heading.start() for heading in headings[1:]]
    passages: list[ShownPassage] = []
    for heading, end in zip_longest(headings, ends):
        shown = text[heading.end() :] if end is None else text[heading.end() : end].removesuffix(delimiter)
        number, name, pages, section, rows, items = heading.groups()
        passages.append(
            ShownPassage(
                int(number),
                unescape_name(name),
                unescape_text(shown),
                None if pages is None else PageSpan(*_ends(pages)),
                () if section is None else tuple(map(unescape_name, section.split(" > "))),
                None if rows is None else _ends(rows),
                None if items is None else _ends(items),
            )
        )
    return tuple(passages)


def _ends(written: str) -> tuple[int, int]:
    ends = _ENDS.fullmatch(written)
    assert ends is not None  # noqa: S101 - the heading was matched by it
    return int(ends[1]), int(ends[2] or ends[1])

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
    r"""Split the text of a context into its passages, whatever they contain; it must have the default template.

    Text before the first heading is skipped. If a hit of ``formatted_context`` contains the delimiter, its text keeps
    the mark that escapes it.

    Args:
        text: ``ContextPack.context_pack``, or ``RetrievalResult.formatted_context`` without scores.
        delimiter: Separator of the passages; must end with a line break. Default: a blank line, as in ``context_pack``;
            ``formatted_context`` has ``"\n\n---\n\n"``.

    Returns:
        The passages with number, document, pages, section and text.

    Example::

        with open_index("notes.db") as index:
            for passage in parse_context(index.context("how far away is the moon").context_pack):
                print(passage.number, passage.text)
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

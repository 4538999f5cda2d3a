from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from retrieval_core.config import load_config
from retrieval_core.config.model import parse_template
from retrieval_core.errors import ConfigurationError
from retrieval_core.pipeline.stages.format import format_context, without_delimiter
from retrieval_core.types import Chunk, Hit, PageSpan, Scores, format_citation

UUID = "0b6f0f4e-58cf-4d5e-9f4a-2f1f6f1f9a77"


def hit(text: str = "text", score: float = 0.5, document_id: str = "guide.md", **fields: object) -> Hit:
    chunk = Chunk(f"{document_id}#0", document_id, text, **fields)  # pyright: ignore[reportArgumentType]
    return Hit(chunk, score, Scores(final=score))


def formatted(template: str, **fields: object) -> str:
    return format_context([hit(**fields)], template=template).text  # pyright: ignore[reportArgumentType]


def test_the_default_template() -> None:
    """A passage is preceded by its rank and its citation."""
    assert format_context([hit("First."), hit("Second.")]).text == (
        "[1] Doc: guide.md\nFirst.\n\n---\n\n[2] Doc: guide.md\nSecond."
    )


@given(text=st.text(), name=st.text())
def test_values_are_never_read_as_templates(text: str, name: str) -> None:
    """Text and metadata appear as they are, whatever braces or field names they hold."""
    text, name = f".{text}", f".{name}"
    shown = format_context([hit(text, metadata={"name": name})], template="<{text}|{name}>", delimiter="").text
    assert shown == f"<{text}|{name}>"


@pytest.mark.parametrize("value", ["{score}", "{0.__class__}", "{{text}}", "{", "}", "%s", "{text!r}", "\\1"])
def test_values_that_look_like_fields(value: str) -> None:
    """Nothing inside a value is filled in."""
    assert formatted("{text} {title}", text=value, title=value) == f"{value} {value}"


@pytest.mark.parametrize(
    "field", ["0.__class__", "text.__class__", "0", "metadata.__init__.__globals__", "no.such.thing"]
)
def test_fields_reach_data_only(field: str) -> None:
    """A path leads through mappings and never to an attribute of an object."""
    assert formatted(f"{{{field}}}", metadata={"metadata": {"a": 1}}) == "N/A"


@pytest.mark.parametrize(
    "template", ["{", "}", "{}", "{text", "{text!r}", "{text:>10}", "{a[0]}", "{a{b}}", "{text:{rank}}"]
)
def test_templates_that_ask_for_more_are_refused(template: str) -> None:
    """Unbalanced braces, conversions, formats, indexes and nesting are errors."""
    with pytest.raises(ConfigurationError):
        parse_template(template)
    with pytest.raises(ConfigurationError):
        format_context([], template=template)


def test_doubled_braces_are_single_ones() -> None:
    """A brace is written by doubling it."""
    assert formatted("{{{rank}}}") == "{1}"
    assert parse_template("a{{b}}{c}d")[-1] == ("d", None)


def test_every_kind_of_value() -> None:
    """Numbers, booleans, lists and nested fields are written plainly; what is absent is ``N/A``."""
    metadata = {"price": 9.5, "tags": ["a", "b"], "in_stock": True, "specs": {"ram": 8}, "nothing": None, "empty": []}
    template = "{price} {tags} {in_stock} {specs.ram} {specs.rom} {nothing} {empty} {page} {section} {missing}"
    assert formatted(template, metadata=metadata, page_span=PageSpan(2, 4)) == (
        "9.5 a, b True 8 N/A N/A N/A 2, 3, 4 N/A N/A"
    )
    assert formatted("{section}", section_path=("One", "Two")) == "One, Two"
    assert formatted("{score} {rank} {title}", score=0.25, title=None) == "0.2500 1 N/A"


def test_fields_of_filters_and_of_formats_have_one_meaning() -> None:
    """Metadata win over a chunk's own fields as they do in filters, save for the four that describe the hit."""
    metadata = {"source": "mine", "text": "not this", "rank": 99}
    assert formatted("{source} {text} {rank}", metadata=metadata, source="theirs") == "mine text 1"
    moment = datetime(2024, 5, 1, tzinfo=UTC)
    assert formatted("{timestamp} {chunk_index} {id}", timestamp=moment) == "2024-05-01T00:00:00+00:00 0 guide.md#0"


hostile = st.text("-=|a \n\\_{}", max_size=8)
delimiters = st.sampled_from(["\n\n---\n\n", "==", "\n\n", "aa", "-=-", "a b a"]) | st.text(
    "-=|a \n_", min_size=2, max_size=6
).filter(str.strip)


@pytest.mark.property("data-retrieval-pipeline", 8)
@given(
    records=st.lists(st.tuples(hostile, st.none() | hostile), max_size=5),
    delimiter=delimiters,
    literals=st.tuples(hostile, hostile, hostile),
    include_scores=st.booleans(),
)
@example([("x\n\n---\n\ny", None), ("z\n\n---\n", "\n---\n\n"), ("", "")], "\n\n---\n\n", ("", "", ""), False)
def test_one_delimiter_less_than_hits(
    records: list[tuple[str, str | None]], delimiter: str, literals: tuple[str, str, str], include_scores: bool
) -> None:
    """Whatever texts, metadata and template hold, N passages have N-1 delimiters and can be split at them.

    Of a passage nothing is changed but where the delimiter would occur, there alone, and nothing is lost of it.

    Fails with ``+ delimiter[:-1]`` taken out of ``without_delimiter``, with a further delimiter behind the last
    passage, and with ``inside`` set to 0.
    """
    hits = [hit(text, 0.5, metadata={} if name is None else {"name": name}) for text, name in records]
    first, second, third = (literal.replace("{", "{{").replace("}", "}}") for literal in literals)
    template = f"{first}{{text}}{second}{{name}}{third}"
    context = format_context(hits, template=template, delimiter=delimiter, include_scores=include_scores)
    assert context.text.count(delimiter) == max(0, len(records) - 1)
    passages = context.text.split(delimiter) if records else []
    assert (context.document_count, context.truncated) == (len(passages), False) == (len(records), False)
    for passage, (text, name) in zip(passages, records, strict=True):
        shown = [value if value and value.strip() else "N/A" for value in (text, name)]
        plain = "Score: 0.5000\n" * include_scores + "".join(
            (literals[0], shown[0], literals[1], shown[1], literals[2])
        )
        if delimiter not in plain + delimiter[:-1]:
            assert passage == plain
        else:
            rest = iter(passage)
            assert all(character in rest for character in plain)  # in this order
            assert len(passage) <= len(plain) + (plain + delimiter[:-1]).count(delimiter[0])


@pytest.mark.parametrize(
    ("text", "delimiter", "shown"),
    [
        ("one\n\n---\n\ntwo", "\n\n---\n\n", "one\n\n\\---\n\ntwo"),
        ("one\n\n---\n", "\n\n---\n\n", "one\n\n\\---\n"),
        ("a\n\n\nb", "\n\n", "a\n \n \nb"),
        ("====", "==", "=\\=\\=\\=\\"),
        ("untouched --- text\n---\n", "\n\n---\n\n", "untouched --- text\n---\n"),
        ("no delimiter", "", "no delimiter"),
    ],
)
def test_how_a_delimiter_in_a_text_is_marked(text: str, delimiter: str, shown: str) -> None:
    """As little as can be is put into it, and always the same."""
    assert without_delimiter(text, delimiter) == shown


@pytest.mark.parametrize("delimiter", ["\n", " ", "|", "\\", "\n\n\n", " \t", "\\n\\n", "a\\_"])
def test_delimiters_that_any_text_holds(delimiter: str) -> None:
    """They could be marked only where every line or word is changed, and are refused where they are given."""
    with pytest.raises(ConfigurationError, match="can't be distinguished from the text of chunks"):
        format_context([hit("How far is it?\nFar.")], delimiter=delimiter)
    with pytest.raises(ConfigurationError, match=r"format\.delimiter: .*be distinguished"):
        load_config(overrides={"format.delimiter": delimiter})


@pytest.mark.parametrize("nothing", ["", " ", "\n\t ", None, [], [""]])
def test_what_is_blank_is_absent(nothing: object) -> None:
    """An empty field, and a passage without words, are shown as such and not as nothing."""
    assert formatted("{name}", metadata={"name": nothing}) == "N/A"
    if isinstance(nothing, str):
        assert formatted("{text}|{review_text}", text=nothing) == "N/A|N/A"


def test_the_specifications_name_for_the_text() -> None:
    """``review_text`` is the passage's text, unless the metadata has such a field of its own."""
    assert formatted("Review: {review_text}", text="Fine.") == "Review: Fine."
    assert formatted("Review: {review_text}", text="Fine.", metadata={"review_text": "Own."}) == "Review: Own."
    assert formatted("Review: {review_text}", text="Fine.", metadata={"review_text": ""}) == "Review: Fine."
    assert formatted("{reviews}", text="Fine.") == "N/A"


@given(texts=st.lists(st.text(alphabet="ab", max_size=5)), max_length=st.integers(1, 30))
def test_the_length_limit(texts: list[str], max_length: int) -> None:
    """The text is cut to exactly the limit, the flag is set exactly then, and hits that were begun are counted."""
    hits = [hit(text) for text in texts]
    whole = format_context(hits, template="<{text}>", delimiter=", ").text
    context = format_context(hits, template="<{text}>", delimiter=", ", max_length=max_length)
    assert context.text == whole[:max_length]
    assert context.truncated == (len(whole) > max_length)
    assert context.document_count == context.text.count("<")


def test_scores_on_request() -> None:
    """Each passage may be preceded by the score that it is ordered by."""
    context = format_context([hit(score=0.75), hit(score=-1)], template="{text}", delimiter=" | ", include_scores=True)
    assert context.text == "Score: 0.7500\ntext | Score: -1.0000\ntext"


def test_no_hits() -> None:
    """No hits make an empty text."""
    context = format_context([])
    assert (context.text, context.document_count, context.truncated) == ("", 0, False)


@pytest.mark.parametrize(
    ("fields", "citation"),
    [
        ({}, "Doc: guide.md"),
        ({"page_span": PageSpan(3, 3)}, "Doc: guide.md | Page: 3"),
        (
            {"page_span": PageSpan(3, 4), "section_path": ("Setup", "Linux")},
            "Doc: guide.md | Page: 3-4 | Section: Setup > Linux",
        ),
        ({"row_range": (7, 7)}, "Doc: guide.md | Rows: 7"),
        ({"source": "web/guide.md"}, "Doc: guide.md"),
        ({"document_id": UUID, "source": "web/guide.md"}, "Doc: web/guide.md"),
        ({"document_id": UUID}, f"Doc: {UUID}"),
        ({"document_id": f"{UUID}.md", "source": "web/guide.md"}, f"Doc: {UUID}.md"),
        ({"row_range": (7, 9), "item_range": (1, 2)}, "Doc: guide.md | Rows: 7-9 | Items: 1-2"),
    ],
)
def test_citations(fields: dict[str, object], citation: str) -> None:
    """A citation names the document, by its id if that is not drawn at random, and every place in it that is known."""
    assert format_citation(hit(**fields).chunk) == citation  # pyright: ignore[reportArgumentType]

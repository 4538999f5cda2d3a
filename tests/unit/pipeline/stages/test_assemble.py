from __future__ import annotations

import pytest

from retrieval_core.config import ContextConfig
from retrieval_core.pipeline.stages.assemble import arrange, cite, render, without_repetition
from retrieval_core.pipeline.stages.budget import Assembled, assemble
from retrieval_core.pipeline.stages.expand import Surroundings, as_hits, expand, surroundings_in
from retrieval_core.types import Chunk, Hit, PageSpan, Quote, Scores, Span

TEXT = "One.\n\nTwo.\n\nThree.\n\nFour."
SPANS = [Span(0, 4), Span(6, 10), Span(12, 18), Span(20, 25)]
SECTION = Chunk("s", "d", TEXT, span=Span(0, 25))
PLAIN = ContextConfig(template="{text}", delimiter="|")


def part(index: int, *, span: Span | None = None, **fields: object) -> Chunk:
    place = span or SPANS[index]
    text = TEXT[place.start : place.end]
    return Chunk(f"d#{index}", "d", text, index, span=place, parent_id="s", **fields)  # pyright: ignore[reportArgumentType]


CHUNKS = [part(index) for index in range(4)]


def assembled(
    found: list[Chunk], around: Surroundings | None = None, settings: ContextConfig = PLAIN, **changes: object
) -> Assembled:
    hits = as_hits(found, [1 / rank for rank in range(1, len(found) + 1)])
    around = around or Surroundings({chunk.id: chunk for chunk in CHUNKS}, {"s": SECTION}, {"d": TEXT})
    return assemble(hits, around, settings.model_copy(update=changes), lambda text: len(text.split()))


def test_what_hits_say_is_cut_out_of_their_parent() -> None:
    """The rest of the parent is quoted in pieces with a mark between them, and its siblings' text is in it."""
    result = assembled([CHUNKS[2]])
    assert result.text == "Three.|One.\n\nTwo.\n[…]\nFour."
    parent = result.passages[1]
    assert (parent.role, parent.id, parent.primary_id, parent.hits) == ("parent", "s", "d#2", ())
    assert parent.citation.quotes == (
        Quote("One.\n\nTwo.\n\n", Span(0, 12)),
        Quote("\n\nFour.", Span(18, 25)),
    )
    assert [(entry.id, entry.outcome, entry.reason) for entry in result.ledger] == [
        ("d#2", "kept", ""),
        ("s", "kept", ""),
        ("d#1", "dropped", "its text is in s already"),
        ("d#3", "dropped", "its text is in s already"),
    ]


def test_a_parent_of_which_everything_was_found() -> None:
    """It is dropped, and the reason names who has its text."""
    result = assembled(CHUNKS, neighbor_same_page=0)
    assert result.text == "One.|Two.|Three.|Four."
    assert result.ledger[-1].reason == "its text is in d#0, d#1, d#2, d#3 already"


def test_overlapping_chunks() -> None:
    """A better chunk keeps its text whole; a worse one has what is left on either side of it."""
    inner, outer = part(1, span=Span(6, 18)), part(0, span=Span(0, 25))
    result = assembled([inner, outer], Surroundings({}, {}, {}))
    assert result.text == "Two.\n\nThree.|One.\n[…]\nFour."
    assert assembled([outer, inner], Surroundings({}, {}, {})).text == TEXT


def test_places_that_contradict_each_other() -> None:
    """Spans that count from each page's beginning do not cost a text: the worse one loses its place, not its words."""
    first, second = Chunk("a", "d", "Sun.", span=Span(0, 4)), Chunk("b", "d", "Moon.", span=Span(0, 5))
    result = assembled([first, second], Surroundings({}, {}, {}))
    assert result.text == "Sun.|Moon."
    assert [passage.citation.quotes[0].span for passage in result.passages] == [Span(0, 4), None]


def test_texts_without_a_place_are_compared_by_id() -> None:
    """The same words under two ids are two texts; one id is one text, in whatever roles it comes."""
    first, second = Chunk("a", "d", "Same."), Chunk("b", "d", "Same.", 1)
    assert assembled([first, second, first], surroundings_in([first, second])).text == "Same.|Same."
    items = expand(as_hits([first], [1.0]), surroundings_in([second]), PLAIN)
    unique, removed = without_repetition((*items, *reversed(items)))
    assert (unique, removed) == (items, ())


@pytest.mark.parametrize("text", ["", " \n\t"])
def test_a_chunk_without_text(text: str) -> None:
    """It is dropped for that reason, also when it is a hit."""
    result = assembled([Chunk("a", "d", text), CHUNKS[0]], Surroundings({}, {}, {}))
    assert result.text == "One."
    assert [(entry.id, entry.reason) for entry in result.ledger] == [("d#0", ""), ("a", "it has no text")]


def test_a_window_is_one_passage_in_the_order_of_the_document() -> None:
    """The chunks around a hit and the hit are one quote where the white space between them is known."""
    result = assembled([CHUNKS[2]], window=1, include_parents=False)
    (passage,) = result.passages
    assert passage.text == "Two.\n\nThree.\n\nFour."
    assert (passage.id, passage.role, passage.citation.chunk_ids) == ("d#2", "primary", ("d#1", "d#2", "d#3"))
    assert passage.citation.quotes == (Quote("Two.\n\nThree.\n\nFour.", Span(6, 25)),)
    assert [entry.role for entry in result.ledger] == ["sibling", "primary", "sibling"]


def test_windows_that_touch_become_one_at_the_place_of_the_best() -> None:
    """Hits whose windows meet share a passage; another document's hit between them comes after it."""
    other = Chunk("e#0", "e", "Else.")
    result = assembled([CHUNKS[3], other, CHUNKS[0]], window=1, include_parents=False)
    assert result.text == f"{TEXT}|Else."
    assert [hit.id for hit in result.passages[0].hits] == ["d#3", "d#0"]
    assert result.passages[0].score == 1.0


def test_windows_with_a_gap_stay_apart() -> None:
    """Chunks that do not follow each other are two passages."""
    around = Surroundings({chunk.id: chunk for chunk in (CHUNKS[0], CHUNKS[3])}, {}, {"d": TEXT})
    assert assembled([CHUNKS[3], CHUNKS[1]], around, window=1).text == "Four.|One.\n\nTwo."


def test_a_window_whose_gaps_are_not_known() -> None:
    """Without the document's text there are several quotes, with an empty line between them."""
    around = Surroundings({chunk.id: chunk for chunk in CHUNKS}, {}, {})
    (passage,) = assembled([CHUNKS[1]], around, window=1).passages
    assert passage.text == "One.\n\nTwo.\n\nThree."
    assert passage.citation.quotes == (Quote("One.", SPANS[0]), Quote("Two.", SPANS[1]), Quote("Three.", SPANS[2]))


def test_a_window_of_chunks_that_overlap() -> None:
    """What two chunks share is there once, and nothing is marked as left out."""
    chunks = [part(0, span=Span(0, 12)), part(1, span=Span(6, 18)), part(2, span=Span(14, 25))]
    (passage,) = assembled([chunks[1]], Surroundings({c.id: c for c in chunks}, {}, {}), window=1).passages
    assert passage.text == TEXT
    assert passage.citation.quotes == (Quote(TEXT, Span(0, 25)),)


def test_texts_are_never_read_as_templates() -> None:
    """Braces and NUL stand in a context as they stand in a chunk."""
    text = "{number} {0.__class__} {{text}} \0"
    chunk = Chunk("{id}", "{d}", text, title="{text}", section_path=("{source}",))
    settings = ContextConfig(template="{{{number}}} {title} {source} {role} {citation}: {text}", delimiter="{}")
    result = assembled([chunk], Surroundings({}, {}, {}), settings)
    assert result.text == f"{{1}} {{text}}  primary Doc: {{d}} | Section: {{source}}: {text}"


def test_indentation_stays_and_empty_lines_go() -> None:
    """A passage begins with its first line as it is indented, and ends with its last word."""
    result = assembled([Chunk("a", "d", " \n\n  def f():\n    pass\n \n")], Surroundings({}, {}, {}))
    assert result.text == "  def f():\n    pass"
    assert result.passages[0].citation.quotes[0].text == " \n\n  def f():\n    pass\n \n"


@pytest.mark.parametrize(
    ("ranges", "joined"),
    [
        ([(1, 5), (6, 9)], (1, 9)),
        ([(1, 5), (5, 9)], (1, 9)),
        ([(1, 5), (1, 3)], (1, 5)),
        ([(4, 5), (1, 3)], None),
        ([(1, 5), (7, 9)], None),
        ([(1, 5), None], None),
        ([None, None], None),
    ],
)
def test_ranges_of_rows_and_items(ranges: list[tuple[int, int] | None], joined: tuple[int, int] | None) -> None:
    """Those that continue each other are one range; those of two tables or lists are not told."""
    chunks = [part(index, row_range=given, item_range=given) for index, given in enumerate(ranges)]
    items = expand(as_hits(chunks, [2.0, 1.0]), Surroundings({}, {}, {}), PLAIN)
    (piece,) = arrange(items, merged=True)
    citation, _ = cite(piece, 1, {})
    assert (citation.row_range, citation.item_range) == (joined, joined)


def test_the_citation_of_a_merged_passage() -> None:
    """Pages from the first to the last, the headings that all stand under, title and source of the best."""
    chunks = [
        part(0, page_span=PageSpan(1, 2), section_path=("A", "B"), title="Other"),
        part(1, section_path=("A", "C", "D"), title="Guide", source="d.md"),
        part(2, page_span=PageSpan(3, 3), section_path=("A", "C")),
    ]
    items = expand(as_hits([chunks[1], chunks[0], chunks[2]], [3.0, 2.0, 1.0]), Surroundings({}, {}, {}), PLAIN)
    (piece,) = arrange(items, merged=True)
    citation, text = cite(piece, 7, {"d": TEXT})
    assert (citation.number, citation.document_id, text) == (7, "d", "One.\n\nTwo.\n\nThree.")
    assert (citation.page_span, citation.section_path) == (PageSpan(1, 3), ("A",))
    assert (citation.title, citation.source) == ("Guide", "d.md")
    assert render(
        [piece], {"d": TEXT}, ContextConfig().model_copy(update={"template": "{number} {citation} {title}"})
    ) == ("1 Doc: d | Page: 1-3 | Section: A Guide",)


def test_a_pruned_hit_shows_its_excerpts_and_its_parent_does_not_show_the_rest() -> None:
    """Each excerpt is a quote with a place of its own; neighbours are shown as they are."""
    text = "One. Two. Three. Four. Five."
    whole = Chunk("d#0", "d", text[:22], 0, span=Span(0, 22), parent_id="s")
    beside = Chunk("d#1", "d", text[23:], 1, span=Span(23, 28), parent_id="s")
    around = Surroundings({"d#0": whole, "d#1": beside}, {"s": Chunk("s", "d", text, span=Span(0, 28))}, {"d": text})
    found = Hit(whole, 0.5, Scores(final=0.5), excerpts=(Span(5, 9), Span(17, 22)))
    result = assemble([found], around, PLAIN, lambda words: len(words.split()))
    assert result.text == "Two.\n[…]\nFour.| Five."
    primary, parent = result.passages
    assert primary.citation.quotes == (Quote("Two.", Span(5, 9)), Quote("Four.", Span(17, 22)))
    assert (primary.shortened, parent.shortened) == (True, False)
    assert parent.citation.quotes == (Quote(" Five.", Span(22, 28)),)
    assert [(entry.id, entry.outcome, entry.reason) for entry in result.ledger] == [
        ("d#0", "shortened", "only sentences relevant to the query are shown"),
        ("s", "kept", ""),
        ("d#1", "dropped", "its text is in s already"),
    ]
    merged = assemble([found], around, PLAIN.model_copy(update={"window": 1, "include_parents": False}), len)
    assert merged.text == "Two.\n[…]\nFour. Five."


def test_another_hit_may_show_what_was_left_out_of_one() -> None:
    """Overlapping chunks are pruned each by itself, and none takes a sentence from the other."""
    first = Hit(Chunk("d#0", "d", "One. Two.", 0, span=Span(0, 9)), 1, Scores(), excerpts=(Span(0, 4),))
    second = Hit(Chunk("d#1", "d", "Two. Three.", 1, span=Span(5, 16)), 0.5, Scores())
    result = assemble([first, second], Surroundings({}, {}, {"d": "One. Two. Three."}), PLAIN, len)
    assert result.text == "One.|Two. Three."


def test_a_pruned_hit_without_a_place() -> None:
    """Its excerpts are quoted without one, and it can be cut too."""
    hit = Hit(Chunk("d#0", "d", "One. Two. Three. Four."), 1, Scores(), excerpts=(Span(0, 9), Span(17, 22)))
    result = assemble(
        [hit], Surroundings({}, {}, {}), PLAIN.model_copy(update={"max_tokens": 2}), lambda text: len(text.split())
    )
    assert result.text == "One. […]"
    assert result.passages[0].citation.quotes == (Quote("One."),)
    reason = "only sentences relevant to the query are shown, and cut after whole sentences to fit the budget"
    assert [entry.reason for entry in result.ledger] == [reason]

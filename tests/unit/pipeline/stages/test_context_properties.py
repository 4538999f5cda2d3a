"""What every context keeps to, whatever was found, whatever the budget and however tokens are counted.

Where a test names a change of the library that makes it fail, that was tried.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

from hypothesis import assume, given
from hypothesis import strategies as st

from retrieval_core.config import ContextConfig
from retrieval_core.pipeline.stages.assemble import without_repetition
from retrieval_core.pipeline.stages.budget import Assembled, assemble, fit
from retrieval_core.pipeline.stages.expand import ROLES, Item, Surroundings, expand, with_quotes
from retrieval_core.text.sentences import sentence_ends
from retrieval_core.types import Chunk, Hit, PageSpan, Quote, Scores, Span, content_hash

if TYPE_CHECKING:
    from collections.abc import Callable

World: TypeAlias = tuple[tuple[Hit, ...], Surroundings]
Counter: TypeAlias = "Callable[[str], int]"

PARTS = [
    "Alpha beta. Gamma delta! One\n\ntwo three.",
    "x",
    "One. Two. Three. Four. Five. Six.",
    "a long sentence without any end that goes on and on for a while",
    "Ünï cödé. […] {number} {text}",
    "- first\n- second\n- third",
    "   code\n\n   indented",
    " ",
]
GAPS = ["\n\n", "\n", "", " "]


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Draw documents with chunks, pages and parents, some of which overlap or lack a place, and hits among them."""
    chunks: list[Chunk] = []
    parents: dict[str, Chunk] = {}
    texts: dict[str, str] = {}
    for number in range(draw(st.integers(1, 2))):
        name = f"d{number}"
        with_pages, overlap, placeless = draw(st.booleans()), draw(st.integers(0, 3)), draw(st.integers(-3, 6))
        text = ""
        spans: list[Span] = []
        for part, gap in draw(
            st.lists(st.tuples(st.sampled_from(PARTS), st.sampled_from(GAPS)), min_size=1, max_size=7)
        ):
            spans.append(Span(max(0, len(text) - overlap) if len(spans) == 2 else len(text), len(text) + len(part)))
            text += part + gap
        texts[name] = text
        borders = draw(st.sets(st.integers(0, len(spans)), max_size=3))
        for index, span in enumerate(spans):
            section = sum(border <= index for border in borders)
            chunks.append(
                Chunk(
                    f"{name}#{index}",
                    name,
                    text[span.start : span.end],
                    chunk_index=index,
                    span=span if index != placeless else None,
                    page_span=PageSpan(1 + index // 2, 1 + index // 2) if with_pages else None,
                    parent_id=f"{name}/s{section}" if section != placeless else None,
                )
            )
        for section in range(len(borders) + 1):
            own = [spans[chunk.chunk_index] for chunk in chunks if chunk.parent_id == f"{name}/s{section}"]
            if own:
                whole = Span(min(span.start for span in own), max(span.end for span in own))
                parents[f"{name}/s{section}"] = Chunk(
                    f"{name}/s{section}", name, text[whole.start : whole.end], span=whole
                )
    found = draw(st.lists(st.sampled_from(chunks), min_size=1, max_size=6))
    hits = tuple(Hit(chunk, 1 / rank, Scores(final=1 / rank)) for rank, chunk in enumerate(found, start=1))
    return hits, Surroundings({chunk.id: chunk for chunk in chunks}, parents, texts if draw(st.booleans()) else {})


SETTINGS = st.builds(
    ContextConfig,
    max_tokens=st.integers(1, 60) | st.integers(1, 400),
    min_primaries=st.integers(0, 4),
    neighbor_same_page=st.integers(0, 3),
    neighbor_cross_page=st.integers(0, 3),
    include_parents=st.booleans(),
    window=st.sampled_from([0, 0, 1, 2, 5]),
    delimiter=st.sampled_from(["\n\n", "", "\n---\n"]),
)
COUNTERS: dict[str, Counter] = {
    "words": lambda text: len(text.split()),
    "characters": len,
    "bytes": lambda text: len(text.encode("utf-8", "surrogatepass")),
    "always one more": lambda text: len(text.split()) + 1,
    "constant": lambda _: 7,
    "huge": lambda _: 10**9,
    "falling": lambda text: max(0, 200 - len(text)),
    "erratic": lambda text: int(content_hash(text)[:2], 16),
}
ANY_COUNTER = st.sampled_from(list(COUNTERS)).map(COUNTERS.__getitem__)
MONOTONE = st.sampled_from(list(COUNTERS)[:4]).map(COUNTERS.__getitem__)
"""By these, more text is never fewer tokens."""


def assembled(world: World, settings: ContextConfig, count: Counter) -> Assembled:
    hits, around = world
    return assemble(hits, around, settings, count)


def considered(world: World, settings: ContextConfig) -> tuple[Item, ...]:
    hits, around = world
    return expand(hits, around, settings)


def primaries_of(world: World, settings: ContextConfig) -> tuple[Item, ...]:
    """Return the hits, best first, without what a better one says."""
    return without_repetition(item for item in considered(world, settings) if item.role == "primary")[0]


def whole_of(item: Item) -> str:
    return "".join(quote.text for quote in item.quotes)


def first_sentence(item: Item) -> str:
    text = item.quotes[0].text
    return text[: sentence_ends(text)[0]]


@given(worlds(), SETTINGS, ANY_COUNTER)
def test_the_budget_is_never_exceeded(world: World, settings: ContextConfig, count: Counter) -> None:
    """Whatever is counted, the whole text is within the budget by that count."""
    result = assembled(world, settings, count)
    assert result.tokens <= settings.max_tokens
    assert result.tokens == (count(result.text) if result.text else 0)
    assert bool(result.text) == bool(result.passages)


@given(worlds(), SETTINGS, MONOTONE)
def test_the_best_hits_stay_where_a_sentence_of_each_fits(
    world: World, settings: ContextConfig, count: Counter
) -> None:
    """The best primaries are there, if only in part, whenever their first sentences are within the budget.

    Fails with no primary protected, and with the first sentence of each not tried.
    """
    best = primaries_of(world, settings)[: settings.min_primaries]
    # What a heading line and the marks take at most.
    text = settings.delimiter.join(f"[9] Doc: dd | Page: 1-9\n{first_sentence(item)}\n[…]\n" for item in best)
    scarce = settings.model_copy(update={"max_tokens": max(1, count(text))})
    for enough in (scarce, scarce.model_copy(update={"max_tokens": scarce.max_tokens + settings.max_tokens})):
        assert {item.id for item in best} <= set(shown(assembled(world, enough, count)))


@given(worlds(), SETTINGS, MONOTONE)
def test_a_higher_minimum_never_keeps_less(world: World, settings: ContextConfig, count: Counter) -> None:
    """Whatever is kept where few hits have to be kept is kept where more have to be.

    Fails with the better hits gone when another is brought back.
    """
    fewer: set[str] = set()
    for number in range(6):
        least = settings.model_copy(update={"min_primaries": number})
        kept = set(shown(assembled(world, least, count)))
        assert fewer <= kept
        fewer = kept


@given(worlds(), SETTINGS, MONOTONE)
def test_an_empty_context_means_that_nothing_fits(world: World, settings: ContextConfig, count: Counter) -> None:
    """Where one sentence of any hit fits alone, something is shown.

    Fails with a hit that cannot fit taking those below it along.
    """
    _, around = world
    if not assembled(world, settings, count).items:
        roomy = settings.model_copy(update={"max_tokens": 10**6})
        for item in primaries_of(world, settings):
            begun = with_quotes(item, (Quote(first_sentence(item)),), shortened=first_sentence(item) != whole_of(item))
            assert fit([begun], around.texts, roomy, count).tokens > settings.max_tokens


@given(worlds(), SETTINGS, ANY_COUNTER)
def test_dropping_follows_the_order(world: World, settings: ContextConfig, count: Counter) -> None:
    """What is dropped for the budget is of the last role, then of the lowest hit, then farthest from it.

    Fails with the order of ranks reversed, with the roles in another order, and with primaries cut while others stay.
    """
    result = assembled(world, settings, count)
    order = {item.id: (ROLES.index(item.role), item.rank, item.distance) for item in considered(world, settings)}
    dropped = [order[entry.id] for entry in result.ledger if "to stay within" in entry.reason]
    assert dropped == sorted(dropped, reverse=True)
    best = {item.id for item in best_of(world, settings, result)}
    kept = [order[item.id] for item in result.items if item.id not in best]
    assert not dropped or not kept or max(kept) <= min(dropped)
    assert not best & {entry.id for entry in result.ledger if "to stay within" in entry.reason}


def best_of(world: World, settings: ContextConfig, result: Assembled) -> tuple[Item, ...]:
    """Return the hits that have to be kept: the best of those of which a sentence fits at all."""
    hopeless = {entry.id for entry in result.ledger if entry.reason == never(settings)}
    given = (item for item in considered(world, settings) if item.role == "primary" and item.id not in hopeless)
    return without_repetition(given)[0][: settings.min_primaries]


def never(settings: ContextConfig) -> str:
    return f"not even one sentence of it fits into {settings.max_tokens} tokens"


@given(worlds(), SETTINGS, MONOTONE, st.integers(1, 99))
def test_the_best_hits_are_cut_last_and_from_the_lowest_up(
    world: World, settings: ContextConfig, count: Counter, share: int
) -> None:
    """Hits are shortened only where they alone are too long; below one that is, each has a single sentence left.

    One that is longer than the whole budget is cut in any case, and is no part of this. Fails with the span of a
    shortened quote not cut.
    """
    _, around = world
    settings = settings.model_copy(update={"min_primaries": max(2, settings.min_primaries), "window": 0})
    best = primaries_of(world, settings)[: settings.min_primaries]
    roomy = settings.model_copy(update={"max_tokens": 10**6})
    # Less than the best hits alone take, and about what a sentence of each does.
    begun = [with_quotes(item, (Quote(first_sentence(item)),)) for item in best]
    least, most = (fit(items, around.texts, roomy, count).tokens for items in (begun, best))
    room = max(1, least + (most - least) * share // 100 - 1)
    settings = settings.model_copy(update={"max_tokens": room})
    result = assembled(world, settings, count)
    quotes = [quote for item in result.items for quote in item.quotes if quote.span is not None]
    assert all(quote.span and quote.span.end - quote.span.start == len(quote.text) for quote in quotes)
    whole = {item.id: item for item in best_of(world, settings, result)}
    long = {name for name, item in whole.items() if fit([item], around.texts, roomy, count).tokens > room}
    places = [place for place, item in enumerate(result.items) if item.shortened and item.id not in long]
    for item in result.items[places[0] + 1 :] if places else ():
        assert item.id in whole
        if item.id not in long and item.shortened:
            assert item.quotes[0].text.rstrip() == first_sentence(whole[item.id])
            assert len(item.quotes) == 1
        elif item.id not in long:  # all of it is no longer than one sentence with the mark of a cut
            sentence = with_quotes(item, (Quote(first_sentence(item)),), shortened=True)
            all_of_it, cut = (fit([one], around.texts, roomy, count).tokens for one in (item, sentence))
            assert all_of_it <= cut
    fits = fit(list(whole.values()), around.texts, roomy, count).tokens <= settings.max_tokens
    assert not (fits and any(item.shortened for item in result.items if item.id in whole))


@given(worlds(), SETTINGS, MONOTONE)
def test_no_more_is_dropped_than_has_to_be(world: World, settings: ContextConfig, count: Counter) -> None:
    """What was dropped last for the budget is too much for it.

    Each item is counted by itself. So this holds as long as no tokens go by joining them: hits that become one passage
    in a window share a heading, and words that no delimiter separates become one. Fails with one more dropped than has
    to be.
    """
    _, around = world
    settings = settings.model_copy(update={"window": 0, "delimiter": settings.delimiter or "\n"})
    roomy = settings.model_copy(update={"max_tokens": 10**6})
    everything = assembled(world, roomy, count)
    # One token less than everything takes: something has to go.
    settings = settings.model_copy(update={"max_tokens": max(1, everything.tokens - 1)})
    result = assembled(world, settings, count)
    dropped = [entry.id for entry in result.ledger if "to stay within" in entry.reason]
    assume(dropped and not any(item.shortened for item in result.items))
    with_last = [item for item in considered(world, settings) if item.id in {dropped[-1], *shown(result)}]
    assert fit(with_last, around.texts, roomy, count).tokens > settings.max_tokens


def shown(result: Assembled) -> list[str]:
    return [item.id for item in result.items]


@given(worlds(), SETTINGS, ANY_COUNTER)
def test_everything_that_was_considered_is_in_the_ledger_once(
    world: World, settings: ContextConfig, count: Counter
) -> None:
    """The ledger names each item once, and says of what is shown where it is shown.

    Fails with a hit that comes twice considered twice.
    """
    result = assembled(world, settings, count)
    wanted = [item.id for item in considered(world, settings)]
    assert len(set(wanted)) == len(wanted)
    assert sorted(entry.id for entry in result.ledger) == sorted(wanted)
    cited = [name for passage in result.passages for name in passage.citation.chunk_ids]
    assert sorted(cited) == sorted(entry.id for entry in result.ledger if entry.outcome != "dropped")
    assert len(set(cited)) == len(cited)
    for entry in result.ledger:
        if entry.outcome == "dropped":
            assert entry.reason
            assert entry.passage is None
        else:
            assert entry.passage is not None
            assert entry.id in result.passages[entry.passage - 1].citation.chunk_ids


@given(worlds(), SETTINGS, ANY_COUNTER)
def test_every_quote_stands_in_its_document_and_no_text_is_shown_twice(
    world: World, settings: ContextConfig, count: Counter
) -> None:
    """Quotes with a span are the document's own text, and no two of them overlap.

    Fails with nothing cut out of parents.
    """
    _, around = world
    result = assembled(world, settings, count)
    seen: dict[str, list[Span]] = {}
    for passage in result.passages:
        for quote in passage.citation.quotes:
            assert quote.content_hash == content_hash(quote.text)
            assert quote.text.strip() in passage.text
            if quote.span is not None:
                seen.setdefault(passage.citation.document_id, []).append(quote.span)
                assert quote.span.end - quote.span.start == len(quote.text)
                if around.texts:
                    text = around.texts[passage.citation.document_id]
                    assert text[quote.span.start : quote.span.end] == quote.text
    for spans in seen.values():
        spans.sort(key=lambda span: span.start)
        assert all(first.end <= second.start for first, second in pairwise(spans))


@given(worlds(), SETTINGS, ANY_COUNTER)
def test_assembling_what_was_assembled_changes_nothing(world: World, settings: ContextConfig, count: Counter) -> None:
    """The items of a context fit as they are, and so do the same items given twice.

    Fails with items of one id kept twice.
    """
    _, around = world
    once = assembled(world, settings, count)
    for items in (once.items, once.items * 2):
        again = fit(items, around.texts, settings, count)
        assert again.text == once.text
        assert again.items == once.items
        assert again.passages == once.passages
        assert len(again.ledger) == len(once.items)
    assert assembled(world, settings, count) == once


@given(worlds(), SETTINGS)
def test_primaries_come_best_first_each_followed_by_its_parent_and_neighbours_last(
    world: World, settings: ContextConfig
) -> None:
    """The order of a context without windows, where everything fits.

    Fails with parents behind all primaries.
    """
    result = assembled(world, settings.model_copy(update={"max_tokens": 10**6, "window": 0}), len)
    places = [
        (max(1, ROLES.index(item.role)), item.rank, item.role == "parent", item.chunk.chunk_index)
        for item in result.items
    ]
    assert places == sorted(places)
    assert [passage.id for passage in result.passages] == shown(result)


@given(worlds(), SETTINGS)
def test_windows_are_in_the_order_of_the_document(world: World, settings: ContextConfig) -> None:
    """A passage made of neighbours has them in the order in which they follow each other, without a gap.

    Fails with neighbours merged across a gap, and with windows that touch left apart.
    """
    result = assembled(world, settings.model_copy(update={"max_tokens": 10**6, "window": settings.window or 2}), len)
    runs: list[tuple[str, int, int]] = []
    for passage in result.passages:
        if passage.role != "parent":
            indexes = [int(name.split("#")[1]) for name in passage.citation.chunk_ids]
            assert indexes == list(range(indexes[0], indexes[0] + len(indexes)))
            runs.append((passage.citation.document_id, indexes[0], indexes[-1]))
    runs.sort()
    assert all(one[0] != other[0] or one[2] + 1 < other[1] for one, other in pairwise(runs))

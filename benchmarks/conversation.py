"""What becomes of follow-up questions: ``python benchmarks/conversation.py FOLDER [--index FILE]``.

The folder holds a BEIR collection whose queries are the turns of conversations: each has in its ``metadata`` the
``last_turn`` as it was asked, all ``user_turns`` up to it, and its ``conversation``; its text is a rewrite by people
that stands alone. Each turn is asked in several ways, of a hybrid index with the default settings: of the index at
FILE, which must hold that collection, or of a temporary one.

Prints nDCG@10 of each way, over all turns, over those that follow others, and over the follow-ups of each half of the
conversations; and p of the difference from the last turn alone over the follow-ups (paired randomisation, two-sided).
Below it says how the heuristic's one number does when it is chosen without the conversations that it is judged on.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from significance import p_value, shown

from retrieval_core import RetrievalPipeline, load_config, open_index
from retrieval_core.adapters.registry import build_embedder, build_store
from retrieval_core.adapters.transformers.heuristic import SHORT, HeuristicCondenser, words_in
from retrieval_core.evaluate import load_collection
from retrieval_core.evaluate.run import measure, rank_documents
from retrieval_core.ports import Message, QueryContext, QueryTransformer, Transformed, Variant

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from retrieval_core.evaluate import Collection

    Figures = NDArray[np.float64]

ANY_LENGTH = 1000
CHOICES = (3, 4, 5, 6, 7, 8, 9, 10, 12, ANY_LENGTH)
"""The longest question that is searched for behind the one before it, in words."""
PASSAGES = 20
"""Asked for to get ten documents: passages of one document count once."""


@dataclass(frozen=True)
class Turn:
    """One query of the collection."""

    id: str
    rewrite: str
    asked: tuple[str, ...]
    conversation: str

    @property
    def last(self) -> str:
        """What was asked, as it was."""
        return self.asked[-1]

    @property
    def history(self) -> tuple[Message, ...]:
        """What was asked before; the answers are not part of the collection."""
        return tuple(Message("user", text) for text in self.asked[:-1])

    @property
    def follows(self) -> bool:
        """Whether there was a turn before it."""
        return len(self.asked) > 1


class Beside(QueryTransformer):
    """Searches for the last turn as it was asked, beside a rewrite that takes its place: what an LLM's would be."""

    id = "beside"

    def __init__(self, turns: Iterable[Turn]) -> None:
        self._rewrites = {(turn.last, turn.history): turn.rewrite for turn in turns}

    async def _transform(self, query: str, context: QueryContext) -> Transformed:
        """Return both."""
        rewrite = self._rewrites.get((query, context.history), query)
        if rewrite == query:
            return Transformed()
        return Transformed(query=rewrite, variants=(Variant("last turn", query, weight=0.5),))


@dataclass(frozen=True)
class Asked:
    """The ways to ask, each with one figure for each turn."""

    turns: tuple[Turn, ...]
    last: Figures
    all_turns: Figures
    rewrite: Figures
    rewrite_and_last: Figures
    with_previous: Figures

    @cached_property
    def follows(self) -> NDArray[np.bool_]:
        """Which turns follow others."""
        return np.array([turn.follows for turn in self.turns])

    @cached_property
    def conversations(self) -> NDArray[np.str_]:
        """Which conversation each turn belongs to."""
        return np.array([turn.conversation for turn in self.turns])

    @cached_property
    def first_half(self) -> NDArray[np.bool_]:
        """Which turns belong to every other conversation, in the order of their ids."""
        return np.isin(self.conversations, np.unique(self.conversations)[::2])

    @cached_property
    def heuristic(self) -> dict[int, Figures]:
        """The heuristic's figures by its number of words."""
        lengths = np.array([words_in(turn.last) for turn in self.turns])
        return {words: np.where(lengths <= words, self.with_previous, self.last) for words in CHOICES}

    def best(self, among: NDArray[np.bool_]) -> int:
        """Return the number of words that is best over some turns."""
        return max(CHOICES, key=lambda words: self.heuristic[words][among].mean())


def load_turns(folder: Path, collection: Collection) -> tuple[Turn, ...]:
    """Read the queries that have judgements."""
    turns: list[Turn] = []
    for line in (folder / "queries.jsonl").read_text(encoding="utf-8").splitlines():
        row: dict[str, Any] = json.loads(line)
        about = row["metadata"]
        if row["_id"] in collection.queries:
            turns.append(Turn(row["_id"], row["text"], tuple(about["user_turns"]), about["conversation"]))
            if about["user_turns"][-1] != about["last_turn"]:
                sys.exit(f"{row['_id']}: the last of user_turns is not last_turn")
    return tuple(turns)


async def ask(collection: Collection, turns: tuple[Turn, ...], index: Path) -> Asked:
    """Ask each turn in each way."""
    config = load_config(overrides={"cache.kind": "none", "search.top_k": PASSAGES})
    embedder = build_embedder(config.embedder)
    store = build_store(config.store, index, embedder)
    heuristic = HeuristicCondenser(words=ANY_LENGTH)
    plain = RetrievalPipeline(store, embedder, config=config, condenser=heuristic)
    beside = RetrievalPipeline(store, embedder, config=config, condenser=Beside(turns))

    async def figure(pipeline: RetrievalPipeline, turn: Turn, query: str, history: tuple[Message, ...] = ()) -> float:
        result = await pipeline.aretrieve(query, history=history)
        if result.degraded:
            sys.exit(f"{turn.id}: {result.degraded}")
        ranking = {turn.id: rank_documents(result.hits)}
        return measure({turn.id: collection.judgements[turn.id]}, ranking).ndcg_at_10

    rows: list[tuple[float, ...]] = []
    async with plain, beside:
        for number, turn in enumerate(turns, 1):
            last = await figure(plain, turn, turn.last)
            rewrite = await figure(plain, turn, turn.rewrite)
            if turn.follows:
                row = (
                    last,
                    await figure(plain, turn, " ".join(turn.asked)),
                    rewrite,
                    await figure(beside, turn, turn.last, turn.history),
                    await figure(plain, turn, turn.last, turn.history),
                )
            else:
                row = (last, last, rewrite, rewrite, last)
            rows.append(row)
            if sys.stderr.isatty():
                print(f"\r{number} of {len(turns)} turns", end="", file=sys.stderr, flush=True)
    return Asked(turns, *np.array(rows).T)


def chance(one: Figures, other: Figures) -> str:
    """Return p of the difference of means."""
    return shown(p_value(one - other))


def print_table(asked: Asked) -> None:
    """Print a row for each way to ask."""
    parts = (slice(None), asked.follows, asked.follows & asked.first_half, asked.follows & ~asked.first_half)
    print("| asked | all | follow-ups | first half | second half | p |")
    print("|---|---|---|---|---|---|")
    print("| turns |", " | ".join(str(asked.last[part].size) for part in parts), "| |")
    ways = {
        "last turn": asked.last,
        "all turns in one": asked.all_turns,
        f"heuristic (up to {SHORT} words)": asked.heuristic[SHORT],
        "heuristic, however long": asked.heuristic[ANY_LENGTH],
        "rewrite by people": asked.rewrite,
        "rewrite by people, and the last turn with half the weight": asked.rewrite_and_last,
    }
    for name, figures in ways.items():
        p = "" if figures is asked.last else chance(figures[asked.follows], asked.last[asked.follows])
        print(f"| {name} |", " | ".join(f"{figures[part].mean():.4f}" for part in parts), f"| {p} |")
    p = chance(asked.rewrite_and_last[asked.follows], asked.rewrite[asked.follows])
    print(f"\nRewrite with the last turn against the rewrite alone: p = {p}")


def print_choice(asked: Asked) -> None:
    """Print how the number of words does where it was not chosen."""
    print(
        "\nBy number of words:",
        ", ".join(f"{words}: {asked.heuristic[words][asked.follows].mean():.4f}" for words in CHOICES),
    )
    for name, half in (("first", asked.first_half), ("second", ~asked.first_half)):
        words, other = asked.best(asked.follows & half), asked.follows & ~half
        ours, last = asked.heuristic[words][other], asked.last[other]
        print(
            f"Chosen on the {name} half: {words}; on the other {ours.mean():.4f}, last turn {last.mean():.4f}, "
            f"p = {chance(ours, last)}"
        )
    held_out = asked.last.copy()
    chosen: list[int] = []
    for conversation in np.unique(asked.conversations):
        own = asked.conversations == conversation
        chosen.append(asked.best(asked.follows & ~own))
        held_out[own] = asked.heuristic[chosen[-1]][own]
    ours, last = held_out[asked.follows], asked.last[asked.follows]
    counts = {words: chosen.count(words) for words in sorted(set(chosen))}
    print(f"Chosen on all conversations but the one judged: {ours.mean():.4f}, p = {chance(ours, last)}; {counts}")


async def main() -> None:
    """Ask and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--index", type=Path)
    arguments = parser.parse_args()
    collection = load_collection(arguments.folder)
    turns = load_turns(arguments.folder, collection)
    if len({turn.conversation for turn in turns if turn.follows}) < 4:
        sys.exit("fewer than four conversations have follow-up questions; halves of them would say nothing")
    with tempfile.TemporaryDirectory() as folder:
        index = arguments.index or Path(folder, "index.db")
        if arguments.index is None:
            async with open_index(index) as empty:
                await empty.aadd_documents(collection.documents())
        asked = await ask(collection, turns, index)
    print_table(asked)
    print_choice(asked)


if __name__ == "__main__":
    asyncio.run(main())

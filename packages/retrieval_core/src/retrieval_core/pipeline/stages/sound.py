"""Whether what a plug-in gave can be used, whatever its port says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, cast

from retrieval_core.errors import MalformedAnswerError, SearchError
from retrieval_core.ports import Fetched
from retrieval_core.run.outcomes import Failed, Ok

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from retrieval_core.errors import RetrievalError
    from retrieval_core.ports import FetchRequest, Store
    from retrieval_core.run.runner import Run

T = TypeVar("T")


def sound(
    outcome: Ok[T] | Failed,
    stage: str,
    who: str,
    kind: type[T] | None = None,
    problem: Callable[[Any], str | None] = lambda _: None,
    *,
    error: Callable[[str], RetrievalError] = MalformedAnswerError,
) -> Ok[T] | Failed:
    """Return a call's outcome, as a failure where its value cannot be used.

    Args:
        outcome: Of the call of a plug-in.
        stage: The call's.
        who: Names the plug-in in the message.
        kind: What it has to give; ``None`` where ``problem`` says that too.
        problem: Says what else is wrong with the value; ``None`` where nothing is.
        error: Of the failure.
    """
    if isinstance(outcome, Failed):
        return outcome
    if kind is not None and not isinstance(outcome.value, kind):
        wrong = f"it gave {outcome.value!r:.80}, which is no {kind.__name__}"
    elif (wrong := problem(outcome.value)) is None:
        return outcome
    return Failed(stage, error(f"the answer of {who} cannot be used: {wrong}"))


def are(items: object, fits: Callable[[Any], bool]) -> bool:
    """Whether this is a tuple or a list of what fits."""
    return isinstance(items, (tuple, list)) and all(map(fits, cast("Sequence[object]", items)))


async def fetch(
    run: Run, store: Store, request: FetchRequest, *, stage: str = "fetch", backend: str = "store"
) -> Ok[Fetched] | Failed:
    """Return what a store has of what was asked for."""
    outcome = await run.on(backend).call(stage, store.fetch, request)
    return sound(outcome, stage, "the store", Fetched, error=SearchError)

"""Options of a query, which override the configuration, and the plan that is made of both."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict, Unpack, cast

from retrieval_core.config.model import named_mode
from retrieval_core.errors import InvalidParameterError
from retrieval_core.pipeline.stages.state import Plan
from retrieval_core.pipeline.stages.transform import MOST_VARIANTS
from retrieval_core.ports import Message, Variant
from retrieval_core.ports.transformers import QUERY_KINDS, is_variant, variant_of
from retrieval_core.types import freeze
from retrieval_core.types.filters import Filter, MetadataFilter
from retrieval_core.types.filters.syntax import parse_filter

if TYPE_CHECKING:
    from retrieval_core.config import RetrievalConfig
    from retrieval_core.ports import Store
    from retrieval_core.types import SearchMode

    Filters: TypeAlias = Filter | MetadataFilter | Mapping[str, Any] | None

ROLES = frozenset({"system", "user", "assistant"})
MOST_TURNS = 100
LONGEST_TURN = 10_000
LONGEST_INTENT = 1000
"""Limits of a conversation; a condenser reads the last turns only."""
MAX_TOP_K = 1000
_PLANNED = frozenset(
    {
        "top_k",
        "mode",
        "score_threshold",
        "transforms",
        "variants",
        "intent",
        "history",
        "session_id",
        "use_cache",
        "syntax",
    }
)
"""Options that have a field in the plan."""


class QueryOptions(TypedDict, total=False):
    """Options of each query. An option that isn't given, or is ``None``, has its default.

    To add one, write its key, its explanation here and, if its values have to be checked, its check in ``_CHECKS``. It
    is then part of every signature, every help text and the key of cached results. A stage reads it from
    ``plan.options``.

    Attributes:
        top_k: Maximum number of results, 1 to 1000. Default: ``search.top_k``, 10.
        mode: ``"hybrid"``, ``"vector"`` (or ``"dense"``) or ``"keyword"`` (or ``"lexical"``). Default:
            ``search.mode``, hybrid.
        score_threshold: Minimum cosine similarity of query and chunk, 0 to 1. Default: ``search.score_threshold``,
            no minimum.
        transforms: Names of the query transformers to apply, such as ``["keywords"]``; ``[]`` applies none.
            Default: ``transform.use``, none.
        variants: Up to 16 more texts to search for, for example from your own query expansion. Each is a
            :class:`~retrieval_core.ports.Variant`, or a mapping such as ``{"kind": "keywords", "text": "sync wave"}``
            of the kind ``text``, ``keywords`` or ``passage`` (a chunk as it might answer the query). Default: none.
        intent: Reason for the query, at most 1,000 characters, for vector search only. Default: none.
        history: Earlier turns of the conversation, oldest first, such as ``{"role": "user", "content": "Hi"}``. The
            last 100 turns are used, 10,000 characters of each. Default: none.
        session_id: ID of the user's session, for a semantic cache per session. Default: none.
        use_cache: Whether to return and store cached results. Default: ``True``.
        syntax: Whether ``"a phrase"``, ``-word``, ``path:`` and ``field:value`` in the query are query syntax. Default:
            ``query.syntax``, ``True``.
        indexes: Names of the indexes to search, if several are open. Default: all.
        max_results_per_query: Maximum number of results from each of several indexes, 1 to 1000. Default: 100.
    """

    top_k: int | None
    mode: SearchMode | None
    score_threshold: float | None
    transforms: Sequence[str] | None
    variants: Sequence[Variant | Mapping[str, str]] | None
    intent: str | None
    history: Sequence[Message | Mapping[str, Any]] | None
    session_id: str | None
    use_cache: bool | None
    syntax: bool | None
    indexes: Sequence[str] | None
    max_results_per_query: int | None


class AnswerOptions(QueryOptions, total=False):
    """Options of each question, besides those of a query.

    Attributes:
        max_tokens: Token budget of the context, at least 1. Default: ``context.max_tokens``, 12,000.
        verify: Whether to check each sentence of a written answer against the context with ``answer.verifier``.
            Default: ``answer.verify``, ``False``.
        prompt_override: Instructions for the language model instead of the configured ones. Default:
            ``answer.prompt``.
    """

    max_tokens: int | None
    verify: bool | None
    prompt_override: str | None


OF_SEVERAL = ("indexes", "max_results_per_query")
_SCALARS = frozenset({bool, int, float, str, type(None)})
OF_EACH = tuple(name for name in QueryOptions.__annotations__ if name not in OF_SEVERAL)
"""The options of a single index."""


def query_options(options: QueryOptions, **more: Unpack[QueryOptions]) -> QueryOptions:
    """Return the options that are given, without those that are ``None``.

    Args:
        options: The caller's.
        more: What the caller gave as another argument, and may not give as an option too.

    Raises:
        TypeError: There is no such option.
    """
    return cast("QueryOptions", _given(options, more, QueryOptions))


def answer_options(options: AnswerOptions, **more: Unpack[AnswerOptions]) -> AnswerOptions:
    """Return the options that are given, without those that are ``None``; see :func:`query_options`.

    Raises:
        TypeError: There is no such option.
    """
    return cast("AnswerOptions", _given(options, more, AnswerOptions))


def _given(options: Mapping[str, Any], more: Mapping[str, Any], kind: type) -> dict[str, Any]:
    if not options and not more:
        return {}
    check_names(options, [name for name in kind.__annotations__ if name not in more] if more else kind.__annotations__)
    return {name: value for name, value in (*options.items(), *more.items()) if value is not None}


def check_names(options: Mapping[str, Any], known: Collection[str]) -> None:
    """Reject unknown names, as Python does for the arguments of a function.

    Raises:
        TypeError: There is no such argument.
    """
    for name in options:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            advice = f"did you mean {near[0]!r}?" if near else f"use one of {', '.join(known)}"
            msg = f"unexpected keyword argument {name!r}; {advice}"
            raise TypeError(msg)


def check_single(options: QueryOptions) -> None:
    """Reject options that only several indexes have.

    Raises:
        TypeError: There is one.
    """
    for name in OF_SEVERAL:
        if name in options:
            msg = f"{name}: only several indexes have this option, and this is a single one; see open_indexes()"
            raise TypeError(msg)


def checked_values(options: QueryOptions) -> QueryOptions:
    """Return options with values that are checked and never change.

    Raises:
        InvalidParameterError: A value has the wrong type, or is out of range.
    """
    return cast(
        "QueryOptions",
        {
            name: _CHECKS[name](value) if name in _CHECKS else value
            for name, value in options.items()
            if value is not None
        },
    )


def _checked_mode(mode: object) -> SearchMode:
    mode = named_mode(mode)
    if mode not in ("hybrid", "dense", "lexical"):
        msg = f"mode must be hybrid, vector (dense) or keyword (lexical), got {mode!r:.80}"
        raise InvalidParameterError(msg)
    return mode


def _checked_threshold(threshold: object) -> float:
    if type(threshold) not in (int, float) or not 0 <= cast("float", threshold) <= 1:
        msg = f"score_threshold must be a number between 0 and 1, got {threshold!r:.80}"
        raise InvalidParameterError(msg)
    return float(cast("float", threshold))


def _checked_session(session_id: object) -> str:
    if not isinstance(session_id, str):
        msg = f"session_id must be text, got {session_id!r:.80}"
        raise InvalidParameterError(msg)
    return session_id


def _check_of_flag(name: str) -> Callable[[object], bool]:
    def check(flag: object) -> bool:
        if not isinstance(flag, bool):
            msg = f"{name} must be true or false, got {flag!r:.80}"
            raise InvalidParameterError(msg)
        return flag

    return check


def _checked_prompt(prompt: object) -> str:
    if not isinstance(prompt, str) or not prompt.strip():
        msg = f"prompt_override must be text that is not blank, got {prompt!r:.80}"
        raise InvalidParameterError(msg)
    return prompt


def _checked_variants(variants: object) -> tuple[Variant, ...]:
    if not isinstance(variants, (list, tuple)):
        msg = f"variants must be a list of Variant, got {type(variants).__name__}"
        raise InvalidParameterError(msg)
    given = cast("Sequence[object]", variants)
    sound = tuple(item for item in map(_as_variant, given) if is_variant(item))
    if len(sound) < len(given) or len(given) > MOST_VARIANTS:
        msg = (
            f"variants must be at most {MOST_VARIANTS} Variant, each with a text, a set of sides and a weight above 0, "
            f"got {given!r:.160}. Or give a kind ({', '.join(QUERY_KINDS)}) and a text."
        )
        raise InvalidParameterError(msg)
    return sound


def _as_variant(given: object) -> object:
    if not isinstance(given, Mapping):
        return given
    fields = cast("Mapping[str, Any]", given)
    kind, text = fields.get("kind"), fields.get("text")
    is_known = isinstance(kind, str) and kind in QUERY_KINDS and len(fields) == len(("kind", "text"))
    return variant_of(kind, text) if is_known else None  # pyright: ignore[reportArgumentType] - checked later


def _checked_intent(intent: object) -> str:
    if not isinstance(intent, str) or len(intent) > LONGEST_INTENT:
        msg = f"intent must be text of at most {LONGEST_INTENT} characters, got {intent!r:.80}"
        raise InvalidParameterError(msg)
    return " ".join(intent.split())


def turns(history: object) -> tuple[Message, ...]:
    """Return a conversation as messages.

    Raises:
        InvalidParameterError: The history is not a list of turns with a known role and text.
    """
    if history is None:
        return ()
    if not isinstance(history, Sequence) or isinstance(history, (str, bytes)):
        msg = f"history must be a list of turns, oldest first, got {type(history).__name__}"
        raise InvalidParameterError(msg)
    given = cast("Sequence[object]", history)
    first = max(0, len(given) - MOST_TURNS)
    return tuple([_turn(number, turn) for number, turn in enumerate(given[first:], first + 1)])


def _turn(number: int, turn: object) -> Message:
    if isinstance(turn, Message):
        role, content = turn.role, turn.content
    elif isinstance(turn, Mapping):
        fields = cast("Mapping[str, Any]", turn)
        role, content = fields.get("role"), fields.get("content")
    else:
        role = content = None
    if not isinstance(role, str) or role not in ROLES or not isinstance(content, str):
        msg = (
            f"turn {number} of the history must be a Message, or an object with role ({', '.join(sorted(ROLES))}) and "
            f"content (text), got {turn!r:.80}"
        )
        raise InvalidParameterError(msg)
    return Message(role, content[:LONGEST_TURN])  # pyright: ignore[reportArgumentType] - one of the roles


def chosen(transforms: object, available: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the transformers of a query, each once.

    Raises:
        InvalidParameterError: The value is not a list of names, or a name is unknown.
    """
    if not isinstance(transforms, Sequence) or isinstance(transforms, (str, bytes)):
        msg = f"transforms must be a list of names, got {transforms!r:.80}"
        raise InvalidParameterError(msg)
    given = cast("Sequence[object]", transforms)
    for name in given:
        if not isinstance(name, str) or name not in available:
            there_are = ", ".join(sorted(available)) or "none; some of them need a language model, see llm.kind"
            msg = f"there is no transformer {name!r:.80}; there are {there_are}"
            raise InvalidParameterError(msg)
    return tuple(dict.fromkeys(cast("Sequence[str]", given)))


_CHECKS: Mapping[str, Callable[[object], Any]] = {
    "mode": _checked_mode,
    "score_threshold": _checked_threshold,
    "variants": _checked_variants,
    "intent": _checked_intent,
    "history": turns,
    "session_id": _checked_session,
    "use_cache": _check_of_flag("use_cache"),
    "syntax": _check_of_flag("syntax"),
    "verify": _check_of_flag("verify"),
    "prompt_override": _checked_prompt,
}
"""Checks of the values that need no settings; the others are checked where the plan is made."""


class Planner:
    """Makes the plans of queries to one index.

    Args:
        store: The store that is searched.
        make: Returns the plan of a query; see :func:`make_plan`.
    """

    def __init__(self, store: Store, make: Callable[[Filters, QueryOptions], Plan]) -> None:
        self._store = store
        self._make = make
        self._last: tuple[object, Plan] | None = None

    def __call__(self, filters: Filters, options: QueryOptions) -> Plan:
        """Return the plan of a query; one with the options of the last query, none of them a list, has its plan."""
        given = options.items()
        if filters is not None or any(type(value) not in _SCALARS for _, value in given):
            return self._make(filters, options)
        # What the store can do changes as it learns; the types tell True from 1, which is no number of results.
        key = self._store.sides, tuple([(name, type(value), value) for name, value in given])
        last = self._last  # another thread may set another one meanwhile
        if last is None or last[0] != key:
            self._last = last = key, self._make(filters, options)
        return last[1]


def make_plan(
    config: RetrievalConfig,
    filters: Filters,
    options: QueryOptions,
    *,
    store: Store,
    has_embedder: bool,
    transformers: Sequence[str] = (),
    reranks: bool = False,
) -> Plan:
    """Put settings and a caller's arguments together.

    Raises:
        FilterError: The filter is not well formed.
        InvalidParameterError: An argument is outside its range, or asks for what store or embedder cannot do.
        TypeError: An argument is for several indexes only.
    """
    check_single(options)
    options = checked_values(options)
    settings = config.search
    sides = store.sides
    wanted, top_k = options.get("mode"), options.get("top_k")
    if wanted is None and not has_embedder and "mode" not in settings.model_fields_set:
        wanted = "lexical"  # the default is hybrid, which has no vectors here
    wanted = named_mode(settings.mode if wanted is None else wanted)
    top_k = checked_number("top_k", settings.top_k if top_k is None else top_k, config.limits.max_results)
    if wanted != "lexical" and not has_embedder:
        msg = f"mode {wanted!r} needs an embedder and there is none; use mode 'lexical', or set embedder.kind"
        raise InvalidParameterError(msg)
    if wanted == "lexical" and "lexical" not in sides:
        msg = "this store has no keyword search; use mode 'dense'"
        raise InvalidParameterError(msg)
    if wanted == "hybrid" and "lexical" not in sides:
        wanted = "dense"  # the result's metadata says so
    if settings.fusion == "native" and wanted == "hybrid" and "search_both" not in store.capabilities:
        msg = "search.fusion = 'native' needs a store with native hybrid search, such as lancedb; use 'zscore'"
        raise InvalidParameterError(msg)
    # Diverse passages are chosen before they are reranked: more of them would be those that had been passed over.
    reranked = config.reranker.candidates if reranks and settings.search_type != "mmr" else 0
    fetch_k = max(settings.fetch_k, top_k) if settings.search_type == "mmr" else None
    return Plan(
        mode=wanted,
        has_words="lexical" in sides,
        top_k=top_k,
        candidates=max(settings.candidates, top_k, reranked, fetch_k or 0),
        condition=condition_of(filters),
        fusion=settings.fusion,
        dense_weight=settings.dense_weight,
        score_threshold=options.get("score_threshold", settings.score_threshold),
        on_unscored=settings.on_unscored,
        fetch_k=fetch_k,
        lambda_mult=settings.lambda_mult,
        reranked=reranked,
        transforms=_transforms(transformers, config, options),
        variants=cast("tuple[Variant, ...]", options.get("variants", ())),
        intent=options.get("intent") or "",
        history=cast("tuple[Message, ...]", options.get("history", ())),
        session_id=options.get("session_id"),
        use_cache=options.get("use_cache") is not False,
        reads_syntax=options.get("syntax", config.query.syntax) is not False,
        options=further_options(options),
    )


def further_options(options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the options for ``plan.options``: all that have no field in the plan. Stages read them there."""
    return freeze({name: value for name, value in options.items() if name not in _PLANNED and name not in OF_SEVERAL})


def checked_number(name: str, number: object, most: int) -> int:
    """Return a number of hits that is asked for.

    Raises:
        InvalidParameterError: It is no whole number from 1 to ``most``.
    """
    if type(number) is not int or not 1 <= number <= most:
        told = "" if most == MAX_TOP_K else ", the limit of limits.max_results"
        msg = f"{name} must be a whole number between 1 and {most}{told}, got {number!r:.80}"
        raise InvalidParameterError(msg)
    return number


def _transforms(transformers: Sequence[str], config: RetrievalConfig, options: QueryOptions) -> tuple[str, ...]:
    wanted = options.get("transforms")
    if wanted is not None:
        return chosen(wanted, transformers)
    # A configured one that needs a language model is absent where there is none, as other stages are.
    return tuple([name for name in config.transform.use if name in transformers])


def condition_of(filters: Filters) -> Filter | None:
    """Return the filter that a caller means; an empty object, as programs build it, means none."""
    if filters is None or isinstance(filters, Filter):
        return filters
    if isinstance(filters, MetadataFilter):
        return filters.as_filter()
    return None if filters == {} else parse_filter(filters)

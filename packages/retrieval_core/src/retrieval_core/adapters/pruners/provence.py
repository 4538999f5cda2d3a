"""The pruner Provence, a model that reads a whole passage with the question and marks the sentences needed."""

from __future__ import annotations

import re
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast
from unicodedata import normalize

from retrieval_core.adapters.local_models.work import Pooled, needing_extra
from retrieval_core.errors import ConfigurationError, InvalidParameterError, MalformedAnswerError, ServiceError
from retrieval_core.ports import Kept, Pruner
from retrieval_core.run.caching import Lazy

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Self

    from retrieval_core.adapters.parts import AdapterParts

_STOPS = re.compile(r"[.!?]+")
_NO_LETTERS = re.compile(r"[\W_]+")
_MISSING = 0.2
"""The greatest share of a stretch's letters that may be missing."""
_LEFT_OVER = 0.1
"""The greatest share of the shortened text's letters that may come from nowhere."""
_MOST_STATES = 16
MODEL = "naver/provence-reranker-debertav3-v1"
"""English, 430 million parameters. Its licence, CC BY-NC 4.0, allows no commercial use."""
REVISION = "421f9139ad3f5ed919d9b04dd4ff02c10301dac9"
"""The pinned commit: code comes with the model and is executed, so it must not change unseen."""
DEFAULT_THRESHOLD = 0.1
"""The model card's own, for little loss; 0.5 prunes more. Not measured here."""

_BATCH_SIZE = 64


class _State(NamedTuple):
    """The best alignment that ends at a position of the shortened text.

    Attributes:
        missing: Letters that had to be taken for missing.
        before: The position before the last stretch.
        kept: Whether the last stretch is in the shortened text.
    """

    missing: int
    before: int
    kept: bool


def aligned(sentences: Sequence[str], shortened: str) -> tuple[bool, ...] | None:
    """Return which sentences a shortened text was made of.

    The shortening model may divide sentences differently, and lose white space, marks and rare characters. So letters
    and digits are compared, stretch by stretch between full stops: each is in the shortened text, where those before it
    end, or it is not. Of the alignments that use up the text, the one with the fewest missing letters counts. A
    sentence is kept where at least half of its letters are; one without letters where its neighbours are.

    Returns:
        ``None`` where the text cannot have been made of these sentences.
    """
    left = _letters(shortened)
    stretches = [[_letters(part) for part in _STOPS.split(sentence)] for sentence in sentences]
    ways = _ways([stretch for parts in stretches for stretch in parts], left)
    at = max(ways[-1])
    if len(left) - at > _LEFT_OVER * len(left):
        return None
    found: list[bool] = []
    for states in reversed(ways[1:]):
        state = states[at]
        found.append(state.kept)
        at = state.before
    shares = [_share(parts, [found.pop() for _ in parts]) for parts in stretches]
    kept = [share is not None and share >= 0.5 for share in shares]
    for position, share in enumerate(shares):
        if share is None:
            kept[position] = all(kept[max(0, position - 1) : position] + kept[position + 1 : position + 2])
    return tuple(kept)


def _ways(stretches: Sequence[str], left: str) -> list[dict[int, _State]]:
    """Return for the beginning and after each stretch the best state at each position of the shortened text."""
    ways = [{0: _State(0, 0, kept=False)}]
    for stretch in stretches:
        after: dict[int, _State] = {}
        for at, state in ways[-1].items():
            _keep_best(after, at, _State(state.missing, at, kept=False))
            if stretch and (matched := _matched(stretch, left, at)):
                missing = state.missing + len(stretch) - matched
                _keep_best(after, at + matched, _State(missing, at, kept=True))
        # More states occur only in repetitive texts.
        farthest = sorted(after, reverse=True)[:_MOST_STATES]
        ways.append({at: after[at] for at in farthest})
    return ways


def _keep_best(states: dict[int, _State], at: int, state: _State) -> None:
    if at not in states or state.missing < states[at].missing:
        states[at] = state


def _matched(stretch: str, left: str, at: int) -> int:
    """Return how many letters of a stretch stand at a position, the others missing; 0 where too many are missing."""
    if left.startswith(stretch, at):
        return len(stretch)
    allowed = int(_MISSING * len(stretch))
    end = at
    for letter in stretch:
        if left[end : end + 1] == letter:
            end += 1
        elif allowed == 0:
            return 0
        else:
            allowed -= 1
    return end - at


def _share(parts: Sequence[str], kept: Sequence[bool]) -> float | None:
    """Return the share of a sentence's letters that is kept, ``None`` where it has none."""
    letters = sum(map(len, parts))
    if not letters:
        return None
    return sum(len(part) for part, is_kept in zip(parts, kept, strict=True) if is_kept) / letters


def _letters(text: str) -> str:
    return _NO_LETTERS.sub("", normalize("NFKC", text).casefold())


class ProvenceModel(Protocol):
    """The used part of the model's interface; see https://huggingface.co/naver/provence-reranker-debertav3-v1."""

    def process(self, question: list[str], context: list[list[str]], **settings: Any) -> dict[str, Any]:
        """Prune the contexts of questions; under ``pruned_context`` is a text for each."""
        ...


class ProvencePruner(Pooled, Pruner):
    """Prunes with Provence; a :class:`~retrieval_core.ports.Pruner`.

    Written from the model card, and never run with the model itself, only with stand-ins. The model divides a passage
    into sentences of its own, and returns text put together from its tokens, without characters that it does not know.
    :func:`~retrieval_core.adapters.pruners.provence.aligned` finds our sentences in it.

    The model is loaded by the first call, and runs in one thread; a cancelled call runs on to its end there. Loading
    downloads some 1.7 GB and **executes code that comes with the model**, of the commit ``revision``.

    Args:
        model: Its name on the Hugging Face hub, or a folder.
        revision: The commit of that repository.
        threshold: The least share of a sentence that the model has to want, in [0, 1].
        load: Returns the model, in place of ``transformers``; called once, in a thread.

    Raises:
        InvalidParameterError: The threshold is not in [0, 1].
    """

    def __init__(
        self,
        model: str = MODEL,
        *,
        revision: str = REVISION,
        threshold: float = DEFAULT_THRESHOLD,
        load: Callable[[], ProvenceModel] | None = None,
    ) -> None:
        if not 0 <= threshold <= 1:
            msg = f"threshold must be in [0, 1], got {threshold}"
            raise InvalidParameterError(msg)
        self._name = model
        self._revision = revision
        self._threshold = threshold
        self._model = Lazy(load or self._load)
        super().__init__("provence", 1, _BATCH_SIZE)

    @classmethod
    def from_settings(cls, settings: None, parts: AdapterParts) -> Self:  # noqa: ARG003 - it has none
        """Make it from its settings, loading nothing."""
        threshold: float | None = parts.section.threshold
        return cls(threshold=DEFAULT_THRESHOLD if threshold is None else threshold)

    @property
    def id(self) -> str:
        """Names model, revision and threshold."""
        return f"{self._name}@{self._revision}>={self._threshold}"

    @property
    def is_loaded(self) -> bool:
        """Whether the model is in memory."""
        return self._model.made is not None

    async def load(self) -> None:
        """Load the model."""
        await self._pool.run(self._model.get)

    async def _keep(self, query: str, passages: Sequence[Sequence[str]]) -> Kept:
        """Judge the sentences of passages, all of a passage together.

        Raises:
            MissingExtraError: ``transformers``, ``torch`` or ``nltk`` is not installed.
            ConfigurationError: The model's or nltk's files are missing.
            MalformedAnswerError: The model did not give a text for each passage, or one that is not from it.
            ServiceError: The model failed.
            PoolSaturatedError: Too many calls are waiting.
        """
        if not passages:
            return Kept(())
        return await self._pool.run(self._keep_now, query, passages)

    def _keep_now(self, query: str, passages: Sequence[Sequence[str]]) -> Kept:
        model = self._model.get()
        texts = [" ".join(passage) for passage in passages]
        try:
            # Without a title, and with nothing selected for being one, the first sentence is one like all others.
            answer: object = model.process(
                [query],
                [texts],
                title=None,
                threshold=self._threshold,
                always_select_title=False,
                enable_warnings=False,
            )
        except LookupError as error:  # nltk's, for data that were not downloaded
            msg = f"{self._name} needs data of nltk ({_first_line(error)}): python -m nltk.downloader punkt_tab"
            raise ConfigurationError(msg) from error
        except Exception as error:  # the libraries' errors have no common base
            msg = f"{self._name}: {error}"
            raise ServiceError(msg, self._name) from error
        pruned = _texts_of(answer)
        if pruned is None or len(pruned) != len(texts):
            msg = f"{self._name} gave {answer!r:.200} for {len(texts)} passages; pruned_context needs a text for each"
            raise MalformedAnswerError(msg, self._name)
        return Kept(tuple(self._aligned(passage, text) for passage, text in zip(passages, pruned, strict=True)))

    def _aligned(self, sentences: Sequence[str], pruned: str) -> tuple[bool, ...]:
        kept = aligned(sentences, pruned)
        if kept is None:
            msg = f"{self._name} gave a text that is not from its passage: {pruned!r:.200}"
            raise MalformedAnswerError(msg, self._name)
        return kept

    def _load(self) -> ProvenceModel:
        with needing_extra("provence", "The pruner Provence"):
            import_module("torch")
            import_module("nltk")
            transformers: Any = import_module("transformers")
        try:
            model = transformers.AutoModel.from_pretrained(self._name, revision=self._revision, trust_remote_code=True)
        except Exception as error:  # what is wrong with a download has no common base either
            msg = f"{self._name} at {self._revision} cannot be loaded: {error}"
            raise ConfigurationError(msg) from error
        return cast("ProvenceModel", model.eval().requires_grad_(requires_grad=False))


def _texts_of(answer: object) -> list[str] | None:
    """Return the pruned texts of the one question, ``None`` where the answer has another form."""
    try:
        rows: Any = cast("Any", answer)["pruned_context"]
        (texts,) = rows
        return list(texts) if all(isinstance(text, str) for text in texts) else None
    except (KeyError, TypeError, ValueError):
        return None


def _first_line(error: Exception) -> str:
    return next((line.strip(" *") for line in str(error).splitlines() if line.strip(" *")), type(error).__name__)

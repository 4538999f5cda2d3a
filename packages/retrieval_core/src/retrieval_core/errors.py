"""Every error this library raises.

::

    RetrievalError
    ├── ConfigurationError                     settings are missing or wrong
    │   ├── MissingExtraError (ImportError)    an optional dependency is not installed
    │   ├── ModelNotFoundError                 a local model's files are missing or changed
    │   └── SuiteFileError                     a file of test cases is not well formed
    ├── QueryValidationError (ValueError)      the query is empty or not text
    ├── FilterError (ValueError)               a filter is not well formed
    │   └── UnsupportedFilterError             a store lacks an operator of a filter
    ├── InvalidParameterError (ValueError)     an argument is outside its range
    ├── EmbeddingError                         text could not be embedded
    │   └── DimensionMismatchError             a vector has another length than the index
    ├── SearchError                            a search failed
    │   ├── IncompleteSearchError              a part of the index could not be searched
    │   │   ├── NotYetEmbeddedError            chunks have no vector yet
    │   │   └── DamagedSearchError             chunks lost their vectors or postings
    │   └── UnsupportedSearchError             a store has no search of this kind
    ├── StoreError                             an index cannot be used in this way
    │   ├── IndexNotFoundError                 there is no index at this location
    │   │   └── IndexNotReadyError             its first documents are being indexed
    │   ├── IndexFormatError                   the file is not an index, or has another format
    │   ├── IndexBusyError                     another writer held the index for too long
    │   └── EmbedderMismatchError              the index was built with another embedder
    ├── IngestError                            a file could not be indexed
    │   └── UnreadableFileError                a file could not be read
    ├── ExpectationError                       results are not as a test case expects
    │   ├── MissingDocumentError               an expected document is missing in the results
    │   ├── RelevanceError                     the results are less relevant than required
    │   └── PerformanceError                   retrieval took longer than allowed
    └── ServiceError                           a service outside this process failed
        ├── ServiceConnectionError (ConnectionError)
        ├── MalformedAnswerError               a model's answer has the wrong form
        ├── CircuitOpenError                   a failing backend is skipped for a while
        └── ServiceTimeoutError (TimeoutError)
            └── DeadlineExceededError          the query exceeded its deadline

Each message contains what failed, the given value and what to do.
"""

from __future__ import annotations

from threading import current_thread, main_thread
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class RetrievalError(Exception):
    """Base of every error raised by this library."""

    transient: ClassVar[bool] = False
    """Whether a retry of the same call may succeed."""


class ConfigurationError(RetrievalError):
    """Settings are missing or wrong.

    Attributes:
        missing_keys: Names of settings or environment variables that must be set.
        problems: One line a problem, each beginning with the key it is about.
    """

    def __init__(self, message: str, missing_keys: Sequence[str] = (), problems: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.missing_keys = tuple(missing_keys)
        self.problems = tuple(problems)


class SettingRenamedWarning(FutureWarning):
    """A setting has an old name, which the next version no longer reads."""


class MissingExtraError(ConfigurationError, ImportError):
    """An optional dependency is not installed; the message contains the command that installs it.

    Attributes:
        extra: The extra of ``retrieval-core`` that brings it.
        needed_for: The component that needs it, as the message begins.
    """

    def __init__(self, extra: str, needed_for: str) -> None:
        from retrieval_core.installation import install_command  # noqa: PLC0415 - only this error needs it

        super().__init__(f"{needed_for} needs the extra {extra!r}. Install it with: {install_command(extra)}")
        self.extra = extra
        self.needed_for = needed_for


class ModelNotFoundError(ConfigurationError):
    """The files of a local model are missing, or are not the files they should be."""


class SuiteFileError(ConfigurationError):
    """A file of test cases is not well formed.

    Attributes:
        path: The file, as it was given.
        line: Line of the first problem, from 1.
        column: Column of the first problem, from 1.
        problems: One line a problem, each beginning with ``path:line:column``.
    """

    def __init__(self, path: str, line: int, column: int, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems), problems=problems)
        self.path = path
        self.line = line
        self.column = column


class QueryValidationError(RetrievalError, ValueError):
    """The query is empty or not text.

    Attributes:
        query: The given query, or ``None`` if it was not a string.
    """

    def __init__(self, message: str, query: str | None = None) -> None:
        super().__init__(message)
        self.query = query


class FilterError(RetrievalError, ValueError):
    """A filter is not well formed."""


class UnsupportedFilterError(FilterError):
    """A store cannot evaluate an operator of a filter exactly, and so does not try."""


class InvalidParameterError(RetrievalError, ValueError):
    """An argument is outside the range that its documentation gives."""


def checked_count(value: object, name: str, advice: str = "") -> int:
    """Return a number of things, of which there has to be one at least.

    Args:
        name: Name of the argument, for the message.
        advice: Advice for the end of the message.

    Raises:
        InvalidParameterError: It is no whole number of at least 1.
    """
    if type(value) is not int or value < 1:
        msg = f"{name} must be a whole number of at least 1, got {value!r:.80}" + (f"; {advice}" if advice else "")
        raise InvalidParameterError(msg)
    return value


class EmbeddingError(RetrievalError):
    """Text could not be embedded. ``__cause__`` is the embedder's error.

    Attributes:
        query: The text of the query, if a query failed.
    """

    def __init__(self, message: str, query: str | None = None) -> None:
        super().__init__(message)
        self.query = query

    @property
    def kind(self) -> str:
        """The kind of failure, as one of these words.

        ``authentication`` (the key was refused), ``rate limit``, ``timeout``, ``connection``, ``malformed answer``,
        ``service`` (any other failure of a service), and ``embedder`` (a failure of the embedder itself).
        """
        cause = self.__cause__
        status = cause.status if isinstance(cause, ServiceError) else None
        if status in _KINDS_BY_STATUS:
            return _KINDS_BY_STATUS[status]
        kinds = (TimeoutError, "timeout"), (ConnectionError, "connection"), (MalformedAnswerError, "malformed answer")
        return next(
            (kind for error, kind in kinds if isinstance(cause, error)),
            "service" if isinstance(cause, ServiceError) else "embedder",
        )


def as_embedding_error(error: Exception, what: str, query: str | None = None) -> RetrievalError:
    """Return an embedder's error as an :class:`EmbeddingError` with it as the cause.

    Errors of this library are returned as they are, unless they are a service's. An :class:`EmbeddingError` without a
    query is copied with the query, as an embedder may raise the same object twice.

    Args:
        what: Name of the text that could not be embedded, for the message.
        query: The text of the query, if a query failed.
    """
    if isinstance(error, RetrievalError) and not isinstance(error, ServiceError):
        if type(error) is not EmbeddingError or error.query is not None or query is None:
            return error
        embedding_error = EmbeddingError(str(error), query)
        embedding_error.__cause__ = error.__cause__ or error
        return embedding_error
    embedding_error = EmbeddingError(f"{what} could not be embedded: {str(error) or type(error).__name__}", query)
    embedding_error.__cause__ = error
    return embedding_error


class ModelLoadingError(EmbeddingError):
    """The embedding model is still being loaded. The same query succeeds a few seconds later."""

    def __init__(self) -> None:
        super().__init__(
            "the embedding model is still loading, so this is keyword search only; "
            "search again in a few seconds for hybrid search"
        )


class DimensionMismatchError(EmbeddingError):
    """A vector has another number of components than those in the index."""

    def __init__(self, expected: int, actual: int, where: str) -> None:
        super().__init__(
            f"{where}: expected a vector of {expected} components and got {actual}. "
            "Use the embedder that the index was built with, or build a new index."
        )
        self.expected = expected
        self.actual = actual


class SearchError(RetrievalError):
    """A search failed.

    Attributes:
        details: Facts about the failure, without secrets.
    """

    def __init__(self, message: str, details: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.details = dict(details or {})


REPAIR = "Run: retrieval verify --repair"
"""The advice for a damaged index."""


class IncompleteSearchError(SearchError):
    """A part of the index could not be searched; a pipeline goes on with the candidates found.

    Attributes:
        found: The candidates, best first.
    """

    def __init__(self, message: str, found: Sequence[Any], details: Mapping[str, Any] | None = None) -> None:
        super().__init__(message, details)
        self.found = tuple(found)


class NotYetEmbeddedError(IncompleteSearchError):
    """Chunks have no vector yet, for instance during indexing, so that vector search cannot find them.

    Args:
        chunks: Number of chunks that pass the filter.
        embedded: Number of these chunks that have a vector.
        found: The candidates among these, best first.
    """

    def __init__(self, chunks: int, embedded: int, found: Sequence[Any]) -> None:
        share = 100 * embedded // chunks
        msg = f"indexing in progress, {share}% embedded; the rest is matched by keyword only"
        super().__init__(msg, found, {"chunks": chunks, "embedded": embedded})


class DamagedSearchError(IncompleteSearchError):
    """Parts of an index are missing that were written, so that a search cannot find some chunks.

    Args:
        kind: ``vector`` or ``keyword``: the search that is incomplete.
        chunks: Number of chunks that pass the filter.
        missing: Number of these chunks that lost their vector, or their postings.
        found: The candidates among the others, best first.
    """

    def __init__(self, kind: str, chunks: int, missing: int, found: Sequence[Any]) -> None:
        part = "vectors" if kind == "vector" else "postings"
        msg = f"{kind} search is incomplete: {missing} of {chunks} chunks lost their {part}. {REPAIR}"
        super().__init__(msg, found, {"chunks": chunks, "missing": missing})


class UnsupportedSearchError(SearchError):
    """A store has no search of this kind, for instance no keyword search, for any query."""


class StoreError(RetrievalError):
    """An index cannot be used in this way."""


class UnsupportedError(StoreError):
    """A plug-in lacks an optional ability, such as those of :attr:`retrieval_core.ports.Store.capabilities`."""


class IndexNotFoundError(StoreError):
    """There is no index at the given place."""


class IndexNotReadyError(IndexNotFoundError):
    """The first documents of an index are being indexed, and none can be searched yet.

    Attributes:
        files_done: Files indexed so far.
        files_total: Files to index.
    """

    def __init__(self, files_done: int, files_total: int) -> None:
        progress = progress_of_first_run(files_done, files_total)
        super().__init__(f"the index is being built: {progress}. Try again in a moment")
        self.files_done = files_done
        self.files_total = files_total


def progress_of_first_run(files_done: int, files_total: int) -> str:
    """Return in words how much of a new index is there."""
    if not files_total:
        return "its files are being counted"
    return f"{files_done:,} of {files_total:,} files indexed so far"


class IndexFormatError(StoreError):
    """The file is not an index, is damaged, or has a format that this version does not read."""


class IndexBusyError(StoreError):
    """Another process wrote to the index for longer than this one was willing to wait."""

    transient: ClassVar[bool] = True


class EmbedderMismatchError(StoreError):
    """The index contains vectors of another embedder, which cannot be compared."""

    def __init__(self, indexed_with: str | None, opened_with: str | None, location: str) -> None:
        if indexed_with is None:
            advice = (
                "contains no vectors. Use keyword search (mode 'lexical'), index without an embedder (the preset "
                f"'lexical'), or build a new index with {opened_with}."
            )
        else:
            advice = (
                f"was built with the embedder {indexed_with} and cannot be used with {opened_with or 'none'}. "
                f"Configure {indexed_with} again, or build a new index."
            )
        super().__init__(f"{location} {advice}")
        self.indexed_with = indexed_with
        self.opened_with = opened_with


class IngestError(RetrievalError):
    """A file or text could not be indexed."""


class UnreadableFileError(IngestError):
    """A file could not be read.

    Attributes:
        path: The file, as it was given.
        reason: One sentence for people.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class ExpectationError(RetrievalError):
    """Results are not as a test case expects; see :mod:`retrieval_core.evaluate.suite`."""


class MissingDocumentError(ExpectationError):
    """An expected document, chunk or phrase is missing in the results."""


class RelevanceError(ExpectationError):
    """The results are less relevant than a test case requires."""


class PerformanceError(ExpectationError):
    """Retrieval took longer than a test case allows."""


class NotFoundError(RetrievalError):
    """A service has nothing of that name that the caller may read.

    Attributes:
        what: ``Index``, ``Chunk``, ``Document`` or ``Page``.
        name: Its name or ID, as it was given.
        reason: Why, if that is known.
    """

    def __init__(self, what: str, name: str, reason: str | None = None) -> None:
        super().__init__(f"{what} {name} not found" + (f": {reason}" if reason else ""))
        self.what = what
        self.name = name
        self.reason = reason


class NotPermittedError(RetrievalError):
    """The caller of a service may not do that."""


class ServiceError(RetrievalError):
    """Something outside this process answered with a failure.

    Attributes:
        service: Name of the service, for instance ``"openai"``.
        status: The HTTP status, if there is one.
        retry_after: Seconds to wait before a retry, if the service asked for a delay.
        was_retried: Whether the service's client has already made all useful retries.
    """

    was_retried: bool = False

    def __init__(
        self, message: str, service: str | None = None, *, status: int | None = None, retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.service = service
        self.status = status
        self.retry_after = retry_after

    @property
    def can_be_retried(self) -> bool:
        """Whether a retry can help: after lost connections, timeouts, rate limits (429) and server faults (5xx).

        It is false if the service's client has already retried.
        """
        return not self.was_retried and (self.transient or self.status == 429 or (self.status or 0) >= 500)


class ServiceConnectionError(ServiceError, ConnectionError):
    """A service could not be reached; ``except ConnectionError`` catches it too."""

    transient: ClassVar[bool] = True


class ServiceTimeoutError(ServiceError, TimeoutError):
    """A service did not answer in time; ``except TimeoutError`` catches it too."""

    transient: ClassVar[bool] = True


class DeadlineExceededError(ServiceTimeoutError):
    """The query exceeded its deadline."""

    transient: ClassVar[bool] = False


class MalformedAnswerError(ServiceError):
    """A model's answer has the wrong form. A retry may succeed.

    Attributes:
        answer: The model's whole answer, so that a request can ask for a repair; ``None`` if it is unknown. Messages
            contain only its beginning.
    """

    transient: ClassVar[bool] = True

    def __init__(
        self,
        message: str,
        service: str | None = None,
        *,
        status: int | None = None,
        retry_after: float | None = None,
        answer: str | None = None,
    ) -> None:
        super().__init__(message, service, status=status, retry_after=retry_after)
        self.answer = answer


class UnusableAnswerError(MalformedAnswerError):
    """A plug-in returned a value that its port does not allow. A retry doesn't help."""

    transient: ClassVar[bool] = False


class CircuitOpenError(ServiceError):
    """A backend failed several times in a row and is skipped for a while."""


_KINDS_BY_STATUS: dict[int | None, str] = {401: "authentication", 403: "authentication", 429: "rate limit"}

ValidationError = QueryValidationError
"""The specification's name."""


def _is_interrupt(error: BaseException) -> bool:
    """Whether this is Ctrl-C: Python raises it in the main thread, and only there."""
    return issubclass(type(error), KeyboardInterrupt) and current_thread() is main_thread()


def as_exception(error: BaseException) -> Exception:
    """Return a plug-in's error as an :class:`Exception` with a message.

    Most errors are returned as they are. Others would pass through ``except Exception``, end an event loop or be lost
    in a future. Examples are a panic of a Rust library, ``SystemExit``, ``GeneratorExit``, ``StopIteration``, and a
    ``KeyboardInterrupt`` outside the main thread. Some even raise when they are converted to text.

    Raises:
        KeyboardInterrupt: It is Ctrl-C, which nobody may keep from the caller.
    """
    if _is_interrupt(error):
        raise error
    kind = type(error).__name__
    try:
        text = str(error)
    except BaseException as failed:
        if _is_interrupt(failed):
            raise
        return RuntimeError(f"it raised {kind}, whose message cannot be shown")
    if isinstance(error, SystemExit):
        return RuntimeError("it tried to end the process")
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    return RuntimeError(f"it raised {kind}: {text}" if text else f"it raised {kind}")

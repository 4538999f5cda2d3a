"""Every error this library raises.

::

    RetrievalError
    ├── ConfigurationError                     settings are missing or wrong
    │   ├── MissingExtraError (ImportError)    an optional dependency is not installed
    │   ├── ModelNotFoundError                 a local model's files are missing or changed
    │   └── SuiteFileError                     a file of test cases is not well formed
    ├── QueryValidationError (ValueError)      the question cannot be searched for
    ├── FilterError (ValueError)               a filter is not well formed
    │   └── UnsupportedFilterError             a store lacks an operator of a filter
    ├── InvalidParameterError (ValueError)     an argument is outside its range
    ├── EmbeddingError                         text could not be embedded
    │   └── DimensionMismatchError             a vector has another length than the index
    ├── SearchError                            a search failed
    │   ├── IncompleteSearchError              not everything that was asked for could be looked at
    │   │   ├── NotYetEmbeddedError            passages have no vector yet
    │   │   └── DamagedSearchError             chunks lost their vectors or postings
    │   └── UnsupportedSearchError             a store has no search of this kind
    ├── StoreError                             an index cannot be used as asked
    │   ├── IndexNotFoundError                 there is no index at that place
    │   │   └── IndexNotReadyError             its first documents are being indexed
    │   ├── IndexFormatError                   the file is no index, or of another format
    │   ├── IndexBusyError                     another writer held the index for too long
    │   └── EmbedderMismatchError              the index was built with another embedder
    ├── IngestError                            a file could not be taken in
    │   └── UnreadableFileError                a file could not be read
    ├── ExpectationError                       what was found is not what a test case expects
    │   ├── MissingDocumentError               an expected document is not among the passages found
    │   ├── RelevanceError                     the passages found are less relevant than demanded
    │   └── PerformanceError                   retrieval took longer than allowed
    └── ServiceError                           something outside this process failed
        ├── ServiceConnectionError (ConnectionError)
        ├── MalformedAnswerError               a model's answer is not what was asked for
        ├── CircuitOpenError                   a backend is left alone for a while
        └── ServiceTimeoutError (TimeoutError)
            └── DeadlineExceededError          the query's own time budget ran out

A message says what happened, what was given and what to do about it.
"""

from __future__ import annotations

from threading import current_thread, main_thread
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class RetrievalError(Exception):
    """Base of every error raised by this library."""

    transient: ClassVar[bool] = False
    """Whether the same call may succeed when it is made again."""


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
        line: Where the first problem is, from 1.
        column: Likewise.
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
        query: What was given, or ``None`` where it was not a string.
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
        name: Of the argument, for the message.
        advice: What to do instead, for the end of the message.

    Raises:
        InvalidParameterError: It is no whole number of at least 1.
    """
    if type(value) is not int or value < 1:
        msg = f"{name} must be a whole number of at least 1, got {value!r:.80}" + (f"; {advice}" if advice else "")
        raise InvalidParameterError(msg)
    return value


class EmbeddingError(RetrievalError):
    """Text could not be turned into a vector, for whatever reason; ``__cause__`` is what the embedder raised.

    Attributes:
        query: The text of the query, where it was a query that failed.
    """

    def __init__(self, message: str, query: str | None = None) -> None:
        super().__init__(message)
        self.query = query

    @property
    def kind(self) -> str:
        """What failed, as one of these words.

        ``authentication`` (the key was refused), ``rate limit``, ``timeout``, ``connection``, ``malformed answer``,
        ``service`` (any other failure of one), and ``embedder`` for what is no service's failure.
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

    Errors of this library other than a service's are returned as they are, save that an :class:`EmbeddingError` without
    a query is copied with it, as an embedder may raise the same one again.

    Args:
        what: Names the text that could not be embedded, for the message.
        query: The text of the query, where it was a query that failed.
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


class DimensionMismatchError(EmbeddingError):
    """A vector has another number of components than the index holds."""

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
    """Passages have no vector yet, as while a folder is indexed, so that a search by vector cannot find them.

    Args:
        chunks: How many passages could have been found.
        embedded: How many of them have a vector.
        found: The candidates among these, best first.
    """

    def __init__(self, chunks: int, embedded: int, found: Sequence[Any]) -> None:
        share = 100 * embedded // chunks
        msg = f"vectors for {share} % of the passages; words alone find the others until indexing is done"
        super().__init__(msg, found, {"chunks": chunks, "embedded": embedded})


class DamagedSearchError(IncompleteSearchError):
    """Parts of an index are missing that were written, so that a search cannot find some chunks.

    Args:
        kind: Of the search: ``vector`` or ``keyword``.
        chunks: How many could have been found.
        missing: How many of them lack their vector, or their postings.
        found: The candidates among the others, best first.
    """

    def __init__(self, kind: str, chunks: int, missing: int, found: Sequence[Any]) -> None:
        part = "vectors" if kind == "vector" else "postings"
        msg = f"{kind} search is incomplete: {missing} of {chunks} chunks lost their {part}. {REPAIR}"
        super().__init__(msg, found, {"chunks": chunks, "missing": missing})


class UnsupportedSearchError(SearchError):
    """A store has no search of this kind, such as keyword search; the same holds for every query."""


class StoreError(RetrievalError):
    """An index cannot be used in the way that was asked for."""


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
        super().__init__(f"the index is being made: {progress}. Ask again in a moment")
        self.files_done = files_done
        self.files_total = files_total


def progress_of_first_run(files_done: int, files_total: int) -> str:
    """Return in words how much of a new index is there."""
    return f"{files_done:,} of {files_total:,} files indexed so far"


class IndexFormatError(StoreError):
    """The file is not an index, is damaged, or has a format that this version does not read."""


class IndexBusyError(StoreError):
    """Another process wrote to the index for longer than this one was willing to wait."""

    transient: ClassVar[bool] = True


class EmbedderMismatchError(StoreError):
    """The index holds the vectors of another embedder; comparing with them would be meaningless."""

    def __init__(self, indexed_with: str | None, opened_with: str | None, location: str) -> None:
        if indexed_with is None:
            advice = (
                "holds no vectors. Search it by words (mode 'lexical'), fill it without an embedder (the preset "
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
    """A file or text could not be taken into the index."""


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
    """What was found is not what a test case expects; see :mod:`retrieval_core.evaluate.suite`."""


class MissingDocumentError(ExpectationError):
    """An expected document, chunk or phrase is not among the passages found."""


class RelevanceError(ExpectationError):
    """The passages found are less relevant than a test case demands."""


class PerformanceError(ExpectationError):
    """Retrieval took longer than a test case allows."""


class ServiceError(RetrievalError):
    """Something outside this process answered with a failure.

    Attributes:
        service: Which one, for instance ``"openai"``.
        status: The HTTP status where there was one.
        retry_after: Seconds the service asked to wait, where it did.
        was_retried: Whether the service's own client has made all attempts that are worth it.
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
        """Whether waiting can help: lost connections, time-outs, rate limits (429) and server faults (5xx).

        Never if the service's own client has retried already.
        """
        return not self.was_retried and (self.transient or self.status == 429 or (self.status or 0) >= 500)


class ServiceConnectionError(ServiceError, ConnectionError):
    """A service could not be reached; ``except ConnectionError`` catches it too."""

    transient: ClassVar[bool] = True


class ServiceTimeoutError(ServiceError, TimeoutError):
    """A service did not answer in time; ``except TimeoutError`` catches it too."""

    transient: ClassVar[bool] = True


class DeadlineExceededError(ServiceTimeoutError):
    """The time budget of the query ran out."""

    transient: ClassVar[bool] = False


class MalformedAnswerError(ServiceError):
    """A model's answer has not the form that was asked for; another attempt may do better.

    Attributes:
        answer: The model's whole answer, so that it can be asked to mend it; ``None`` where it is not known. No message
            holds more than its beginning.
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


class CircuitOpenError(ServiceError):
    """A backend failed so often in a row that it is not asked for the moment."""


_KINDS_BY_STATUS: dict[int | None, str] = {401: "authentication", 403: "authentication", 429: "rate limit"}

ValidationError = QueryValidationError
"""The specification's name."""


def _is_interrupt(error: BaseException) -> bool:
    """Whether this is Ctrl-C: Python raises it in the main thread, and only there."""
    return issubclass(type(error), KeyboardInterrupt) and current_thread() is main_thread()


def as_exception(error: BaseException) -> Exception:
    """Return a plug-in's error as an :class:`Exception` with a message.

    Most are that already, and are returned as they are. Others would pass through ``except Exception``, end an event
    loop or be lost in a future: a panic of a library in Rust, ``SystemExit``, ``GeneratorExit``, ``StopIteration``, a
    ``KeyboardInterrupt`` outside the main thread; and some raise when they are converted to text.

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

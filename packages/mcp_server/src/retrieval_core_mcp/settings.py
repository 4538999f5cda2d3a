"""The server's settings."""

from __future__ import annotations

import os
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from retrieval_core.config import RetrievalConfig
from retrieval_core.config.base import problems_of
from retrieval_core.errors import ConfigurationError
from retrieval_core.index.settings import config_for, load_index_config, named_file
from retrieval_core_mcp.fitting import LARGEST_ANSWER, SMALLEST_ANSWER, in_one_line
from retrieval_core_mcp.http.settings import HttpSettings, listed
from retrieval_core_mcp.wording import requirement

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from retrieval_core.index.index import Index
    from retrieval_core.ports import Embedder
    from retrieval_core.run.clock import Clock
    from retrieval_core.run.observe import Observer
    from retrieval_core.service.served import ServedIndexes

ENVIRONMENT_PREFIX = "RETRIEVAL_MCP__"
DEFAULT_RESULTS = 10
"""The most results of a search where neither the assistant nor the configuration says."""
MOST_RESULTS = 100
LONGEST_DESCRIPTION = 500
DEFAULT_INDEX = ".retrieval/index.db"
"""The index of a folder."""


def _check_tools(names: tuple[str, ...]) -> tuple[str, ...]:
    from retrieval_core_mcp.tools.registry import ALL, TOOLS  # noqa: PLC0415 - only those who name tools wait for it

    known = [tool.name for tool in TOOLS]
    for name in names:
        if name not in {*known, ALL}:
            near = get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"choose from {ALL}, {', '.join(known)}"
            msg = f"there is no tool {in_one_line(name, 40)}; {hint}"
            raise ValueError(msg)
    return names


class ServerSettings(BaseModel):
    """All settings of the server; those of the search are the library's own."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    retrieval: RetrievalConfig = RetrievalConfig()
    """The index, the embedder and how to search."""
    max_characters: int = Field(default=8_000, ge=SMALLEST_ANSWER, le=LARGEST_ANSWER)
    """An answer stays below this many characters: its text, and its structured content, each as JSON."""
    wait_seconds: float = Field(default=1.0, ge=0, le=60)
    """Seconds a search waits for a model that is still loading, before it falls back to keyword search."""
    description: str = Field(default="", max_length=LONGEST_DESCRIPTION)
    """The subject of the documents, in one or two sentences, so that an assistant knows when to search them."""

    tools: Annotated[tuple[str, ...], BeforeValidator(listed), AfterValidator(_check_tools)] = ()
    """Names of the tools that clients get, or ``all``. Default: those that an assistant needs."""
    structured: bool = False
    """Whether tools have output schemas, and results structured content beside their text."""

    allow_writes: bool = False
    """Whether clients may index files, remove documents and, over HTTP, add documents."""
    roots: Annotated[tuple[Path, ...], BeforeValidator(listed)] = ()
    """The folders below which files may be indexed; without one, that to which names of documents are relative."""

    folder: Path | None = None
    """A folder that is indexed when the server starts. Its index is in ``.retrieval`` there."""
    watch: bool = False
    """Whether changes in these folders are indexed at once."""

    http: HttpSettings = HttpSettings()
    """For the service over HTTP."""

    @property
    def described(self) -> str:
        """The description on one line."""
        return in_one_line(self.description, LONGEST_DESCRIPTION)

    @property
    def about(self) -> str:
        """The description as a sentence for an assistant; empty without a description."""
        text = self.described
        return f"The documents are about: {text}" + "." * (text[-1] not in ".!?…") if text else ""

    @property
    def top_k(self) -> int:
        """The default number of results; see :func:`default_top_k`."""
        return default_top_k(self.retrieval)

    @property
    def words_only(self) -> bool:
        """Whether there is no embedder, so that only lexical search is possible."""
        return self.retrieval.embedder.kind == "none"

    def of_index(self, path: str) -> ServerSettings:
        """Return the settings with another index file."""
        same = path == self.retrieval.index
        return self if same else self.model_copy(update={"retrieval": config_for(self.retrieval, path)})


def default_top_k(config: RetrievalConfig) -> int:
    """Return the number of results if the assistant sets none: as configured, else few, which leaves longer ones."""
    search = config.search
    return min(search.top_k, MOST_RESULTS) if "top_k" in search.model_fields_set else DEFAULT_RESULTS


def serve_indexes(
    settings: ServerSettings,
    places: Sequence[str] = (),
    *,
    embedder: Embedder | None = None,
    open_index: Callable[..., Index] | None = None,
    observer: Observer | None = None,
    clock: Clock | None = None,
) -> ServedIndexes:
    """Return the indexes of a server. They are not opened yet.

    Args:
        places: Index files, or ``NAME=FILE``. Default: the configured one.
        embedder: That of the first index. Default: the configured one.
        open_index: Opens an index, with the arguments of :func:`retrieval_core.open_index`, which is the default.
        observer: Receives the events of each query.
        clock: Measures the wait for a model. Default: the system's clock.

    Raises:
        ConfigurationError: Two have the same name.
    """
    from retrieval_core.service.served import ServedIndex, ServedIndexes  # noqa: PLC0415 - --help does not wait for it

    named = named_indexes(places, settings.retrieval.index)
    indexes = [
        ServedIndex(
            name,
            settings.of_index(path).retrieval,
            description=settings.described,
            base_url=settings.http.base_url,
            roots=settings.roots,
            wait_seconds=settings.wait_seconds,
            embedder=embedder if at == 0 else None,
            open_index=open_index,
            observer=observer,
            clock=clock,
        )
        for at, (name, path) in enumerate(named.items())
    ]
    return ServedIndexes(*indexes, observer=observer)


def named_indexes(places: Sequence[str], default: str) -> dict[str, str]:
    """Return index files by their names.

    Args:
        places: Files, or ``NAME=FILE``. Without a name, it is that of the file, or of the folder that
            ``.retrieval/index.db`` is in.
        default: The file where there is no place.

    Raises:
        ConfigurationError: Two have the same name.
    """
    named: dict[str, str] = {}
    for place in places or (default,):
        name, path = named_file(place)
        name = name or _name_of(path)
        if name in named:
            msg = f"two indexes are called {name}; name them with --index NAME=FILE"
            raise ConfigurationError(msg)
        named[name] = path
    return named


def _name_of(path: str) -> str:
    place = Path(path)
    if place.parent.name != ".retrieval":
        return place.stem or "index"
    return place.absolute().parent.parent.name or "index"


def read_settings(
    index: str | Path | None = None,
    config: str | Path | None = None,
    environment: Mapping[str, str] | None = None,
    http: Mapping[str, Any] | None = None,
    **given: Any,
) -> ServerSettings:
    """Read the settings from all their sources; those that the index remembers are the weakest.

    Args:
        index: The index file, in place of the configured one.
        config: A TOML file with the library's settings, or the name of a preset.
        environment: For instance ``os.environ``; ``None`` leaves the environment out. The library's settings are
            ``RETRIEVAL_…`` as for the command line. The server's own are the fields of :class:`ServerSettings`, such as
            ``RETRIEVAL_MCP__MAX_CHARACTERS``, and those of the service ``RETRIEVAL_MCP__HTTP__…``.
        http: Settings of the service, in place of those of the environment.
        given: Further settings of the server's own, likewise.

    Raises:
        ConfigurationError: Something is wrong; the message has one line for each thing.
    """
    others, values, of_http = dict(environment or {}), dict(given), dict(http or {})
    for name in sorted(others):
        if name.upper().startswith(ENVIRONMENT_PREFIX):
            key, value = name[len(ENVIRONMENT_PREFIX) :].lower(), others.pop(name)
            target = of_http if key.startswith("http__") else values
            target.setdefault(key.removeprefix("http__"), value)
    if values.get("folder"):
        folder = Path(values["folder"]).expanduser()
        check_folder(folder)
        if index is not None:
            msg = "a folder and an index were given; the index of a folder is .retrieval/index.db in it"
            raise ConfigurationError(msg)
        index = folder / DEFAULT_INDEX
    retrieval = load_index_config(index, file=config, environment=others)
    if of_http:
        values["http"] = of_http
    if "retrieval" in values:
        problems = [f"{ENVIRONMENT_PREFIX}RETRIEVAL: unknown setting; the library's settings are RETRIEVAL_…"]
    else:
        try:
            return ServerSettings.model_validate({**values, "retrieval": retrieval})
        except ValidationError as error:
            problems = problems_of(error, name=_variable, meant=_meant, expected=requirement)
    raise ConfigurationError("the server's settings are wrong:\n  " + "\n  ".join(problems), problems=problems)


def check_folder(folder: Path) -> None:
    """Check that a folder may be indexed as a whole.

    Raises:
        ConfigurationError: It is not there, or it is the home folder of the user or all of a disk.
    """
    if not folder.is_dir():
        msg = f"there is no folder {str(folder)!r}"
        raise ConfigurationError(msg)
    if (real := folder.resolve()) in {Path(os.path.expanduser("~")).resolve(), Path(real.anchor)}:  # noqa: PTH111 - Path.home() may fail
        msg = f"{str(folder)!r} is more than a folder of documents. Name the folder to index"
        raise ConfigurationError(msg)


def _variable(name: str) -> str:
    return ENVIRONMENT_PREFIX + name.replace(".", "__").upper()


def _meant(location: tuple[int | str, ...]) -> list[str]:
    inside = location[0] == "http" != location[-1]
    fields = [*(HttpSettings if inside else ServerSettings).model_fields.keys() - {"retrieval", "http"}]
    near = get_close_matches(str(location[-1]), fields, n=1, cutoff=0.4) or sorted(fields)
    return [" or ".join(_variable(f"http.{each}" if inside else each) for each in near)]

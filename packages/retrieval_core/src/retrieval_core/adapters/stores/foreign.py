"""Read records that another program wrote as chunks, by a mapping of their fields.

Nothing is guessed: the setting ``fields`` says which field of a record holds what, by a preset or field by field.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, cast

from retrieval_core.adapters.stores.base import StoreBase
from retrieval_core.config import without_secrets
from retrieval_core.errors import IndexFormatError, InvalidParameterError
from retrieval_core.types import Chunk, PageSpan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from retrieval_core.ports import ChunkRange
    from retrieval_core.types import JSON

FieldPath: TypeAlias = "tuple[str, ...]"
"""The names that lead to a value of a record."""

PRESET = "preset"
"""The key of a mapping that names the preset which the other keys add to."""
METADATA = "metadata"
"""The key for the object whose fields are a chunk's metadata. Default: the record itself."""
JSON_FIELD = "json"
"""The key for a field with JSON as text; paths lead into it as into an object."""
_HIDDEN = "hidden"
"""The key, for presets only, of fields that are not a chunk's metadata."""
_MARKS = "marks"
"""The key, for presets only, of fields by which a record is recognised, if no object or JSON shows its program."""

_DEFAULT = {
    "text": ("text", "content", "review_text"),
    "document_id": ("document_id", "doc_id", "source_url", "url"),
    "source": ("source", "source_url", "url"),
    "title": ("title", "document_title"),
    "chunk_index": ("chunk_index", "position"),
    "total_chunks": ("total_chunks",),
    "timestamp": ("timestamp",),
    "embedding_model": ("embedding_model",),
    "chunk_id": ("chunk_id",),
}
"""The specification's names: fields of a chunk's metadata. The first one that a record has counts."""
_NODE = "_node_content"
_BY_SOURCE = (*_DEFAULT["document_id"], "source")
"""LangChain keeps no ID of a document; its loaders write the file or the address."""
_HAYSTACK = {
    "document_id": ("source_id", *_DEFAULT["document_id"]),
    "chunk_index": ("split_id", *_DEFAULT["chunk_index"]),
    "page": ("page_number", "page"),
    "source": (*_DEFAULT["source"], "file_path"),
}
"""Haystack's splitters and converters write these into a document's metadata."""
PRESETS: Mapping[str, Mapping[str, Sequence[str]]] = {
    "default": {},
    "langchain": {
        "text": ("page_content",),
        METADATA: ("metadata",),
        "document_id": tuple(f"metadata.{name}" for name in _BY_SOURCE),
    },
    "llamaindex": {
        JSON_FIELD: (_NODE,),
        "text": (f"{_NODE}.text", f"{_NODE}.text_resource.text", "text"),
        "document_id": ("document_id", "doc_id", "ref_doc_id", f"{_NODE}.relationships.1.node_id"),
        "source": ("source", "source_url", "url", "file_path"),
        _HIDDEN: ("_node_type", "document_id", "doc_id", "ref_doc_id"),
    },
    "haystack": {
        "text": ("content",),
        METADATA: ("meta",),
        **{ours: tuple(f"meta.{name}" for name in theirs) for ours, theirs in _HAYSTACK.items()},
        "chunk_id": ("id",),
    },
}
"""Fields of records by program: names that differ from the default ones, as paths."""
FLAT_PRESETS: Mapping[str, Mapping[str, Sequence[str]]] = {
    **PRESETS,
    "langchain": {"text": ("text",), "document_id": _BY_SOURCE},
    "haystack": {
        "text": ("content",),
        **_HAYSTACK,
        _MARKS: ("source_id", "split_id"),
    },
}
"""The same for a store whose records contain no objects."""
TABLE_PRESETS: Mapping[str, Mapping[str, Sequence[str]]] = {
    "default": {},
    "langchain": {
        "text": ("document",),
        "document_id": _BY_SOURCE,
        _HIDDEN: ("collection_id",),
        _MARKS: ("cmetadata",),
    },
    "langchain_table": {
        "text": ("content",),
        "document_id": _BY_SOURCE,
        _HIDDEN: ("langchain_id",),
        _MARKS: ("langchain_metadata",),
    },
    "llamaindex": {
        **PRESETS["llamaindex"],
        "document_id": ("ref_doc_id", *PRESETS["llamaindex"]["document_id"]),
        "chunk_id": ("node_id",),
        _HIDDEN: (*PRESETS["llamaindex"][_HIDDEN], "node_id"),
        _MARKS: ("metadata_", "node_id"),
    },
    "haystack": {
        "text": ("content",),
        **_HAYSTACK,
        _HIDDEN: ("blob_meta", "blob_mime_type"),
        _MARKS: ("meta", "blob_mime_type"),
    },
}
"""The same for tables, whose JSON column of metadata is a part of the record; LangChain has two kinds of tables."""

OF_THE_RECORD = frozenset({"id", "document_id"})
"""Fields that default to the record's own id."""
WRITTEN_AS_TEXT = frozenset({"document_id", "title", "source", "parent_id", "embedding_model"})
"""Fields that are read as text; a number in a record becomes its digits."""
_AS_STORED = frozenset({"timestamp", "chunk_id"})
"""Fields that filters see as the record has them."""
_NAMES_IN_PAYLOADS = {
    "source": "source_url",
    "chunk_id": "chunk_id",
    "chunk_index": "chunk_index",
    "total_chunks": "total_chunks",
}
_CONSEQUENCES = {
    "document_id": "a document ID, so each record is a separate document. If a field names the document, map it: "
    'document_id = "..."',
    "chunk_index": "positions in the document, so there are no neighbors, and chunks of a document are in no order. If "
    'a field counts the chunks, map it: chunk_index = "..."',
    "source": 'a source, so results are cited by ID. If a field has the path or URL, map it: source = "..."',
}
"""For each field that records may lack: what is missing, and the consequence for a user."""
_MOST_POSITIONS = 100
_DIGITS = 10


@dataclass(frozen=True, slots=True)
class FieldMapping:
    """Which fields of a record hold what.

    Attributes:
        section: The settings that contain it, for messages.
        paths: Where a record may have each field of a chunk; the first present one counts, also for filters.
        metadata: The path to the object with the chunk's metadata; empty for the record itself.
        json: Fields with JSON as text.
        hidden: Fields that are not metadata.
        marks: Fields that a record of the preset's program has.
        mapped: Fields that do not have their default names.
    """

    section: str
    paths: Mapping[str, tuple[FieldPath, ...]]
    metadata: FieldPath
    json: frozenset[str]
    hidden: frozenset[str]
    marks: frozenset[str]
    mapped: frozenset[str]

    @classmethod
    def load(
        cls,
        fields: Mapping[str, str] | str | None,
        section: str,
        *,
        is_flat: bool = False,
        presets: Mapping[str, Mapping[str, Sequence[str]]] | None = None,
    ) -> FieldMapping:
        """Return the mapping that settings describe.

        Args:
            fields: The name of a preset, or fields of records by the chunk's fields. Default: the preset ``default``.
            section: The settings that contain it, for messages.
            is_flat: Whether records contain no objects, so that a dot is part of a name.
            presets: Default: :data:`PRESETS`, or :data:`FLAT_PRESETS`.

        Raises:
            InvalidParameterError: There is no such preset, or a key that cannot be mapped.
        """
        given = {PRESET: fields} if isinstance(fields, str) else dict(fields or {})
        if given.get("text") == _NODE:  # how version 0.1 mapped LlamaIndex's records
            del given["text"]
            given[PRESET] = "llamaindex"
        presets = presets or (FLAT_PRESETS if is_flat else PRESETS)
        preset = given.pop(PRESET, "default")
        if preset not in presets:
            msg = f"{section}: there is no preset {preset!r:.80}; choose from {', '.join(presets)}"
            raise InvalidParameterError(msg)
        if unknown := sorted(set(given) - MAPPED):
            msg = f"{section}: {', '.join(unknown)} cannot be mapped; choose from {', '.join(sorted(MAPPED))}"
            raise InvalidParameterError(msg)
        names = {**presets[preset], **{ours: (theirs,) for ours, theirs in given.items()}}
        as_json = frozenset(names.pop(JSON_FIELD, ()))
        hidden = frozenset(names.pop(_HIDDEN, ())) | as_json
        marks = frozenset(names.pop(_MARKS, as_json))

        def path(name: str) -> FieldPath:
            return (name,) if is_flat and name.partition(".")[0] not in as_json else tuple(name.split("."))

        metadata = next(map(path, names.pop(METADATA, ())), ())
        paths = {ours: tuple((*metadata, name) for name in default) for ours, default in _DEFAULT.items()}
        paths |= {ours: tuple(map(path, theirs)) for ours, theirs in names.items()}
        return cls(section, paths, metadata, as_json, hidden, marks.union(metadata[:1]), frozenset(names))

    @property
    def id(self) -> str:
        """Names it: records are read alike by mappings of one id."""
        return repr((sorted(self.paths.items()), self.metadata, sorted(self.json), sorted(self.hidden)))

    def places(self, name: str) -> tuple[FieldPath, ...]:
        """Return where a record may have a field that a filter names; the first present place counts."""
        return self.paths[name] if name in _HOW_TO_READ and name in self.paths else ((*self.metadata, name),)

    def visible(self, record_id: str, record: Mapping[str, Any]) -> dict[str, JSON]:
        """Return the fields of a record that filters see: its metadata, and the chunk's fields under our names.

        A number that is read as text has both values.
        """
        seen: dict[str, JSON] = {"id": record_id, **self._metadata(record)}
        record = self._parsed(record)
        for ours, value in self._read(record_id, record).items():
            if value is None and ours not in self.mapped:
                continue
            stored = self._stored(record, ours)
            if ours in _AS_STORED:
                seen[ours] = stored
                continue
            is_both = ours in WRITTEN_AS_TEXT and isinstance(stored, (int, float))
            seen[ours] = (value, stored) if is_both else value
        return seen

    def document_id(self, record: Mapping[str, Any]) -> str | None:
        """Return the document ID in a record; ``None`` if the record is a separate document."""
        return _as_text(self._stored(self._parsed(record), "document_id"))

    def lacks(self, records: Sequence[Mapping[str, Any]]) -> list[str]:
        """Return what some records lack under this mapping, each with what that means for a user."""
        parsed = [self._parsed(record) for record in records]
        found: list[str] = []
        if count := sum(self._text(record) is None for record in parsed):
            found.append(f"the text of {count} of {len(parsed)} sampled records. A search leaves such records out.")
        for ours, consequence in _CONSEQUENCES.items():
            if all(_HOW_TO_READ[ours](self._stored(record, ours)) is None for record in parsed):
                found.append(consequence)
        return found

    def check(self, records: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
        """Raise :class:`IndexFormatError` if none of some records, given by their ids, has a text."""
        unreadable: list[tuple[str, Mapping[str, Any]]] = []
        for record_id, record in records:
            if self._text(self._parsed(record)) is not None:
                return
            unreadable.append((record_id, record))
        if unreadable:
            raise self._unreadable(*unreadable[0])

    def chunk(self, record_id: str, record: Mapping[str, Any]) -> Chunk:
        """Return a record as a chunk.

        Without a document id, the record's own id is taken. A field that the record lacks is absent, and named in
        ``missing_fields`` if the specification's payload has it.

        Raises:
            IndexFormatError: No mapped field holds its text.
        """
        parsed = self._parsed(record)
        text = self._text(parsed)
        if text is None:
            raise self._unreadable(record_id, record)
        read = self._read(record_id, parsed)
        texts = {path[-1] for path in self.paths["text"] if path[:-1] == self.metadata and _at(record, path) == text}
        own = {name: value for name, value in self._metadata(record).items() if name not in self.hidden | texts}
        if read["chunk_id"] is not None:
            own["chunk_id"] = read["chunk_id"]
        pages = read["page"]
        return Chunk(
            id=record_id,
            document_id=read["document_id"],
            text=text,
            chunk_index=read["chunk_index"] or 0,
            total_chunks=1 if read["total_chunks"] is None else read["total_chunks"],
            page_span=PageSpan(pages[0], pages[-1]) if pages else None,
            section_path=read["section"] or (),
            parent_id=read["parent_id"],
            title=read["title"],
            source=read["source"],
            content_hash=read["content_hash"] or "",
            timestamp=read["timestamp"],
            embedding_model=read["embedding_model"],
            metadata=own,
            missing_fields=tuple(theirs for ours, theirs in _NAMES_IN_PAYLOADS.items() if read[ours] is None),
        )

    def _unreadable(self, record_id: str, record: Mapping[str, Any]) -> IndexFormatError:
        names = [repr(".".join(path)) for path in self.paths["text"]]
        places = " or ".join(filter(None, (", ".join(names[:-1]), names[-1])))
        store = self.section.rpartition(".")[0]
        msg = (
            f"record {record_id!r:.80} has no text in {places}; its fields are {', '.join(sorted(record)) or 'none'}. "
            f"Another program wrote it. Name the preset for that program ({', '.join(PRESETS)}), such as "
            f'[{store}] fields = "langchain", or the field with the text: [{self.section}] text = "...". '
            "`retrieval doctor` proposes the line"
        )
        return IndexFormatError(msg)

    def _parsed(self, record: Mapping[str, Any]) -> Mapping[str, Any]:
        return {**record, **{name: _as_object(record.get(name)) for name in self.json}} if self.json else record

    def _metadata(self, record: Mapping[str, Any]) -> Mapping[str, Any]:
        found = _at(self._parsed(record), self.metadata) if self.metadata else record
        return cast("Mapping[str, Any]", found) if isinstance(found, Mapping) else {}

    def _text(self, record: Mapping[str, Any]) -> str | None:
        """Return the first text that is not blank; a blank one where there is no other."""
        texts = [text for path in self.paths["text"] if isinstance(text := _at(record, path), str)]
        return next(filter(None, texts), texts[0] if texts else None)

    def _read(self, record_id: str, record: Mapping[str, Any]) -> dict[str, Any]:
        """Return a chunk's fields, but for its text, as the record has them; ``None`` for absent ones."""
        read = {ours: how(self._stored(record, ours)) for ours, how in _HOW_TO_READ.items()}
        read["document_id"] = read["document_id"] or record_id
        return read

    def _stored(self, record: Mapping[str, Any], ours: str) -> Any:
        found = (_at(record, path) for path in self.paths.get(ours, ()))
        return next((value for value in found if value is not None), None)


class ForeignStore(StoreBase):
    """The base of stores over a service, which also read the records that another program wrote there.

    Args:
        fields: The name of a preset, or fields of records by the chunk's fields. Default: the preset ``default``.
        rest: As of :class:`StoreBase`.

    Raises:
        InvalidParameterError: As of :class:`StoreBase` and :meth:`FieldMapping.load`.
    """

    kind: ClassVar[str]
    """Its name in the settings."""
    is_flat: ClassVar[bool] = False
    """Whether records contain no objects, so that a dot is part of a name."""
    presets: ClassVar[Mapping[str, Mapping[str, Sequence[str]]] | None] = None
    """Default: :data:`PRESETS`, or :data:`FLAT_PRESETS`."""
    fields_by_default: ClassVar[str | None] = None
    """The value of ``fields`` to propose for records that are read without it."""

    def __init__(self, location: str, *, fields: Mapping[str, str] | str | None, **rest: Any) -> None:
        super().__init__(location, **rest)
        self._vector_size = self._identity.dimension
        self._given_fields = fields
        self._mapping = FieldMapping.load(
            fields, f"store.{self.kind}.fields", is_flat=self.is_flat, presets=self.presets
        )

    async def probe(self) -> str:
        """Describe the index and search it once; if another program filled it, show a record and propose a mapping."""
        try:
            return await super().probe() + await self._advice()
        except IndexFormatError as error:
            records = await self.sample_records()
            is_read = any(_reads(self._mapping, record) for record in records)
            if records:
                reason = str(error) if is_read else "the mapped fields of its records have no text"
                raise IndexFormatError(reason + await self._advice()) from error
            raise

    async def _advice(self) -> str:
        """Return a record of another program, what it lacks, and the lines that read it; blank for our own index."""
        records = await self.sample_records()
        if not records:
            return ""
        how: Any = {"is_flat": self.is_flat, "presets": self.presets}
        fields = propose_fields(records, self.kind, self._given_fields, **how)
        if fields is None and not self._given_fields:
            fields = self.fields_by_default
        mapping = FieldMapping.load(fields or self._given_fields, self._mapping.section, **how)
        found, further = await self._vector_advice()
        parts = [". Another program wrote them.", f"A record: {show_record(records[0])}"]
        parts += [f"Missing: {lack}" for lack in (*mapping.lacks(records), *found)]
        if lines := ([] if fields is None else [f"fields = {_as_toml(fields)}"]) + further:
            parts += ["Put this into your configuration:", f"[store.{self.kind}]", *lines]
        return "\n".join(parts)

    async def _vector_advice(self) -> tuple[list[str], list[str]]:
        """Return what is not read of a collection's vectors, and lines of settings to choose one."""
        return [], []


_SECRET = re.compile(r"(?i)api_?key|private_?key|token|secret|passw|pwd|credential")
_SHOWN_CHARACTERS = 60
_SHOWN_ITEMS = 3
_SHOWN_FIELDS = 20


def show_record(record: Mapping[str, Any]) -> str:
    """Return a record as JSON on one line, with its values shortened and without anything that looks like a secret."""
    return json.dumps(_shown(record), ensure_ascii=False, default=str)


def _shown(value: Any, name: str = "") -> Any:
    if _SECRET.search(name) and value is not None:  # an object or a number may be a password as well
        return "[secret]"
    if isinstance(value, str):
        # An ID may be a hash, which looks like a key.
        line = " ".join((value if name == "id" or name.endswith("_id") else without_secrets(value)).split())
        return line if len(line) <= _SHOWN_CHARACTERS else f"{line[:_SHOWN_CHARACTERS]}…"
    if isinstance(value, Mapping):
        items = list(cast("Mapping[str, Any]", value).items())
        more = {"…": f"{len(items) - _SHOWN_FIELDS} more"} if len(items) > _SHOWN_FIELDS else {}
        return {key: _shown(one, key) for key, one in items[:_SHOWN_FIELDS]} | more
    if isinstance(value, (list, tuple)):
        items = cast("Sequence[Any]", value)
        return [_shown(one, name) for one in items[:_SHOWN_ITEMS]] + ["…"] * (len(items) > _SHOWN_ITEMS)
    return value


def propose_fields(
    records: Sequence[Mapping[str, Any]],
    kind: str,
    fields: Mapping[str, str] | str | None,
    *,
    is_flat: bool,
    presets: Mapping[str, Mapping[str, Sequence[str]]] | None = None,
) -> Mapping[str, str] | str | None:
    """Return the value of the setting ``fields`` to put into the configuration; ``None`` if the present one is right.

    Args:
        records: Some records of the collection.
        kind: The kind of store.
        fields: The present mapping. Default: the preset ``default``, which gives way to that of a framework.
    """
    section = f"store.{kind}.fields"
    present = FieldMapping.load(fields, section, is_flat=is_flat, presets=presets)
    is_read = any(_reads(present, record) for record in records)
    if not records or (fields and is_read):
        return None
    for preset in presets or PRESETS:
        mapping = FieldMapping.load(preset, section, is_flat=is_flat, presets=presets)
        if mapping.marks and any(mapping.marks <= record.keys() and _reads(mapping, record) for record in records):
            return preset
    if not is_read:
        return _by_name(records)
    # LangChain marks its records only in objects. Its preset also makes documents of records with a source.
    langchain = FieldMapping.load("langchain", section, is_flat=is_flat, presets=presets)
    by_source = any(_reads(langchain, record) and langchain.document_id(record) for record in records)
    return "langchain" if by_source and not any(map(present.document_id, records)) else None


def _reads(mapping: FieldMapping, record: Mapping[str, Any]) -> bool:
    try:
        mapping.check([("", record)])
    except IndexFormatError:
        return False
    return True


def _by_name(records: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return a mapping of the field with most text, and of the object beside it if there is one."""
    lengths: dict[str, int] = {}
    objects: dict[str, None] = {}
    for record in records:
        for name, value in record.items():
            if isinstance(value, str):
                lengths[name] = lengths.get(name, 0) + len(value)
            elif isinstance(value, Mapping):
                objects[name] = None
    names = {"text": max(lengths, key=lengths.__getitem__, default="...")}
    if len(objects) == 1:
        names["metadata"] = next(iter(objects))
    return names


def _as_toml(fields: Mapping[str, str] | str) -> str:
    if isinstance(fields, str):
        return json.dumps(fields)
    return (
        "{" + ", ".join(f"{ours} = {json.dumps(theirs, ensure_ascii=False)}" for ours, theirs in fields.items()) + "}"
    )


def positions_as_text(first: int, last: int) -> list[str] | None:
    """Return a range of positions as text, as some programs write them; ``None`` if there are too many to list."""
    return None if last - first > _MOST_POSITIONS else [str(number) for number in range(first, last + 1)]


def is_in_ranges(chunk: Chunk, ranges: Sequence[ChunkRange]) -> bool:
    """Whether a chunk is in one of some ranges."""
    return any(
        chunk.document_id == part.document_id and part.first <= chunk.chunk_index <= part.last for part in ranges
    )


def _at(record: Any, path: FieldPath) -> Any:
    for name in path:
        record = cast("Mapping[str, Any]", record).get(name) if isinstance(record, Mapping) else None
    return record


def _as_object(text: Any) -> Any:
    try:
        return json.loads(text, parse_constant=lambda _: None) if isinstance(text, str) else text
    except (ValueError, RecursionError):
        return None


def _as_text(value: Any) -> str | None:
    if isinstance(value, str):
        return value or None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _as_path(value: Any) -> tuple[str, ...] | None:
    parts = cast("list[Any]", value) if isinstance(value, list) else [value]
    return tuple(part for part in parts if isinstance(part, str)) or None


def _as_pages(value: Any) -> tuple[int, ...] | None:
    page = _as_position(value)
    return None if page is None or page < 0 else (page,)


def _as_moment(value: Any) -> datetime | None:
    try:
        return datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None


def _as_id(value: Any) -> str | int | None:
    return value or None if isinstance(value, str) else _as_position(value)


def _as_position(value: Any) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < _DIGITS:
        return int(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not float(value).is_integer():
        return None
    return int(value)


_HOW_TO_READ: dict[str, Callable[[Any], Any]] = {
    "document_id": _as_text,
    "chunk_index": _as_position,
    "total_chunks": _as_position,
    "title": _as_text,
    "source": _as_text,
    "section": _as_path,
    "page": _as_pages,
    "parent_id": _as_text,
    "content_hash": _as_text,
    "timestamp": _as_moment,
    "embedding_model": _as_text,
    "chunk_id": _as_id,
}
MAPPED = frozenset({"text", METADATA, JSON_FIELD, *_HOW_TO_READ})
"""Fields of a chunk that a record's field of another name can be mapped to."""

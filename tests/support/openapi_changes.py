"""What a new OpenAPI document breaks for the clients of an old one."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    Schema = Mapping[str, Any]

METHODS = ("get", "put", "post", "delete", "patch")
LOWER = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
UPPER = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")


def broken(old: Schema, new: Schema) -> list[str]:
    """Return what is removed, retyped, made required or narrowed, each with its place."""
    return list(_Comparison(old, new).all())


class _Comparison:
    def __init__(self, old: Schema, new: Schema) -> None:
        self._old = old
        self._new = new
        self._seen: set[tuple[str, str]] = set()

    def all(self) -> Iterator[str]:
        for path, operations in self._old["paths"].items():
            for method in METHODS:
                if method not in operations:
                    continue
                place = f"{method.upper()} {path}"
                if method not in self._new["paths"].get(path, {}):
                    yield f"{place} is removed"
                else:
                    yield from self._operation(operations[method], self._new["paths"][path][method], place)

    def _operation(self, old: Schema, new: Schema, place: str) -> Iterator[str]:
        parameters = {(each["in"], each["name"]): each for each in new.get("parameters", ())}
        known = {(each["in"], each["name"]): each for each in old.get("parameters", ())}
        for key, each in known.items():
            if key not in parameters:
                yield f"{place}: the parameter {key[1]} is removed"
            else:
                yield from self._schema(each["schema"], parameters[key]["schema"], f"{place}: {key[1]}")
        for key, each in parameters.items():
            if each.get("required") and not known.get(key, {}).get("required"):
                yield f"{place}: the parameter {key[1]} is made required"
        yield from self._content(old.get("requestBody", {}), new.get("requestBody", {}), f"{place}: request")
        for status, answer in old["responses"].items():
            if status not in new["responses"]:
                yield f"{place}: the answer {status} is removed"
            else:
                yield from self._content(answer, new["responses"][status], f"{place}: {status}")

    def _content(self, old: Schema, new: Schema, place: str) -> Iterator[str]:
        for kind, media in old.get("content", {}).items():
            if kind not in new.get("content", {}):
                yield f"{place}: {kind} is removed"
            else:
                yield from self._schema(media["schema"], new["content"][kind]["schema"], place)

    def _schema(self, old: Schema, new: Schema, place: str) -> Iterator[str]:
        pair = (old.get("$ref", ""), new.get("$ref", ""))
        if all(pair):
            if pair in self._seen:
                return
            self._seen.add(pair)
        old, new = self.resolved(old, self._old), self.resolved(new, self._new)
        if missing := _types(old, self._old) - _types(new, self._new):
            yield f"{place} is retyped: no {', '.join(sorted(missing))} any more"
        yield from self._fields(old, new, place)
        yield from _narrowed(old, new, place)
        if isinstance(old.get("items"), dict) and isinstance(new.get("items"), dict):
            yield from self._schema(old["items"], new["items"], f"{place}[]")
        for one, other in zip(old.get("anyOf", ()), new.get("anyOf", ()), strict=False):
            yield from self._schema(one, other, place)

    def _fields(self, old: Schema, new: Schema, place: str) -> Iterator[str]:
        for name, schema in old.get("properties", {}).items():
            if name not in new.get("properties", {}):
                yield f"{place}.{name} is removed"
            else:
                yield from self._schema(schema, new["properties"][name], f"{place}.{name}")
        for name in new.get("required", ()):
            if name not in old.get("required", ()):
                yield f"{place}.{name} is made required"

    @staticmethod
    def resolved(schema: Schema, document: Schema) -> Schema:
        while "$ref" in schema:
            schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
        return schema


def _types(schema: Schema, document: Schema) -> set[str]:
    schema = _Comparison.resolved(schema, document)
    if "anyOf" in schema:
        return {kind for part in schema["anyOf"] for kind in _types(part, document)}
    kind: str | list[str] | None = schema.get("type")
    return {kind} if isinstance(kind, str) else set(kind or ())


def _narrowed(old: Schema, new: Schema, place: str) -> Iterator[str]:
    for key in LOWER:
        if new.get(key, -inf) > max(old.get(key, -inf), 0 if key.startswith("min") and key != "minimum" else -inf):
            yield f"{place} is narrowed: {key} {new[key]}"
    for key in UPPER:
        if new.get(key, inf) < old.get(key, inf):
            yield f"{place} is narrowed: {key} {new[key]}"
    if "pattern" in new and new["pattern"] != old.get("pattern"):
        yield f"{place} is narrowed: pattern {new['pattern']}"
    values = _values(old)
    if "enum" in new or "const" in new:
        gone = values - _values(new) if values else {"any other value"}
        if gone:
            yield f"{place} is narrowed: {', '.join(sorted(gone))} is no value any more"
    if new.get("additionalProperties") is False and old.get("additionalProperties") is not False and "type" in old:
        yield f"{place} is narrowed: no other fields any more"


def _values(schema: Schema) -> set[str]:
    return {str(schema["const"])} if "const" in schema else set(map(str, schema.get("enum", ())))

"""The bases of all settings: sections of the configuration, and tables of adapters."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, cast

from pydantic import AfterValidator, AliasChoices, BaseModel, BeforeValidator, ConfigDict, SecretStr, field_validator

from retrieval_core.config.problems import checked_host, host_of

HIDDEN = "**********"
"""The text in place of a secret, as in Pydantic."""
FROM_A_DUMP = "this comes from a dump of the settings, which contains no secrets; set the secret itself"


class Settings(BaseModel):
    """A section of the configuration."""

    # What was given is told by load_config, which knows what must not show.
    model_config = ConfigDict(
        extra="forbid", frozen=True, validate_default=True, hide_input_in_errors=True, allow_inf_nan=False
    )

    @field_validator("*")
    @classmethod
    def _is_not_what_stands_for_a_secret(cls, value: Any) -> Any:
        given = value.get_secret_value() if isinstance(value, SecretStr) else value
        values = cast("dict[str, Any]", given).values() if isinstance(given, dict) else (given,)
        if any(isinstance(one, str) and one == HIDDEN for one in values):
            raise ValueError(FROM_A_DUMP)
        return value


class AdapterSettings(Settings):
    """Base class for the settings of an adapter, which are its table, such as ``[store.qdrant]``.

    Declare a subclass as ``Settings`` of the adapter's class. To read a field from an environment variable too,
    add an alias: ``Field(default=None, validation_alias=AliasChoices("api_key", "OPENAI_API_KEY"))``.
    """

    required: ClassVar[dict[str, str]] = {}
    """Required settings by name. The value is another setting that can replace it, or an example."""

    def missing(self) -> tuple[str, ...]:
        """Return the required settings that are not set and have no replacement that is set."""
        return tuple(
            name
            for name, other in self.required.items()
            if is_blank(getattr(self, name)) and is_blank(getattr(self, other, None))
        )

    @classmethod
    def variables(cls) -> dict[str, str]:
        """Return the environment variables of the vendor, by setting."""
        return {
            name: str(field.validation_alias.choices[1])
            for name, field in cls.model_fields.items()
            if isinstance(field.validation_alias, AliasChoices)
        }


def is_blank(value: object) -> bool:
    """Return whether a setting is not set, or blank text as an empty variable of the environment gives it."""
    text = value.get_secret_value() if isinstance(value, SecretStr) else value
    return text is None or (isinstance(text, str) and not text.strip())


def _address(value: str | None) -> str | None:
    """Check an address of a server; blank text, as an empty variable of the environment gives it, is none."""
    address = (value or "").strip()
    if not address:
        return None
    host_of(address)
    return address


def _host(value: str | None) -> str | None:
    return checked_host(value) if value else None


File = Annotated[Path | None, BeforeValidator(lambda value: None if value == "" else value)]
"""A file or folder; blank text, as an empty variable of the environment gives it, is none."""
Address = Annotated[str | None, AfterValidator(_address)]
"""Address of a server, without user name, password, query and fragment."""
Host = Annotated[str | None, AfterValidator(_host)]
"""Address of an index, with a scheme or without."""


def _as_mapping(fields: object) -> object:
    """Return the name of a preset as a mapping."""
    return {"preset": fields} if isinstance(fields, str) else fields


FieldNames = Annotated[dict[str, str], BeforeValidator(_as_mapping)]
"""Names that another program gave to the fields of its records, or the name of a preset."""


def copy_tree(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tree whose tables may be changed without changing the given ones."""
    return {
        name: copy_tree(cast("Mapping[str, Any]", value)) if isinstance(value, Mapping) else value
        for name, value in tree.items()
    }


def merge_into(tree: dict[str, Any], other: Mapping[str, Any]) -> None:
    """Lay another tree over one; if both have a table, their keys are joined."""
    for key, value in other.items():
        if isinstance(value, Mapping):
            if not isinstance(tree.get(key), dict):
                tree[key] = {}
            merge_into(tree[key], cast("Mapping[str, Any]", value))
        else:
            tree[key] = value


def nested_tree(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings by dotted keys as a tree. A value may be a tree itself."""
    tree: dict[str, Any] = {}
    for key, value in settings.items():
        for part in reversed(key.split(".")):
            value = {part: value}  # noqa: PLW2901 - it is wrapped, one table at a time
        merge_into(tree, value)
    return tree


def value_at(tree: Mapping[str, Any], key: str) -> Any:
    """Return the value at a dotted key; ``None`` if there is none."""
    value: Any = tree
    for part in key.split("."):
        if not isinstance(value, Mapping):
            return None
        value = cast("Mapping[str, Any]", value).get(part)
    return value

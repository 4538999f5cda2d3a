"""The bases of all settings: sections of the configuration, and tables of adapters."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar, cast

from pydantic import AfterValidator, AliasChoices, BaseModel, BeforeValidator, ConfigDict, SecretStr, field_validator

from retrieval_core.config.addresses import checked_host, host_of

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

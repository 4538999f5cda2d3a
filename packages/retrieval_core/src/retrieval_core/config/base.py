"""The bases of all settings, messages about them, and secrets that messages must not show."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, cast
from urllib.parse import urlsplit

from pydantic import AfterValidator, AliasChoices, BaseModel, BeforeValidator, ConfigDict, SecretStr, field_validator

from retrieval_core.errors import ConfigurationError

if TYPE_CHECKING:
    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

_CREDENTIALS = re.compile(r"(?<=://)[^\s'\"<>]*@")
_SECRET_NAME = "(?i:key|token|secret|pass|pwd|sig|auth|cred)"  # noqa: S105 - no password
_PARAMETER = re.compile(rf"([?&][^=&\s]*{_SECRET_NAME}[^=&\s]*=)[^&\s'\"<>#]+")
_RUN = re.compile(r"[A-Za-z0-9_+=~-]{12,}")
_BEGINNING = re.compile(r"(?i)(sk|pk|rk|pcsk|gsk|hf|ghp|gho|glpat|github_pat|xox[a-z]|akia|aiza)[-_a-z0-9]")
"""How the keys of many services begin."""
_LONG_PART, _LONGEST_NAME = 8, 15
"""Characters from which on what mixes digits with letters of both cases, or of one, is taken for a key."""
SECRETS = frozenset({"api_key", "url", "base_url", "host", "custom"})
"""Names of settings whose values, and whatever is in them, no message may show."""
NOT_SHOWN = object()
"""The input of a problem whose message says all, or whose value may be a secret."""
_LIST, _TABLE = 'Input should be a list such as ["a", "b"]', 'Input should be a table such as {"a": 1}'
_EXPECTED = {
    **dict.fromkeys(("tuple_type", "list_type"), _LIST),
    **dict.fromkeys(("dict_type", "mapping_type"), _TABLE),
    "finite_number": "Input should be a finite number, or null for no limit",
}
"""Messages about invalid values, by Pydantic's type of error."""


def host_of(url: str) -> str:
    """Return the host of an HTTP address, with the port if it is not the scheme's default.

    Raises:
        ValueError: It is no such address, or has parts that do not belong there. The message shows none of it.
    """
    if "@" in url:  # in a path too: a password with a slash that is not encoded ends there
        msg = "contains a user name or a password, which messages would show; use api_key"
        raise ValueError(msg)
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        parts, host, port = None, None, None
    if parts is None or not host or parts.scheme not in {"http", "https"}:
        msg = "must be an address such as http://localhost:11434/v1"
        raise ValueError(msg) from None
    if parts.query or parts.fragment:
        msg = "contains a query (?…) or a fragment (#…); give only the base address of the API"
        raise ValueError(msg)
    return f"{host}:{port}" if port else host


def checked_host(host: str) -> str:
    """Return the address of an index, with a scheme or without.

    Raises:
        ValueError: It contains more than the address. The message shows none of it.
    """
    if any(sign in host for sign in "@?#"):
        msg = "must be only the address of the index, without user name, password or query"
        raise ValueError(msg)
    return host


def names_a_secret(name: str) -> bool:
    """Return whether the value of an option or of a parameter of an address is secret."""
    return re.search(_SECRET_NAME, name) is not None


def without_credentials(text: str) -> str:
    """Return text in which addresses show neither user nor password."""
    return _CREDENTIALS.sub("[secret]@", text)


def without_secrets(text: str) -> str:
    """Return text without anything that looks like a secret: credentials in addresses, and strings that look like keys.

    Use it for messages. Known secrets are never shown; this function hides those in unexpected places.
    """
    text = _PARAMETER.sub(r"\1[secret]", without_credentials(text))
    return _RUN.sub(lambda run: "[secret]" if _looks_like_a_key(run[0]) else run[0], text)


def _looks_like_a_key(run: str) -> bool:
    """Whether a run without blanks is no name: it begins as keys do, or a part of it mixes digits and letters long."""
    begins_so = _BEGINNING.match(run.lstrip("-")) is not None
    return (begins_so and _has_both(run)) or any(map(_is_mixed, re.split("[-_+=~]", run)))


def _has_both(part: str) -> bool:
    return any(map(str.isdigit, part)) and any(map(str.isalpha, part))


def _is_mixed(part: str) -> bool:
    if not _has_both(part):
        return False
    has_both_cases = part != part.lower() and part != part.upper()
    return len(part) >= _LONG_PART if has_both_cases else len(part) > _LONGEST_NAME


def problems_of(
    error: ValidationError,
    *,
    name: Callable[[str], str] = str,
    meant: Callable[[tuple[int | str, ...]], Sequence[str]] | None = None,
    expected: Callable[[ErrorDetails], str | None] = lambda _: None,
    secrets: Collection[str] | None = SECRETS,
    noun: str = "setting",
) -> list[str]:
    """Return a line for each thing that Pydantic found wrong.

    Args:
        error: What it says.
        name: Returns what a setting with a dotted key is called where it was given.
        meant: Returns the names that may be meant by an unknown one, the best first, from where it stands.
        expected: Returns what a value must be, in place of Pydantic's words.
        secrets: Names of settings, and of tables of them, whose values are not shown; ``None`` for all.
        noun: What an unknown name is.
    """
    problems: list[str] = []
    for detail in error.errors(include_url=False):
        path = tuple(map(str, detail["loc"]))
        line = f"{name('.'.join(path))}: "
        if detail["type"] == "missing":
            line += "not set"
        elif detail["type"] == "extra_forbidden":
            near = meant(detail["loc"]) if meant is not None else ()
            line += f"unknown {noun}" + (f"; did you mean {near[0]}?" if near else "")
        else:
            usual = _EXPECTED.get(detail["type"], detail["msg"].removeprefix("Value error, "))
            line += expected(detail) or usual
            is_secret = (
                secrets is None
                or not set(path).isdisjoint(secrets)
                or any(part.endswith("_API_KEY") for part in path)  # a vendor's variable in place of a setting
                or detail["type"].endswith("model_type")
                or detail["input"] is NOT_SHOWN
            )
            # What is wrong with a whole section says itself which setting it is.
            of_a_section = detail["type"] == "value_error" and isinstance(detail["input"], Mapping)
            line += "" if is_secret or of_a_section else f", got {shown(detail['input'])}"
        problems.append(line)
    return problems


def refusal(
    what: str, problems: Sequence[str], missing_keys: Sequence[str] = (), *, origin: str = "", advice: str = ""
) -> ConfigurationError:
    """Return an error that names what has problems, such as ``the configuration has``, and lists each in a line.

    Raise it outside the handler of Pydantic's error, so that no traceback leads to what was given.
    """
    count = f"{len(problems)} problem{'s' * (len(problems) > 1)}"
    msg = f"{what} {count}{origin}:\n  " + "\n  ".join(problems) + advice
    return ConfigurationError(msg, missing_keys=missing_keys, problems=problems)


def shown(value: Any) -> str:
    """Return a value as a message may show it; of a table or a list only its kind, as it may contain secrets."""
    if isinstance(value, (Mapping, list, tuple, set)):
        return "a table" if isinstance(value, Mapping) else "a list"
    return f"{without_secrets(repr(value)):.80}"


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

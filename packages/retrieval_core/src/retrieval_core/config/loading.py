"""Load the settings from all sources, and report every problem at once."""

from __future__ import annotations

import json
import tomllib
import warnings as python_warnings
from contextlib import suppress
from difflib import get_close_matches
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from pydantic import BaseModel, ValidationError

from retrieval_core.config.adapters import PortConfig
from retrieval_core.config.base import (
    AdapterSettings,
    is_blank,
    merge_into,
    nested_tree,
    problems_of,
    refusal,
    without_secrets,
)
from retrieval_core.config.kinds import PORTS, TRANSFORMER, Port, table_of
from retrieval_core.config.model import TOO_DEEP, Provenance, RetrievalConfig
from retrieval_core.config.moved import lay_over, old_sections, rename_moved, replace_switches
from retrieval_core.config.remembered import inner_model, keys_of
from retrieval_core.errors import ConfigurationError, SettingRenamedWarning

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

ENVIRONMENT_PREFIX = "RETRIEVAL_"


LONGEST_LINE = 2000
"""Characters of a problem or warning that are shown."""
ENVIRONMENT = "environment"
ARGUMENTS = "arguments"


class Layer(NamedTuple):
    """One source of settings."""

    name: str
    tree: Mapping[str, Any]


def load_config(
    file: str | Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
) -> RetrievalConfig:
    """Load the settings from a file or preset, overrides and the environment.

    If a kind is not built in, the entry points of the installed packages are read once per process, which takes some
    milliseconds.

    Args:
        file: A TOML file, or the name of a preset.
        overrides: Settings that override all other sources: a tree, or dotted keys such as ``{"search.top_k": 5}``.
        environment: For instance ``os.environ``; ``None`` leaves the environment out.

    Raises:
        ConfigurationError: Something is wrong; ``problems`` has one line for each thing, beginning with its key.
    """
    return load_over(None, file, overrides or {}, environment or {})


def load_over(
    layers: Sequence[Layer] | None,
    file: str | Path | None,
    overrides: Mapping[str, Any],
    environment: Mapping[str, str],
    warnings: tuple[str, ...] = (),
) -> RetrievalConfig:
    """Read the settings from all their sources, as :func:`load_config` does, over weaker ones.

    Args:
        layers: The weaker sources, weakest first. If they are given, the result says where its settings come from.
        warnings: Go with the result then.
    """
    if file is not None and not isinstance(file, (str, PathLike)):  # pyright: ignore[reportUnnecessaryIsInstance]
        msg = (
            f"the configuration must be a TOML file or a preset's name, got a value of type {type(file).__name__}; "
            "for settings call load_config(overrides=…)"
        )
        raise ConfigurationError(msg)
    problems: list[str] = []
    renamed: list[str] = []
    config: RetrievalConfig | None = None
    sources: list[Layer] = []
    try:
        given = _given_layers(file, overrides, environment, problems)
        tree, sources = _merged((*(layers or ()), *given), problems, renamed)
        _add_vendor_variables(tree, environment)
        config = RetrievalConfig.model_validate(tree)
    except ValidationError as error:
        problems += problems_of(error, meant=_meant)
    except RecursionError:
        problems.append(TOO_DEEP)
    for warning in renamed:
        python_warnings.warn(_shortened(without_secrets(warning)), SettingRenamedWarning, stacklevel=3)
    if config is not None and not problems:
        if layers is None:
            return config
        source_of = {key: source.name for source in sources for key in keys_of(source.tree)}
        by_source = {
            source.name: tuple(key for key, name in source_of.items() if name == source.name) for source in sources
        }
        of_run = {ARGUMENTS, ARGUMENTS if file is None else str(file)}
        of_person = frozenset(key for source in sources if source.name in of_run for key in keys_of(source.tree))
        sources_of = Provenance(by_source, of_person, file, dict(overrides), dict(environment), warnings)
        return config.with_provenance(sources_of)
    # A key may be in the wrong place, or a setting's name.
    problems = [_shortened(without_secrets(problem)) for problem in problems]
    origins = [layer.name for layer in layers or () if layer.tree] + ([str(file)] if file is not None else [])
    is_of_files = not sources or _come_from_files(problems, sources)
    origin = f" (read from {' and '.join(origins)})" if origins and is_of_files else ""
    raise refusal("the configuration has", problems, origin=origin)


def _come_from_files(problems: Sequence[str], sources: Sequence[Layer]) -> bool:
    """Return whether one of the problems comes from a file, and not from the environment or an argument.

    Args:
        problems: Lines that begin with the key of a setting.
        sources: Weakest first. The strongest one that has a key is the one whose value counts.
    """
    for problem in problems:
        key = problem.partition(":")[0]
        for source in reversed(sources):
            if any(f"{one}.".startswith(f"{key}.") or key.startswith(f"{one}.") for one in keys_of(source.tree)):
                if source.name not in {ENVIRONMENT, ARGUMENTS}:
                    return True
                break
    return False


def _shortened(line: str) -> str:
    """Return a line without the middle of a setting's name that no person wrote."""
    return line if len(line) <= LONGEST_LINE else f"{line[: LONGEST_LINE // 2]} … {line[-LONGEST_LINE // 2 :]}"


def explicit_tree(
    file: str | Path | None, overrides: Mapping[str, Any], environment: Mapping[str, str]
) -> dict[str, Any]:
    """Return the settings that were given, not yet checked."""
    return merge_layers(_given_layers(file, overrides, environment, []))


def merge_layers(layers: Sequence[Layer]) -> dict[str, Any]:
    """Return sources of settings as one tree, not yet checked."""
    return _merged(layers, [], [])[0]


def _given_layers(
    file: str | Path | None, overrides: Mapping[str, Any], environment: Mapping[str, str], problems: list[str]
) -> list[Layer]:
    """Return what was given for this run, weakest first; problems are added to ``problems``."""
    given = {key: value for key, value in overrides.items() if isinstance(key, str)}  # pyright: ignore[reportUnnecessaryIsInstance]
    problems += [f"{key!r:.80}: is not the name of a setting, which is text" for key in overrides if key not in given]
    layers = [] if file is None else [Layer(str(file), read_toml(file))]
    layers.append(Layer(ENVIRONMENT, from_environment(environment, problems)))
    return [*layers, Layer(ARGUMENTS, nested_tree(given))]


def _merged(layers: Sequence[Layer], problems: list[str], renamed: list[str]) -> tuple[dict[str, Any], list[Layer]]:
    """Return all sources as one tree, and each source by today's names.

    Problems are added to ``problems``, and a sentence for each old name to ``renamed``.
    """
    sources: list[Layer] = []
    merged: dict[str, Any] = {}
    for name, tree in layers:
        source = rename_moved(tree, name, problems, renamed)
        sources.append(Layer(name, source))
        lay_over(merged, source)
    replace_switches(merged, problems)
    return merged, sources


def _add_vendor_variables(tree: dict[str, Any], environment: Mapping[str, str]) -> None:
    """Add what was set nowhere from the vendors' own variables, for kinds that are chosen and tables that are given."""
    for port in PORTS.values():
        section = tree.get(port.section, {}) if environment else None
        model = RetrievalConfig.model_fields[port.section].annotation
        if not isinstance(section, dict) or not isinstance(model, type) or not issubclass(model, PortConfig):
            continue
        given = cast("dict[str, Any]", section)
        for kind in _kinds_in(given, model, port):
            name = table_of(kind)
            table: Any = given.get(name, {})
            if isinstance(table, dict):
                values = cast("dict[str, Any]", table)
                if found := _vendor_values(port, kind, values, environment):
                    given[name] = {**values, **found}
                    tree[port.section] = given


def _kinds_in(section: Mapping[str, Any], model: type[PortConfig], port: Port) -> list[str]:
    """Return the kinds that a section chooses or has a table for, if a variable of the environment may be for them."""
    kinds: list[Any] = [port.kind_of(name) for name in section if name not in model.model_fields]
    for setting in model.chosen_in:
        value = section.get(setting, model.model_fields[setting].default)
        kinds += value if isinstance(value, (list, tuple)) else [value]
    names = dict.fromkeys(kind for kind in kinds if isinstance(kind, str))
    return [kind for kind in names if port.needs_settings(kind)]


def _vendor_values(port: Port, kind: str, table: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, str]:
    # A key for one service is not for another one that only speaks the same protocol.
    if str(table.get("base_url") or "").strip():
        return {}
    settings = None
    with suppress(ConfigurationError):  # it cannot be imported, which is told when the settings are checked
        settings = port.settings_of(kind)
    if settings is None or not issubclass(settings, AdapterSettings):
        return {}
    # An empty variable of the environment, as containers are often given, does not set what is needed.
    return {
        name: environment[variable]
        for name, variable in settings.variables().items()
        if not is_blank(environment.get(variable))
        and (name not in table or (table[name] == "" and settings.model_fields[name].default is None))
    }


def parse_value(text: str) -> Any:
    """Read a value that came as text: a JSON list, object or ``null`` as such, everything else as it stands.

    Numbers and booleans are left to the setting's own type, so that a setting that is text may be ``"8"``.
    """
    if text == "null" or text[:1] in {"[", "{"}:
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return text
    return text


def preset_names() -> tuple[str, ...]:
    """Return the names of the presets that come with the library, in alphabetical order."""
    folder = files("retrieval_core") / "config" / "presets"
    return tuple(sorted(Path(entry.name).stem for entry in folder.iterdir() if entry.name.endswith(".toml")))


def read_toml(file: str | Path) -> dict[str, Any]:
    """Return what a TOML file or a preset contains.

    Raises:
        ConfigurationError: It is not there, can't be read, or is not valid TOML.
    """
    path = Path(file)
    name = str(file).removeprefix("presets/").removesuffix(".toml")
    if path.is_file():
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            msg = f"{file} cannot be read: {error}"
            raise ConfigurationError(msg) from error
    elif name in preset_names():
        text = (files("retrieval_core") / "config" / "presets" / f"{name}.toml").read_text(encoding="utf-8")
    else:
        named = without_secrets(repr(str(file)))
        msg = f"there is no configuration file or preset {named}; the presets are {', '.join(preset_names())}"
        raise ConfigurationError(msg)
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else without_secrets(str(error))
    msg = f"{file} is not valid TOML: {reason}"  # raised here, as a traceback would show what was not shown
    raise ConfigurationError(msg)


def from_environment(environment: Mapping[str, str], problems: list[str]) -> dict[str, Any]:
    """Return the settings in the environment.

    Other programs may use the same prefix, so a name is taken for a mistake only where it is close to a setting's.
    """
    tree: dict[str, Any] = {}
    known = [*RetrievalConfig.model_fields, *old_sections()]
    for name, text in sorted(environment.items()):  # a whole section before the keys in it
        if not name.upper().startswith(ENVIRONMENT_PREFIX):
            continue
        path = name[len(ENVIRONMENT_PREFIX) :].lower().split("__")
        section = path[0].partition("_")[0]
        if path[0] in known:
            merge_into(tree, nested_tree({".".join(path): parse_value(text)}))
        elif section in known:
            parts = (section, *_apart(section, path[0].removeprefix(section).strip("_")), *path[1:])
            meant = f"{ENVIRONMENT_PREFIX}{'__'.join(parts)}".upper()
            problems.append(f"{name}: unknown setting; did you mean {meant}?")
        elif near := get_close_matches(path[0], known, n=1):
            problems.append(f"{name}: unknown setting; did you mean {ENVIRONMENT_PREFIX}{near[0].upper()}?")
    return tree


def _apart(section: str, name: str) -> tuple[str, ...]:
    """Return a table of a section and a setting in it that were written as one name, such as ``qdrant_url``."""
    field = RetrievalConfig.model_fields.get(section)
    model: Any = None if field is None else field.annotation
    if isinstance(model, type) and issubclass(model, PortConfig) and name not in model.model_fields:
        for table in sorted(map(table_of, model.port.kinds()), key=len, reverse=True):
            if name.startswith(f"{table}_"):
                return table, name.removeprefix(f"{table}_")
    return (name,)


def _meant(location: tuple[int | str, ...]) -> list[str]:
    """Return what an unknown name at a location may mean: one beside it, or the same one in another table."""
    name = str(location[-1])
    if len(name) > LONGEST_LINE:
        return []
    section = RetrievalConfig.model_fields.get(str(location[0]))
    if len(location) == 2 and len(parts := _apart(str(location[0]), name)) == 2:
        return [".".join((str(location[0]), *parts))]
    in_tables = _in_tables(section.annotation, name) if section is not None and len(location) == 2 else []
    if near := get_close_matches(name, _siblings(location), n=1):
        return near
    return [" or ".join(in_tables)] if in_tables else _elsewhere(name)


def _in_tables(section: Any, name: str) -> list[str]:
    """Return the full keys of the settings with a name in the tables of a section's built-in kinds."""
    if not issubclass(section, PortConfig):
        return []
    keys: list[str] = []
    for kind in section.port.built_in:
        with suppress(ConfigurationError):  # its package is not installed
            settings = section.port.settings_of(kind)
            if settings is not None and name in settings.model_fields:
                keys.append(f"{section.port.section}.{table_of(kind)}.{name}")
    return keys


def _elsewhere(name: str) -> list[str]:
    """Return the full keys of the settings with a name, in whatever section."""
    return [
        f"{section}.{name}"
        for section, field in RetrievalConfig.model_fields.items()
        if isinstance(field.annotation, type)
        and issubclass(field.annotation, BaseModel)
        and name in field.annotation.model_fields
    ]


def _siblings(location: tuple[int | str, ...]) -> list[str]:
    """Return the settings and tables that exist beside the one at a location."""
    model: type[BaseModel] | None = RetrievalConfig
    if len(location) == 1:
        return list(model.model_fields)
    for part in location[:-1]:
        model = inner_model(model, str(part))
        if model is None:
            return []
    tables = [table_of(kind) for kind in model.port.kinds()] if issubclass(model, PortConfig) else []
    return [*model.model_fields, *tables]


def missing_settings(
    config: RetrievalConfig,
    *,
    with_embedder: bool = True,
    with_store: bool = True,
    with_llm: bool = True,
    transformers: Collection[str] = (),
) -> dict[str, str]:
    """Return the required settings that are missing: variables of the environment or keys, each with what needs it.

    Args:
        config: Only the kinds that it chooses count.
        with_embedder: Whether the configured embedder is used, and not one of the caller's.
        with_store: Whether the configured store is.
        with_llm: Whether the configured language model is.
        transformers: Names of the caller's own transformers, which no settings are for.
    """
    given = {"embedder": not with_embedder, "store": not with_store, "llm": not with_llm}
    missing: dict[str, list[str]] = {}
    for section, kind, settings in _chosen(config, transformers):
        if given.get(section):
            continue
        key = f"{section}.{table_of(kind)}"
        variables = settings.variables()
        for name in settings.missing():
            other = settings.required[name]
            what = f"{key}.{name}" if name in variables else f"the kind {kind!r}, for instance {other}"
            # A server of one's own, which wants no key, is no other way to say the same.
            what += f", or {key}.{other}" if other in type(settings).model_fields and other != "base_url" else ""
            missing.setdefault(variables.get(name, f"{key}.{name}"), []).append(what)
    return {name: " and ".join(missing[name]) for name in sorted(missing)}


def _chosen(config: RetrievalConfig, transformers: Collection[str]) -> Iterator[tuple[str, str, AdapterSettings]]:
    """Yield each chosen kind that may need settings: its section, its name and its settings."""
    for port in PORTS.values():
        section: PortConfig | Any = getattr(config, port.section)
        for kind in getattr(section, "kinds", ()):
            is_given = port is TRANSFORMER and kind in transformers
            if not is_given and port.needs_settings(kind):
                with suppress(ConfigurationError):  # there is no such kind, which is told when it is made
                    settings = cast("PortConfig", section).settings_of(kind)
                    if isinstance(settings, AdapterSettings):
                        yield port.section, kind, settings


def check_complete(
    config: RetrievalConfig,
    *,
    with_embedder: bool = True,
    with_store: bool = True,
    with_llm: bool = True,
    transformers: Collection[str] = (),
) -> None:
    """Refuse a configuration that lacks something; see :func:`missing_settings`.

    Raises:
        ConfigurationError: ``missing_keys`` has exactly the names that are missing, ``problems`` a line for each.
    """
    missing = missing_settings(
        config, with_embedder=with_embedder, with_store=with_store, with_llm=with_llm, transformers=transformers
    )
    if not missing:
        return
    problems = [f"{name}: not set (for {what})" for name, what in missing.items()]
    msg = (
        f"the configuration lacks {len(problems)} setting{'s' * (len(problems) > 1)}:\n  "
        + "\n  ".join(problems)
        + "\nSet them in the environment or the configuration. From Python, pass the environment: "
        "load_config(…, environment=os.environ)."
    )
    raise ConfigurationError(msg, missing_keys=tuple(missing), problems=problems)

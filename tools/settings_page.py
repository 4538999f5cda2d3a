"""Write the reference page of settings, ``docs/settings.md``, from the classes that declare them."""

from __future__ import annotations

import ast
import inspect
import json
import re
from functools import cache
from itertools import pairwise
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from retrieval_core.config import RetrievalConfig
from retrieval_core.config.adapters import PortConfig
from retrieval_core.config.kinds import table_of
from retrieval_core.config.moved import GONE, MOVED, OTHER_NAMES, OTHER_SECTIONS, SWITCHES

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = Path(__file__).parents[1] / "docs/settings.md"
HEAD = """\
# All settings

Every setting, with its default. [Configuration](configuration.md) shows where you can set them: in a file, in the
environment, as an argument, or in Python.

A table such as `[store.qdrant]` belongs to one kind of adapter. You can keep the tables of several kinds in one file:
only that of the chosen `kind` is used. `custom` is the table of a
[custom class or function](extending.md#an-adapter-that-a-configuration-names).

This page is generated: `python tools/settings_page.py`.
"""


def page() -> str:
    """Return the page."""
    lines = [HEAD]
    top = {name: field for name, field in RetrievalConfig.model_fields.items() if section_of(field) is None}
    lines += ["## General", "", *rows(RetrievalConfig, "", top)]
    for name, field in RetrievalConfig.model_fields.items():
        section = section_of(field)
        if section is not None:
            lines += ["", f"## {name}", "", *described(section), "", *rows(section, f"{name}.", section.model_fields)]
            lines += tables(section, name)
    return "\n".join([*lines, *old_names()]) + "\n"


def tables(section: type[BaseModel], name: str) -> Iterator[str]:
    """Yield the tables within a section: those of adapters, and those of settings that belong together."""
    inner = {key: section_of(field) for key, field in section.model_fields.items()}
    if issubclass(section, PortConfig):
        inner |= {table_of(kind): section.port.settings_of(kind) for kind in section.port.built_in}
    for key, settings in inner.items():
        if settings is not None:
            title = f"{name}.{key}"
            yield from ("", f"### {title}", "", *described(settings), "")
            yield from rows(settings, f"{title}.", settings.model_fields)
            yield from tables(settings, title)


def section_of(field: Any) -> type[BaseModel] | None:
    """Return the settings that a field consists of; ``None`` if it is one setting."""
    kind = field.annotation
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def rows(model: type[BaseModel], prefix: str, fields: dict[str, Any]) -> Iterator[str]:
    """Yield a table with a row for each setting."""
    own = {name: field for name, field in fields.items() if section_of(field) is None}
    if not own:
        return
    texts: dict[str, str] = {}
    for kind in reversed(model.__mro__):
        if issubclass(kind, BaseModel) and kind is not BaseModel:
            texts |= docstrings(kind)
    yield from ("| key | default | meaning |", "|---|---|---|")
    for name, field in own.items():
        yield f"| `{prefix}{name}` | {shown(field.get_default(call_default_factory=True))} | {texts.get(name, '')} |"


@cache
def docstrings(model: type[BaseModel]) -> dict[str, str]:
    """Return what the source of a class says of its fields."""
    texts: dict[str, str] = {}
    for body in ast.parse(dedent(inspect.getsource(model))).body:
        lines: list[ast.stmt] = getattr(body, "body", [])
        for field, text in pairwise(lines):
            match field, text:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(said))):
                    texts[name] = markdown(said)
                case _:
                    pass
    return texts


def described(model: type[BaseModel]) -> list[str]:
    """Return the docstring of a class, without its first mark."""
    return [markdown(paragraph) for paragraph in (inspect.getdoc(model) or "").split("\n\n")[:1]]


def markdown(text: str) -> str:
    """Return a docstring on one line, in Markdown."""
    text = re.sub(r":\w+:`~?[\w.]*?(\w+)`", r"`\1`", " ".join(text.split()))
    return text.replace("``", "`").replace("|", "\\|")


def shown(default: object) -> str:
    """Return a default as a file has it; nothing for ``None``."""
    if default is None:
        return ""
    text = json.dumps(default, ensure_ascii=False, default=str)
    return f"`{text}`".replace("|", "\\|")


def old_names() -> Iterator[str]:
    """Yield the tables of renamed and of removed settings."""
    within = tuple(f"{section}." for section in OTHER_SECTIONS)
    yield from (
        "",
        "## Old names",
        "",
        "These settings were renamed. The old name works in this version, with a warning:",
        "",
    )
    yield from ("| old name | new name |", "|---|---|")
    for old, new in MOVED.items():
        if not old.startswith(within) and old not in OTHER_NAMES:
            yield f"| `{old}` | `{new}` |"
    for section, kind in SWITCHES.items():
        yield f'| `{section}.enabled = false` | `{section}.kind = "none"` |'
        yield f"| `{section}.enabled = true` | " + (f'`{section}.kind = "{kind}"` |' if kind else "remove it |")
    yield from ("", "Other programs use these names, at the top level or in a table such as `RETRIEVAL_CONFIG`. They")
    yield from ("work in this version, with a warning:", "", "| other name | name |", "|---|---|")
    yield from (f"| `{old}` | `{new}` |" for old, new in OTHER_NAMES.items())
    yield from ("", "These settings were removed. Using one is an error:", "", "| removed | instead |", "|---|---|")
    removed: dict[str, list[str]] = {}
    for old, sentence in GONE.items():
        if not old.startswith(within):
            removed.setdefault(sentence, []).append(f"`{old}`")
    for sentence, names in removed.items():
        yield f"| {', '.join(names)} | {with_marks(sentence)} |"


def with_marks(sentence: str) -> str:
    """Return a sentence with its names of settings and files marked as code."""
    return re.sub(r"\b[a-z_]+(\.[a-z_]+)+\b", r"`\g<0>`", sentence)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")

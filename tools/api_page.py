"""Write the reference page of the library, ``docs/api.md``, from the docstrings of its public names."""

from __future__ import annotations

import enum
import inspect
import re
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from retrieval_core import FederatedIndex, Index, RetrievalPipeline

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

PAGE = Path(__file__).parents[1] / "docs/api.md"
HEAD = """\
# Library reference

All public classes, functions and errors, with their arguments. [Python](python.md) shows how to use them. Each method
that calls a model or a store has an asynchronous twin whose name begins with `a`, such as `aretrieve`.

This page is generated: `python tools/api_page.py`.
"""
MODULES = {
    "retrieval_core": "What you call",
    "retrieval_core.types": "Results",
    "retrieval_core.ports": "Plug-ins",
    "retrieval_core.errors": "Errors",
    "retrieval_core.integrations": "Agents",
    "llama_index.retrievers.retrieval_core": "LlamaIndex",
}
ROLE = re.compile(r":(?:attr|class|data|exc|func|meth|mod|ref):`~?([^`]+)`")
SECTION = re.compile(r"(Args|Returns|Yields|Raises|Attributes|Example|Examples|Note):\s*")
ENTRY = re.compile(r"(\*{0,2}\w+(?: \([^)]*\))?): (.*)")


def page() -> str:
    """Return the page."""
    seen: set[int] = set()
    lines = [HEAD]
    for name, title in MODULES.items():
        module = import_module(name)
        lines += [f"## {title}", "", f"Import from `{name}`.", ""]
        for public in public_names(module):
            value = getattr(module, public)
            is_call = inspect.isfunction(value) and name != "retrieval_core.errors"
            if id(value) not in seen and (inspect.isclass(value) or is_call):
                seen.add(id(value))
                lines += described(public, value)
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip() + "\n"


def public_names(module: Any) -> list[str]:
    """Return the public names of a module in alphabetical order."""
    names: list[str] = getattr(module, "__all__", None) or [
        name
        for name, value in vars(cast("ModuleType", module)).items()
        if getattr(value, "__module__", "") == module.__name__
    ]
    return sorted((name for name in names if not name.startswith("_")), key=str.casefold)


def described(name: str, value: Any) -> Iterator[str]:
    """Yield the section of a class or a function."""
    yield f"### {name}"
    yield ""
    is_error = inspect.isclass(value) and issubclass(value, BaseException)
    if not is_error and not (inspect.isclass(value) and issubclass(value, enum.Enum)):
        yield from signature_of(name, value)
    yield from markdown(value.__doc__)
    if inspect.isclass(value) and not is_error:
        methods = list(methods_of(value))
        of_index = (
            {method for method, _ in methods_of(Index)} if value in {FederatedIndex, RetrievalPipeline} else set[str]()
        )
        if shared := [f"`{method}`" for method, _ in methods if method in of_index]:
            yield f"It also has these methods of `Index`: {', '.join(shared)}."
            yield ""
        known: set[str] = set()
        for method, function in methods:
            if method not in of_index:
                yield f"#### {name}.{method}"
                yield ""
                yield from signature_of(f"{name}.{method}", function)
                yield from without_known(list(markdown(function.__doc__)), known)


def without_known(lines: list[str], known: set[str]) -> Iterator[str]:
    """Yield lines without the arguments that an earlier method of the class has in the same words."""
    repeated: list[str] = []
    entry: list[str] = []
    for line in [*lines, ""]:
        if entry and not line.startswith("  "):
            text = "\n".join(entry)
            if text in known:
                repeated.append(entry[0].partition(":")[0].removeprefix("- "))
            else:
                known.add(text)
                yield from entry
            entry = []
        if line.startswith("- `"):
            entry = [line]
        elif entry:
            entry.append(line)
        else:
            if repeated:
                yield f"- {', '.join(repeated)}: as above"
                repeated = []
            yield line


def methods_of(kind: type) -> Iterator[tuple[str, Any]]:
    """Yield the public methods of a class that have a docstring, without asynchronous twins."""
    found = {
        name: member
        for base in reversed(kind.__mro__)
        if base.__module__.startswith(("retrieval_core", "llama_index.retrievers.retrieval_core"))
        for name, member in vars(base).items()
    }
    for name, member in found.items():
        function: Any = getattr(member, "__func__", member)
        twin = name.removeprefix("a")
        if (
            inspect.isfunction(function)
            and not name.startswith("_")
            and function.__doc__
            and twin not in {*found} - {name}
        ):
            yield name, function


def signature_of(name: str, value: Any) -> Iterator[str]:
    """Yield a call with its argument names and defaults; nothing for data of LlamaIndex, which its version decides."""
    if hasattr(value, "model_fields") and value.__module__.startswith("llama_index"):
        return
    try:
        parameters = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):
        return
    shown: list[str] = []
    for parameter in parameters:
        if parameter.name in {"self", "cls"}:
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in shown and not any(s.startswith("*") for s in shown):
            shown.append("*")
        text = str(parameter.replace(annotation=parameter.empty))
        shown.append(re.sub(r"=<.*|=frozenset\(\{.*", "=…", text))
    call = f"{name}({', '.join(shown)})"
    yield from ("```text", call, "```", "") if shown else ()


def markdown(docstring: str | None) -> Iterator[str]:
    """Yield a docstring as Markdown: sections as lists, examples as code."""
    lines = inspect.cleandoc(docstring or "").split("\n")
    is_code = in_list = False
    for line in lines:
        bare = line.strip()
        starts_code = bare.startswith((">>>", "..."))
        if is_code and not bare:
            is_code = False
            yield "```"
        elif starts_code and not is_code:
            is_code = True
            yield from ("", "```pycon")
        if is_code:
            yield bare
            continue
        text = ROLE.sub(lambda role: f"`{role[1]}`", line).replace("``", "`")
        if SECTION.fullmatch(bare):
            in_list = True
            yield from ("", f"**{bare.strip().rstrip(':')}**", "")
        elif (
            in_list
            and line.startswith("    ")
            and not line.startswith("     ")
            and (entry := ENTRY.match(text.strip()))
        ):
            yield f"- `{entry[1]}`: {entry[2]}"
        elif in_list and line.startswith("    "):
            yield f"  {text.strip()}"
        else:
            in_list = in_list and not bare
            yield text.strip()
    if is_code:
        yield "```"
    yield ""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")

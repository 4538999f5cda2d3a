"""Source code and structured text: one document for each file, as it is, and notebooks as Markdown."""

from __future__ import annotations

import json
from itertools import count
from typing import TYPE_CHECKING, Any, cast

from retrieval_core.ingest.readers.base import ParsedDocument, clean, read_text, unreadable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path, PurePath

    from retrieval_core.ingest.readers.base import ReadOptions

_SUFFIXES = {
    "ada": ".ada .adb .ads", "assembly": ".asm .s", "bash": ".bash .sh .zsh", "batch": ".bat .cmd",
    "bibtex": ".bib", "c": ".c .h", "c-sharp": ".cs", "clojure": ".clj .cljc .cljs", "cmake": ".cmake",
    "cpp": ".cc .cpp .cu .cxx .hh .hpp .hxx .ino .ipp", "css": ".css .less .sass .scss", "cython": ".pxd .pyx",
    "d": ".d", "dart": ".dart", "elixir": ".ex .exs", "elm": ".elm", "erlang": ".erl .hrl", "fish": ".fish",
    "fortran": ".f .f03 .f08 .f90 .f95 .for", "fsharp": ".fs .fsi .fsx", "glsl": ".frag .glsl .vert",
    "go": ".go", "graphql": ".gql .graphql", "groovy": ".gradle .groovy", "haskell": ".hs", "hcl": ".hcl .tf .tfvars",
    "ini": ".cfg .cnf .conf .desktop .editorconfig .ini .properties .service", "java": ".java",
    "javascript": ".cjs .js .jsx .mjs", "json": ".json .json5 .jsonc", "julia": ".jl", "kotlin": ".kt .kts",
    "lisp": ".cl .el .lisp .rkt .scm", "lua": ".lua", "make": ".mak .mk", "matlab": ".m", "nim": ".nim",
    "nix": ".nix", "ocaml": ".ml .mli", "pascal": ".dpr .pas", "perl": ".pl .pm .t", "php": ".php",
    "powershell": ".ps1 .psd1 .psm1", "proto": ".proto .thrift", "python": ".py .pyi .pyw", "r": ".r",
    "ruby": ".gemspec .rake .rb .ru", "rust": ".rs", "scala": ".sbt .sc .scala", "solidity": ".sol",
    "sql": ".ddl .sql", "starlark": ".bazel .bzl .star", "swift": ".swift", "tcl": ".tcl",
    "template": ".erb .j2 .tpl .tmpl", "tex": ".cls .sty .tex", "toml": ".toml", "tsx": ".tsx",
    "typescript": ".cts .mts .ts", "verilog": ".sv .v .vh",
    "vhdl": ".vhd .vhdl", "vim": ".vim", "visual-basic": ".bas .vb .vbs", "vue": ".astro .svelte .vue",
    "xml": ".plist .wsdl .xml .xsd .xsl .xslt", "yaml": ".yaml .yml", "zig": ".zig",
}  # fmt: skip
SUFFIXES = {suffix: language for language, suffixes in _SUFFIXES.items() for suffix in suffixes.split()}
"""The language of each suffix."""
NAMES = {
    "brewfile": "ruby", "build": "starlark", "caddyfile": "caddy", "containerfile": "dockerfile",
    "dockerfile": "dockerfile", "fastfile": "ruby", "gemfile": "ruby", "gnumakefile": "make", "jenkinsfile": "groovy",
    "justfile": "make", "makefile": "make", "podfile": "ruby", "procfile": "ini", "rakefile": "ruby",
    "tiltfile": "starlark", "vagrantfile": "ruby", "workspace": "starlark",
}  # fmt: skip
"""The language of each file name, in lower case, whose suffix is not a language's: ``Dockerfile.dev`` is one too."""
_WITH_ANY_SUFFIX = ("containerfile.", "dockerfile.", "makefile.")


def language_of(path: PurePath) -> str | None:
    """Return the language of a file of code or structured text by its name; ``None`` for other files."""
    name = path.name.lower()
    if (language := SUFFIXES.get(path.suffix.lower())) is not None:
        return language
    return NAMES.get(name) or (NAMES.get(name.partition(".")[0]) if name.startswith(_WITH_ANY_SUFFIX) else None)


def read_code(path: Path, options: ReadOptions) -> Iterator[ParsedDocument]:
    """Read a file of code or structured text as one document."""
    yield ParsedDocument(text=read_text(path, options), markup="code", language=language_of(path))


def read_notebook(path: Path, options: ReadOptions) -> Iterator[ParsedDocument]:
    """Read the cells of a Jupyter notebook as Markdown; outputs are left out."""
    try:
        notebook: Any = json.loads(read_text(path, options))
        cells = list(_cells(notebook))
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise unreadable(path, "it is not a Jupyter notebook") from error
    yield ParsedDocument(text="\n\n".join(cells), markup="markdown")


def _cells(notebook: Any) -> Iterator[str]:
    """Yield the cells that have text: prose as it is, code in fences."""
    about: dict[str, Any] = notebook.get("metadata", {})
    language = str(about.get("language_info", {}).get("name") or about.get("kernelspec", {}).get("language") or "")
    worksheets: list[Any] = notebook.get("worksheets", [])  # of version 3
    cells = notebook["cells"] if "cells" in notebook else [cell for sheet in worksheets for cell in sheet["cells"]]
    for cell in cast("list[dict[str, Any]]", cells):
        source: Any = cell.get("source", cell.get("input", ""))
        text = clean(source if isinstance(source, str) else "".join(source)).strip("\n")
        if not text.strip():
            continue
        if cell["cell_type"] != "code":
            yield text
            continue
        fence = next(mark for length in count(3) if (mark := "`" * length) not in text)
        yield f"{fence}{language}\n{text}\n{fence}"

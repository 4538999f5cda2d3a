"""The languages of source code and structured text, by the names of files."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import PurePath

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

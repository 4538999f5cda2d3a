"""Damage to an index file from outside, written with plain SQL, is reported by name and repaired."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pytest

from retrieval_core import Chunk, Document, load_config, open_index
from retrieval_core.testing.fakes import FakeEmbedder
from support.read_only import LOOK_AT_READ_ONLY

if TYPE_CHECKING:
    from collections.abc import Callable

    from retrieval_core import Index
    from retrieval_core.types import SearchMode

QUERIES = ("moon distance", "light of the sun", "phone price", "tides of the sea")
TEXTS = {
    "moon.md": "# The moon\n\nIt goes round the earth.\n\n## Distance\n\nIts distance is 384,400 km.\n\n"
    "## Tides\n\nIt lifts the tides of the sea.\n",
    "sun.md": "# The sun\n\nIts light takes eight minutes.\n\n## Mass\n\nIt has a mass of 333,000 earths.\n",
    "phones.csv": "text,price,brand\nA sturdy phone,99.5,Nova\nA thin phone,500,Luna\n",
}
MOON = "docs/moon.md#1"


def opened(folder: Path) -> Index:
    """Open the index of a folder."""
    config = load_config(overrides={"chunking.min_tokens": 0, "cache.kind": "none"})
    return open_index(folder / "index.db", config=config, embedder=FakeEmbedder(32))


def sql(folder: Path, *statements: str) -> None:
    """Run statements on the index file, as another program would."""
    disk = sqlite3.connect(folder / "index.db")
    with disk:
        for statement in statements:
            disk.execute(statement)
    disk.close()


def blob(folder: Path, query: str) -> bytes:
    """Return one value of the index file."""
    disk = sqlite3.connect(folder / "index.db")
    value: bytes = disk.execute(query).fetchone()[0]
    disk.close()
    return value


def number(chunk: str) -> str:
    """Return the expression of a chunk's row number."""
    return f"(SELECT number FROM chunks WHERE id = '{chunk}')"


def found(index: Index) -> list[Any]:
    """Return what all queries find, in all modes."""
    results = [index.retrieve(query, mode=mode) for query in QUERIES for mode in ("dense", "lexical", "hybrid")]
    assert not any(result.degraded for result in results)
    return [[(hit.chunk.id, hit.score, hit.chunk.text, hit.chunk.title) for hit in result.hits] for result in results]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with three files and an index of them."""
    (tmp_path / "docs").mkdir()
    for name, text in TEXTS.items():
        (tmp_path / "docs" / name).write_text(text, encoding="utf-8")
    with opened(tmp_path) as index:
        assert index.ingest(tmp_path / "docs").documents == 4
        assert index.check_integrity().verdict == "clean"
    return tmp_path


def flip_one_bit(folder: Path) -> None:
    """Change the last bit of one vector's mantissa."""
    vector = bytearray(blob(folder, f"SELECT vector FROM vectors WHERE number = {number(MOON)}"))
    vector[0] ^= 1
    sql(folder, f"UPDATE vectors SET vector = x'{vector.hex()}' WHERE number = {number(MOON)}")


def swap_vectors(folder: Path) -> None:
    """Swap the vectors of two chunks."""
    one, other = number(MOON), number("docs/sun.md#0")
    vector = blob(folder, f"SELECT vector FROM vectors WHERE number = {one}")
    sql(
        folder,
        f"UPDATE vectors SET vector = (SELECT vector FROM vectors WHERE number = {other}) WHERE number = {one}",
        f"UPDATE vectors SET vector = x'{vector.hex()}' WHERE number = {other}",
    )


def renumber_vectors(folder: Path) -> None:
    """Swap the row numbers of two vectors."""
    one, other = number(MOON), number("docs/sun.md#0")
    sql(
        folder,
        f"UPDATE vectors SET number = -1 WHERE number = {one}",
        f"UPDATE vectors SET number = {one} WHERE number = {other}",
        f"UPDATE vectors SET number = {other} WHERE number = -1",
    )


def lose_one_term(folder: Path) -> None:
    """Overwrite the term "distanc" in the postings."""
    disk = sqlite3.connect(folder / "index.db")
    with disk:
        for segment, place, block in disk.execute("SELECT segment, place, block FROM word_blocks").fetchall():
            changed = block.replace(b"\ndistanc\n", b"\ndistant\n")
            disk.execute("UPDATE word_blocks SET block = ? WHERE segment = ? AND place = ?", (changed, segment, place))
    disk.close()


def on(statement: str) -> Callable[[Path], None]:
    """Return damage by one statement."""
    return lambda folder: sql(folder, statement)


OF_CHUNK = f"WHERE id = '{MOON}'"
STRAY = """
INSERT INTO chunks (id, document_id, chunk_index, total_chunks, section_path, content_hash, metadata, text)
VALUES ({}, 1, '[]', '', '{{}}', 'The distance of the moon is unknown.')
"""
DAMAGE: dict[str, tuple[Callable[[Path], None], str, str | None]] = {
    "all vectors deleted": (on("DELETE FROM vectors"), "its vector is missing", MOON),
    "one vector deleted": (on(f"DELETE FROM vectors WHERE number = {number(MOON)}"), "its vector is missing", MOON),
    "all vectors zeroed": (on("UPDATE vectors SET vector = zeroblob(128)"), "its vector was changed", MOON),
    "vectors cut": (on("UPDATE vectors SET vector = substr(vector, 1, 64)"), "its vector was changed", MOON),
    "one bit of a vector": (flip_one_bit, "its vector was changed", MOON),
    "two vectors swapped": (swap_vectors, "its vector was changed", MOON),
    "two vectors renumbered": (renumber_vectors, "its vector was changed", MOON),
    "all postings deleted": (on("DELETE FROM word_segments"), "its postings are missing", MOON),
    "all blocks deleted": (on("DELETE FROM word_blocks"), "its postings were changed", MOON),
    "one term lost": (lose_one_term, "its postings were changed", MOON),
    "postings garbled": (on("UPDATE word_blocks SET block = zeroblob(40)"), "its postings were changed", MOON),
    "terms of blocks changed": (
        on("UPDATE word_segments SET first_terms = first_terms || 'zzz'"),
        "its postings were changed",
        MOON,
    ),
    "title": (on(f"UPDATE chunks SET title = 'The sea' {OF_CHUNK}"), "its title was changed", MOON),
    "all titles": (on("UPDATE chunks SET title = NULL"), "its title was changed", MOON),
    "metadata": (on("""UPDATE chunks SET metadata = '{"price":1}'"""), "its metadata was changed", MOON),
    "section": (on(f"""UPDATE chunks SET section_path = '["Mass"]' {OF_CHUNK}"""), "its section was changed", MOON),
    "source": (on(f"UPDATE chunks SET source = 'docs/sun.md' {OF_CHUNK}"), "its source was changed", MOON),
    "page": (on(f"UPDATE chunks SET page_first = 7, page_last = 7 {OF_CHUNK}"), "its page was changed", MOON),
    "rows": (on("UPDATE chunks SET row_first = 9, row_last = 9"), "its place was changed", "docs/phones.csv#1#0"),
    "model": (on(f"UPDATE chunks SET embedding_model = 'other' {OF_CHUNK}"), "its identity was changed", MOON),
    "text": (on(f"UPDATE chunks SET text = 'Nothing.' {OF_CHUNK}"), "its text was changed", MOON),
    "bytes that are no text": (on(f"UPDATE chunks SET title = CAST(x'ff' AS TEXT) {OF_CHUNK}"), "", None),
    "chunk deleted": (on(f"DELETE FROM chunks {OF_CHUNK}"), "no chunk holds the text", MOON),
    "all chunks deleted": (on("DELETE FROM chunks"), "no chunk holds the text", "docs/moon.md#0"),
    "document deleted": (on("DELETE FROM documents WHERE id = 'docs/moon.md'"), "the index lacks it", None),
    "document's title": (on("UPDATE documents SET title = 'x' WHERE id = 'docs/moon.md'"), "title was changed", None),
    "section's path": (on("""UPDATE sections SET path = '["x"]'"""), "section's section was changed", None),
    "sections deleted": (on("DELETE FROM sections"), "section is missing", None),
    "stray chunk": (
        on(STRAY.format("'stray#0', 'stray', 0")),
        "it was not written by retrieval-core",
        "stray#0",
    ),
    "stray chunk of a document": (
        on(STRAY.format("'x', 'docs/moon.md', 9")),
        "it was not written by retrieval-core",
        "x",
    ),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_named_and_repaired(folder: Path, name: str) -> None:
    """The report names the chunk and what is wrong; after a repair the same queries find the same."""
    damage, problem, chunk_id = DAMAGE[name]
    with opened(folder) as index:
        before = found(index)
    damage(folder)
    with opened(folder) as index:
        report = index.check_integrity()
        assert report.verdict == "mismatch"
        told = {each.chunk_id: each.mismatch_details or "" for each in report.mismatches}
        if chunk_id is None:
            assert problem in "; ".join([*told.values(), *(each.problem for each in report.differences)])
        else:
            assert problem in told[chunk_id]
            shown = index.validate(chunk_id)
            assert shown is None or not shown.validation_passed
        assert index.check_integrity(repair=True).verdict == "clean"
        assert found(index) == before
    with opened(folder) as index:
        assert index.check_integrity().verdict == "clean"
        assert found(index) == before


@pytest.mark.slow
@pytest.mark.parametrize("name", DAMAGE)
def test_indexing_again_repairs(folder: Path, name: str) -> None:
    """Nothing has to be known of ``verify`` for that."""
    with opened(folder) as index:
        before = found(index)
    DAMAGE[name][0](folder)
    with opened(folder) as index:
        index.ingest(folder / "docs")
        assert index.check_integrity().verdict == "clean"
        assert found(index) == before


@pytest.mark.parametrize(
    ("statement", "mode"),
    [
        ("DELETE FROM vectors", "dense"),
        ("DELETE FROM vectors", "hybrid"),
        ("DELETE FROM word_segments", "lexical"),
        ("DELETE FROM word_segments", "hybrid"),
        ("UPDATE word_segments SET numbers = x'', lengths = x''", "lexical"),
    ],
)
def test_a_search_over_missing_parts_is_degraded(folder: Path, statement: str, mode: SearchMode) -> None:
    """It says what is lost, and how it is repaired."""
    sql(folder, statement)
    with opened(folder) as index:
        for _ in range(2):
            reasons = "; ".join(entry.reason for entry in index.retrieve("moon distance", mode=mode).degraded)
            assert "retrieval verify --repair" in reasons


def test_lost_blocks_are_an_error_that_says_how_to_repair(folder: Path) -> None:
    """Postings that are there in part are not searched in silence."""
    sql(folder, "DELETE FROM word_blocks")
    with opened(folder) as index:
        reasons = "; ".join(entry.reason for entry in index.retrieve("moon distance").degraded)
        assert "retrieval verify --repair" in reasons


def test_chunks_without_a_file_are_repaired_from_the_index(folder: Path) -> None:
    """Postings come from the text, vectors from the embedder, and fields from the document's record."""
    chunk = Chunk("alone#0", "alone", "Comets have long tails.", title="Comets")
    with opened(folder) as index:
        index.add([chunk])
        before = index.retrieve("comets tails").hits
        for name in TEXTS:
            (folder / "docs" / name).unlink()
    sql(folder, "DELETE FROM vectors", "DELETE FROM word_segments", f"UPDATE chunks SET title = 'x' {OF_CHUNK}")
    with opened(folder) as index:
        told = {each.chunk_id: each.mismatch_details or "" for each in index.check_integrity().mismatches}
        assert "its vector is missing" in told["alone#0"]
        assert "its title was changed" in told[MOON]
        report = index.check_integrity(repair=True)
        assert (report.mismatches, report.differences) == ((), ())
        after = index.retrieve("comets tails").hits
        assert [(hit.chunk.id, hit.score) for hit in after] == [(hit.chunk.id, hit.score) for hit in before]
        moon = index.retrieve("moon distance", {"title": "The moon"}).hits
        assert MOON in [hit.chunk.id for hit in moon]


def test_what_cannot_be_repaired_stays_reported(folder: Path) -> None:
    """A page is known to nobody but the file."""
    for name in TEXTS:
        (folder / "docs" / name).unlink()
    sql(folder, f"UPDATE chunks SET page_first = 7, page_last = 7 {OF_CHUNK}")
    with opened(folder) as index:
        report = index.check_integrity(repair=True)
        assert [each.chunk_id for each in report.mismatches] == [MOON]
        assert report.repaired == ()


def run(folder: Path, *arguments: str) -> tuple[int, str]:
    """Run the command in a folder."""
    command = [sys.executable, "-m", "retrieval_core.cli", *arguments, "--index", "index.db"]
    options = ["--set", "embedder.kind=none", "--set", "search.mode=lexical"]
    done = subprocess.run(
        [*command, *options],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": "200"},
    )
    return done.returncode, done.stdout + done.stderr


def test_the_command_reports_and_repairs(tmp_path: Path) -> None:
    """Exit code 1 with a line for each chunk, then 0."""
    (tmp_path / "moon.md").write_text(TEXTS["moon.md"])
    assert run(tmp_path, "index", "moon.md")[0] == 0
    sql(tmp_path, "DELETE FROM word_segments", "UPDATE chunks SET title = 'x'")
    code, printed = run(tmp_path, "search", "distance")
    assert "retrieval verify --repair" in printed
    code, printed = run(tmp_path, "verify", "--json")
    assert code == 1
    report = json.loads(printed)
    details = report["mismatches"][0]["details"]
    assert "postings" in details
    assert "title" in details
    code, printed = run(tmp_path, "verify", "--repair")
    assert (code, "no differences" in printed) == (0, True)
    code, printed = run(tmp_path, "search", "distance")
    assert (code, "384,400" in printed, "verify" in printed) == (0, True, False)


@pytest.fixture
def old(folder: Path) -> Path:
    """Return a folder whose index is as the version before checksums wrote it."""
    sql(
        folder,
        "DROP TABLE seals",
        "ALTER TABLE documents DROP COLUMN seal",
        "ALTER TABLE sections DROP COLUMN seal",
        "ALTER TABLE state DROP COLUMN chunks",
        "ALTER TABLE state DROP COLUMN documents",
        "ALTER TABLE state DROP COLUMN counted",
    )
    return folder


def test_an_old_file_gets_checksums_with_its_next_write(old: Path) -> None:
    """Until then the report says what could not be compared; nothing is embedded again."""
    with opened(old) as index:
        before = found(index)
        report = index.check_integrity()
        assert (report.verdict, report.unsealed) == ("unverifiable", report.chunks)
        (old / "docs/new.md").write_text("# New\n\nA new page.\n")
    embedder = FakeEmbedder(32)
    config = load_config(overrides={"chunking.min_tokens": 0, "cache.kind": "none"})
    with open_index(old / "index.db", config=config, embedder=embedder) as index:
        index.ingest(old / "docs")
        assert [len(batch) for batch in embedder.batches] == [1]
        assert index.check_integrity().verdict == "clean"
        index.delete("docs/new.md")
        assert found(index) == before
    sql(old, "UPDATE vectors SET vector = zeroblob(128)")
    with opened(old) as index:
        assert "vector" in (index.check_integrity().mismatches[0].mismatch_details or "")


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("DELETE FROM vectors", "its vector is missing"),
        ("DELETE FROM word_segments", "its postings are missing"),
        ("UPDATE chunks SET title = 'x'", "its title is not that of its document"),
        ("UPDATE chunks SET metadata = '{\"a\":1}'", "its metadata is not that of its document"),
        ("UPDATE chunks SET source = 'x'", "its source is not that of its document"),
    ],
)
def test_damage_to_an_old_file(old: Path, statement: str, problem: str) -> None:
    """Much of it shows without checksums."""
    sql(old, statement)
    with opened(old) as index:
        assert problem in (index.check_integrity().mismatches[0].mismatch_details or "")
        assert index.check_integrity(repair=True).verdict == "clean"


READ_ONLY = """
import os, sys
from retrieval_core import load_config, open_index
from retrieval_core.testing.fakes import FakeEmbedder

def look():
    config = load_config(overrides={"cache.kind": "none"})
    with open_index("index.db", config=config, embedder=FakeEmbedder(32)) as index:
        report = index.check_integrity()
        hits = index.retrieve("moon distance").hits
        print(report.verdict, report.unsealed, len(report.mismatches), hits[0].chunk.id)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="folders have no such permission there")
def test_an_old_file_in_a_read_only_folder(old: Path) -> None:
    """It is searched, and compared as far as that goes."""
    with TemporaryDirectory() as place:
        copy = Path(place) / "copy"
        shutil.copytree(old, copy)
        copy.parent.chmod(0o755)
        done = subprocess.run(
            [sys.executable, "-c", READ_ONLY + LOOK_AT_READ_ONLY], cwd=copy, capture_output=True, text=True, check=False
        )
        copy.chmod(0o755)
    assert done.stdout.splitlines() == ["unverifiable 7 0 docs/moon.md#1"] * 2, done.stderr


@pytest.mark.slow
def test_the_service_over_http_shows_the_same_verdict(folder: Path) -> None:
    """Validation of a chunk names what is wrong beside its text."""
    pytest.importorskip("retrieval_core_mcp")
    httpx2: Any = pytest.importorskip("httpx2")
    from support.http_process import http_process

    sql(folder, "UPDATE vectors SET vector = zeroblob(128)", f"UPDATE chunks SET title = 'x' {OF_CHUNK}")
    (folder / "fakes.py").write_text(
        "from retrieval_core.testing.fakes import FakeEmbedder\n\ndef small(**options):\n    return FakeEmbedder(32)\n"
    )
    (folder / "config.toml").write_text('index = "index.db"\n[embedder]\nkind = "fakes:small"\n')
    place = {"PYTHONPATH": str(folder)}
    with http_process("--config", "config.toml", folder=folder, environment=place) as running:
        answer = httpx2.post(f"{running.url}/v1/chunks/{MOON.replace('/', '%2F').replace('#', '%23')}/validate")
    told = answer.json()
    assert (told["matches"], told["validation_passed"]) == (True, False)
    assert "its vector was changed" in told["mismatch_details"]
    assert "its title was changed" in told["mismatch_details"]


def test_a_count_that_is_wrong_is_reported_without_a_name(tmp_path: Path) -> None:
    """A problem of the whole index belongs to no document, and one thing is counted in the singular."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/moon.md").write_text("# The moon\n\nIt goes round the earth.\n", encoding="utf-8")
    assert run(tmp_path, "index", "docs")[0] == 0
    code, told = run(tmp_path, "verify")
    assert code == 0
    assert told.startswith("1 document, 1 chunk verified")
    sql(tmp_path, "DELETE FROM documents")
    code, told = run(tmp_path, "verify")
    assert code == 1
    assert "the index has 0 documents, and 1 were written" in told
    assert "None" not in told
    assert "1 chunks" not in told


def test_files_that_the_index_no_longer_lists_are_listed_again(folder: Path) -> None:
    """Without its list of files, the index says so; a repair reads the files, and the next run knows them."""
    with opened(folder) as index:
        before = found(index)
    sql(folder, "DELETE FROM sources")
    with opened(folder) as index:
        report = index.check_integrity()
        assert report.verdict == "mismatch"
        assert [item.source for item in report.differences] == ["docs/moon.md", "docs/phones.csv", "docs/sun.md"]
        assert all("missing from the index's list of files" in item.problem for item in report.differences)
        repaired = index.check_integrity(repair=True)
        assert (repaired.verdict, repaired.documents) == ("clean", 4)
        assert index.ingest(folder / "docs").unchanged == 4
        assert found(index) == before


def test_an_unlisted_file_that_is_gone_is_named(folder: Path) -> None:
    """A repair cannot read it again: it stays a difference until its document is removed."""
    sql(folder, "DELETE FROM sources WHERE source = 'docs/sun.md'")
    (folder / "docs" / "sun.md").unlink()
    with opened(folder) as index:
        report = index.check_integrity(repair=True)
        assert report.verdict == "mismatch"
        assert [(item.source, "remove its documents" in item.problem) for item in report.differences] == [
            ("docs/sun.md", True)
        ]
        index.delete("docs/sun.md")
        assert index.check_integrity().verdict == "clean"


def test_documents_without_a_file_are_not_missing_from_the_list(folder: Path) -> None:
    """Documents that a program added, and files that were removed, are no damage."""
    with opened(folder) as index:
        index.add_documents([Document("faq", "Refunds take five days.")])
        (folder / "docs" / "sun.md").unlink()
        assert index.ingest(folder / "docs").removed == 1
        index.delete("docs/moon.md")
        report = index.check_integrity(document_ids=["faq"])
        assert (report.verdict, report.differences) == ("clean", ())

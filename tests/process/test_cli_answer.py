"""``retrieval answer`` as a process of its own: interrupted, and with nobody who reads on."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from support.command_line import main
from support.processes import RETRIEVAL, as_at_a_terminal, with_our_modules

pytestmark = pytest.mark.slow

SETTINGS = (
    *("--set", "embedder.kind=retrieval_core.testing.fakes:FakeEmbedder"),
    *("--set", "context.token_counter=support.pipelines:word_counter"),
    *("--set", "answer.abstain_below=0"),
    *("--set", "llm.kind=endless:make"),
)
MODEL = """
import asyncio
from pathlib import Path
from retrieval_core.testing.fakes_llm import FakeLLM

class Endless(FakeLLM):
    async def stream(self, request):
        try:
            yield "It is so. [1]\\n\\n"
            while not Path("go on").exists():
                await asyncio.sleep(0.01)
            yield "And so on."
            await asyncio.Event().wait()
        finally:
            Path("closed").touch()

def make():
    return Endless("")
"""


@pytest.fixture
def indexed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "endless.py").write_text(MODEL)
    (tmp_path / "moon.md").write_text("# The moon\n\nThe moon is 384,400 km away.\n")
    assert CliRunner().invoke(main, ["index", "moon.md", *SETTINGS[:-2]]).exit_code == 0
    return tmp_path


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*RETRIEVAL, "answer", "how far is the moon", *SETTINGS, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        env=with_our_modules(),
        **as_at_a_terminal(),
    )


@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl-C is sent otherwise there")
@pytest.mark.parametrize("form", ["text", "lines"])
def test_an_interrupt_ends_quietly_and_ends_the_models_work(indexed: Path, form: str) -> None:
    """What was printed stays, nothing is complained about, and the model's stream is closed before the end."""
    with start(*(["--json"] if form == "lines" else [])) as process:
        assert process.stdout is not None
        assert any("It is so. [1]" in line for line in process.stdout)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert not errors.strip()
    assert (indexed / "closed").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="pipes are closed otherwise there")
def test_nobody_reads_on(indexed: Path) -> None:
    """The command ends by itself when its output is closed, and the model's stream with it."""
    with start() as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith("It is so.")
        process.stdout.close()
        (indexed / "go on").touch()
        errors = process.stderr.read()
        assert process.wait(timeout=60) == 141
    assert not errors.strip()
    assert (indexed / "closed").exists()

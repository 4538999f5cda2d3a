"""Every example of the documentation is run, and prints what stands below it."""

from __future__ import annotations

import asyncio
import io
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
from contextlib import ExitStack, contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from support.command_line import main
from support.page_examples import BLOCK, FILE, assert_prints, expected_output

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

pytest.importorskip("onnxruntime", reason="the examples use the local model: pip install 'retrieval-core[local]'")

ROOT = Path(__file__).parents[2]
NEEDS = {
    "quickstart-llamaindex.md": "llama_index.retrievers.retrieval_core",
    "quickstart-mcp.md": "retrieval_core_mcp",
    "llamaindex.md": "llama_index.retrievers.retrieval_core",
    "llamaindex-examples.md": "llama_index.retrievers.retrieval_core",
    "frameworks.md": "smolagents",
    "mcp.md": "retrieval_core_mcp",
    "http.md": "retrieval_core_mcp",
}
"""Pages about a package of their own, and what has to be installed for their examples."""
RUN_FOR_CONTRIBUTORS = ("confidence.md", "llamaindex-examples.md", "specification.md")
PAGES = sorted(
    [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "docs/dev" / name for name in RUN_FOR_CONTRIBUTORS)]
)
PAGES.remove(ROOT / "docs/api.md")  # it has the examples of docstrings
INDEXING_ALL = {"README.md", "quickstart-mcp.md", "integrity.md", "suites.md"}
"""Pages whose examples index all pages with the local model."""
DIFF = re.compile(r"^```diff\n(?P<lines>.*?)^```$", re.MULTILINE | re.DOTALL)


def run_python(code: str, names: dict[str, Any]) -> None:
    output = io.StringIO()
    with redirect_stdout(output):
        exec(compile(code, "<example>", "exec"), names)
    if expected := expected_output(code):
        assert_prints(output.getvalue(), expected)


def run_console(code: str, background: ExitStack) -> None:
    """Run each line that begins with ``$``; the lines below it are what it prints."""
    for step in re.split(r"^\$ ", code, flags=re.MULTILINE)[1:]:
        command, _, expected = step.partition("\n")
        program, *arguments = shlex.split(command)
        if program == "retrieval":
            result = CliRunner().invoke(main, arguments)
            assert result.exit_code == 0, f"{command}\n{result.output}"
            printed = result.output
        elif program in {"mkdir", "cd"}:
            (folder,) = arguments
            Path(folder).mkdir() if program == "mkdir" else os.chdir(folder)
            printed = ""
        elif program == "retrieval-mcp" and arguments[0] == "setup":
            printed = installing(arguments)
        elif program == "retrieval-mcp":
            assert arguments.pop() == "&", f"an example waits for a service: {command}"
            printed = background.enter_context(serving(arguments))
        else:
            assert program == "curl", f"an example starts another program: {command}"
            printed = subprocess.run([program, *arguments], capture_output=True, text=True, check=True).stdout
        if expected.strip():
            assert_prints(printed, expected)


@contextmanager
def serving(arguments: list[str]) -> Generator[str]:
    """Run the service, and give the line in which it says where it listens."""
    command = [sys.executable, "-m", "retrieval_core_mcp", *arguments]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            yield process.stderr.readline()
        finally:
            process.terminate()
            process.communicate()


def installing(arguments: list[str]) -> str:
    """Add the server to the configuration of a user who has an index, and no assistant yet."""
    Path(".retrieval").mkdir(exist_ok=True)
    Path(".retrieval/index.db").touch()
    home = dict.fromkeys(
        ("HOME", "USERPROFILE", "APPDATA", "LOCALAPPDATA", "XDG_CONFIG_HOME"), str(Path("home").resolve())
    )
    command = [sys.executable, "-m", "retrieval_core_mcp", *arguments]
    return subprocess.run(command, env={**os.environ, **home}, capture_output=True, text=True, check=True).stdout


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return listening.getsockname()[1]


@pytest.fixture
def somewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that looks like a checkout, for examples that index the project's own pages."""
    (tmp_path / "docs/dev").mkdir(parents=True)
    for page in PAGES:
        (tmp_path / page.relative_to(ROOT)).write_bytes(page.read_bytes())
    (tmp_path / "phones.csv").write_text("text,brand,price\nA sturdy phone,Acme,99.5\nA thin phone,Zenith,500\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    return tmp_path


@pytest.fixture
def nothing_left_in_llamaindex(page: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Skip a page whose package is missing; of LlamaIndex, forget the model and close the event loop that it takes."""
    if page.name in NEEDS:
        pytest.importorskip(NEEDS[page.name])
    if "llamaindex" not in page.name:
        yield
        return
    from llama_index.core import Settings

    monkeypatch.setattr(Settings, "_llm", None)
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield
    asyncio.set_event_loop(None)
    loop.close()


@pytest.mark.model
# What LlamaIndex's agents do.
@pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning", "ignore:is_running called")
@pytest.mark.parametrize(
    "page",
    [pytest.param(page, id=page.name, marks=[pytest.mark.slow] if page.name in INDEXING_ALL else []) for page in PAGES],
)
def test_examples_run_and_print_what_the_page_says(
    page: Path, somewhere: Path, nothing_left_in_llamaindex: None
) -> None:
    """The blocks of a page run in order and share their names; an index of a small table is there for searches."""
    # A service of an example listens at a port that is free here, and not at that of the page.
    text = page.read_text(encoding="utf-8").replace("127.0.0.1:8000", f"127.0.0.1:{free_port()}")
    blocks = list(BLOCK.finditer(text))
    if not blocks:
        pytest.skip("the page has no examples")
    if "$ curl " in text and shutil.which("curl") is None:
        pytest.skip("the examples of this page need curl")
    if page.name == "filters.md":
        assert CliRunner().invoke(main, ["index", "phones.csv"]).exit_code == 0
    for file in FILE.finditer(text):
        Path(file["name"]).write_text(file["text"])
    names: dict[str, Any] = {"__name__": "example"}
    with ExitStack() as background:
        for block in blocks:
            if block["language"] == "python":
                run_python(block["code"], names)
            else:
                run_console(block["code"], background)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_diff_leads_to_is_run_below_it(page: Path) -> None:
    """What a page tells to change is what it then runs."""
    text = page.read_text(encoding="utf-8")
    for diff in DIFF.finditer(text):
        after = "".join(line[1:] + "\n" for line in diff["lines"].splitlines() if not line.startswith("-"))
        examples = [block["code"] for block in BLOCK.finditer(text, diff.end())]
        assert any(example.startswith(after) for example in examples), after


def test_every_setting_is_documented_with_its_default() -> None:
    """``python tools/settings_page.py`` writes the page anew."""
    program = "import settings_page; print(settings_page.page(), end='')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, cwd=ROOT / "tools", check=True)
    page = done.stdout.decode("utf-8")
    assert (ROOT / "docs/settings.md").read_text(encoding="utf-8") == page, "run: python tools/settings_page.py"
    assert "|  |\n" not in page, "a setting has no description"


def test_every_public_name_is_documented() -> None:
    """``python tools/api_page.py`` writes the page anew."""
    pytest.importorskip("llama_index.retrievers.retrieval_core", reason="needs the plug-in for LlamaIndex")
    program = "import api_page; print(api_page.page(), end='')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, cwd=ROOT / "tools", check=True)
    page = done.stdout.decode("utf-8")
    assert (ROOT / "docs/api.md").read_text(encoding="utf-8") == page, "run: python tools/api_page.py"


def test_every_setting_of_the_service_is_documented_with_its_default() -> None:
    """The page about the service has a row for each, and no other."""
    pytest.importorskip("retrieval_core_mcp", reason="needs retrieval-core-mcp")
    from support.http_service import HttpSettings

    settings = HttpSettings.model_fields
    table = (ROOT / "docs/http.md").read_text(encoding="utf-8").partition("## Settings")[2].partition("\n## ")[0]
    documented = dict(re.findall(r"^\| `(\w+)` \| (\S+) \|", table, flags=re.MULTILINE))
    defaults = {name.upper(): field.default for name, field in settings.items()}
    assert documented == {
        name: "none" if default in ((), None) else str(default).lower() if default is False else str(default)
        for name, default in defaults.items()
    }

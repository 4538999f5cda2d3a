"""``retrieval answer``: what it prints, as it comes, and how it ends."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result

from retrieval_core.cli.commands import main
from retrieval_core.pipeline.answer.writing import UNAVAILABLE
from retrieval_core.text.markers import MISSING

if TYPE_CHECKING:
    from pathlib import Path

SETTINGS = (
    *("--set", "embedder.kind=retrieval_core.testing.fakes:FakeEmbedder"),
    *("--set", "context.token_counter=support.pipelines:word_counter"),
    *("--set", "answer.abstain_below=0"),
    *("--set", "retry.max_retries=0"),
)
MOON = "The moon is 384,400 km away."
QUESTION = "how far away is the moon"
UNVERIFIED = "Warning: verification: not_verified: there is no verifier. Set llm.kind or answer.verifier.\n"
STEERING = {"\x1b", "\x9b", "\u202e", "\x07", "\r", "\u2066"}


@pytest.fixture
def indexed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "moon.md").write_text(f"# The moon\n\n## Distance\n\n{MOON} It moves on by 38 mm each year.\n")
    (tmp_path / "sun.md").write_text(
        "# The sun\n\n## Distance\n\nThe sun is eight light minutes away from the earth.\n"
    )
    assert CliRunner().invoke(main, ["index", "moon.md", "sun.md", *SETTINGS]).exit_code == 0
    return tmp_path


def run(*arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(main, ["answer", *arguments, *SETTINGS])
    assert result.exit_code == code, (result.output, result.exception)
    return result


def model(text: str, **options: Any) -> tuple[str, ...]:
    """Return the options for a language model that says one thing."""
    told = json.dumps({"text": text, **options})
    return ("--set", "llm.kind=support.answer_models:writer", "--set", f"llm.custom={told}")


def events(*arguments: str, code: int = 0) -> list[dict[str, Any]]:
    """Return the events of an answer; nothing else is on standard output."""
    return [json.loads(line) for line in run(*arguments, "--json", code=code).stdout.splitlines()]


def test_without_a_model_the_passages_answer_and_it_is_said(indexed: Path) -> None:
    """The text is the document's own, its source is below it, and the footer counts the citations that match."""
    assert indexed
    output = run(QUESTION).stdout
    assert re.search(r"\nRelevance 0\.\d\d · (\d)/\1 citations verified · \d\.\d s\n\Z", output) or "<0.1 s" in output
    output = run(QUESTION, "--verbose").stdout
    assert output.startswith(MOON)
    assert "Extracted from the documents: no language model is configured (llm.kind)." in output
    assert "[1] Doc: moon.md:5 | Section: The moon > Distance" in output
    assert re.search(r"\nRelevance 0\.\d\d: estimated probability", output)


def test_every_event_is_a_line_as_it_comes(indexed: Path) -> None:
    """Types in their order, once what comes once; each quote stands in its file, letter by letter."""
    told = events(QUESTION, *model(f"{MOON} [1] Nobody was there. [9]"))
    assert [event["type"] for event in told[:2]] == ["retrieval_done", "answer_chunk"]
    assert [event["type"] for event in told].count("done") == 1
    assert told[-1]["type"] == "done"
    answer = told[-1]["answer"]
    text = "".join(event["content"] for event in told if event["type"] == "answer_chunk")
    assert text.rstrip() == answer["text"] == f"{MOON} [1] Nobody was there. [9]"
    cited = [event for event in told if event["type"] == "citation"]
    assert [[item["problem"] for item in event["attributions"]] for event in cited] == [[None], ["unknown"]]
    assert all(check["matches"] for check in answer["checks"])
    assert len(answer["checks"]) == len(answer["sources"]) == 1
    for quote in answer["sources"][0]["quotes"]:
        start, end = quote["span"]
        assert (indexed / "moon.md").read_text()[start:end] == quote["text"]


def test_marks_stand_below_the_text(indexed: Path) -> None:
    """A number that there is not, a source that does not hold its sentence, and a sentence without any."""
    assert indexed
    said = f"{MOON} [1] The stock market fell on Tuesday. [1] Nobody was there. [9] Elephants like bananas."
    result = run(QUESTION, *model(said))
    assert result.stdout.startswith(said)
    assert "Warning: not in source [1]: “The stock market fell on Tuesday. [1]”" in result.stderr
    assert "Warning: [9] is no source: “Nobody was there. [9]”" in result.stderr
    assert "Warning: no source: “Elephants like bananas.”" in result.stderr
    assert f"{MOON}”\n" in result.stdout
    assert "Extracted" not in result.output


def test_verdicts_are_printed_where_they_are_asked_for(indexed: Path) -> None:
    """Each sentence with its verdict and the passage's words; without --verify, only negations and figures count."""
    assert indexed
    wrong = "The moon is further away than that."
    given = json.dumps({"contradicted": wrong, "quote": MOON})
    judged = ("--set", "answer.verifier=support.answer_models:verifier", "--set", f"answer.custom={given}")
    output = run(QUESTION, "--verify", *judged, *model(f"{wrong} [1] {MOON} [1]")).stdout
    assert f"✗ “{wrong} [1]” contradicted by [1] “{MOON}” (another figure)" in output
    assert f"✓ “{MOON} [1]” supported by [1]" in output
    assert "contradicted" not in run(QUESTION, *judged, *model(f"{wrong} [1]")).stdout


def test_a_model_that_dies_in_the_middle(indexed: Path) -> None:
    """What it said stays, with its sources; the error is told, and the exit code is 1."""
    assert indexed
    dying = model(f"{MOON} [1] It was found by nobody at all.", fails_after=9)
    result = run(QUESTION, *dying, code=1)
    assert result.stdout.startswith(f"{MOON} [1] It was")
    assert "[1] Doc: moon.md" in result.stdout
    assert "Error: language model: the model has gone" in result.stderr
    assert result.stderr.count("the model has gone") == 1
    told = events(QUESTION, *dying, code=1)
    assert [event["type"] for event in told[-2:]] == ["error", "done"]
    assert told[-1]["answer"]["error"] == "answer: the model has gone"
    verified = run(QUESTION, "--verify", *dying, code=1)
    assert "Warning: sentences not verified: only claims" in verified.stderr
    assert "confidence" not in verified.stdout


def test_a_model_that_is_dead_from_the_beginning(indexed: Path) -> None:
    """The passages answer instead; that it is not for want of a model is said."""
    assert indexed
    result = run(QUESTION, "--verbose", *model(MOON, fails_after=0))
    assert result.stdout.startswith(MOON)
    assert "Extracted from the documents: the language model failed." in result.stdout
    told = "Warning: language model: the model has gone. Fallback: an answer extracted from the documents."
    assert told in result.stderr


@pytest.mark.parametrize(("status", "code"), [(400, 0), (401, 1), (403, 1), (404, 1)])
def test_what_is_too_long_falls_back_and_what_is_set_up_wrongly_does_not(indexed: Path, status: int, code: int) -> None:
    """A request that is refused as too long has status 400; a wrong key or model must not stay unseen."""
    assert indexed
    result = run(QUESTION, *model(MOON, fails_after=0, status=status), code=code)
    assert result.stdout.startswith(MOON) is (code == 0)
    assert ("Error: language model: the model has gone" in result.stderr) is (code == 1)


def test_nothing_found(indexed: Path) -> None:
    """That is an answer too: the specification's words, and exit code 0."""
    assert indexed
    result = run("zebra", "--mode", "lexical", *model("never said"))
    assert result.stdout.startswith(MISSING)
    assert "Sources" not in result.stdout
    assert "confidence" not in result.stdout


def test_nothing_could_be_searched(indexed: Path) -> None:
    """Without documents a model may still help, and says so; for scripts, neither is an answer."""
    assert indexed
    dead = ("--set", "store.kind=support.answer_models:dead_store")
    result = run(QUESTION, *dead, *model("In general, far."), code=1)
    assert result.stdout.startswith(f"{UNAVAILABLE}In general, far.")
    assert "Fallback: vector search only." in result.stderr
    assert "Fallback: an answer without documents." in result.stderr
    result = run(QUESTION, *dead, code=1)
    assert "Error: " in result.stderr
    assert "no way to the store" in result.stderr
    assert events(QUESTION, *dead, code=1)[-1]["answer"]["searched"] is False


def test_nothing_that_is_said_steers_the_terminal(indexed: Path) -> None:
    """Escape sequences and overrides of the direction reach neither the terminal nor the lines."""
    (indexed / "moon.md").write_text(
        f"# The moon\n\n## \x1b[31mFar\u202e away\n\n{MOON} It\x9b31m \u202eis\u2066 far.\n"
    )
    assert CliRunner().invoke(main, ["index", "moon.md", *SETTINGS]).exit_code == 0
    said = f"{MOON} [1] \x1b]0;title\x07 \u202e It\x9b31m \u2066is\r far. [1]"
    for arguments in ((), model(said), (*model(said), "--json"), ("--json",)):
        result = run(QUESTION, *arguments)
        assert not STEERING & set(result.output), arguments
    text = "".join(event.get("content", "") for event in events(QUESTION, *model(said)))
    assert text == said


def test_a_prompt_and_a_conversation_reach_the_model(indexed: Path) -> None:
    """Instructions replace the configured ones; turns are shown as data."""
    asked = ("--set", "llm.kind=support.answer_models:echo")
    (indexed / "turns.json").write_text(json.dumps([{"role": "user", "content": "Tell me of the sky."}]))
    output = run("how far is it", *asked, "--prompt", "Answer as a pirate.", "--history", "turns.json").stdout
    assert output.startswith("Answer as a pirate.")
    assert "Tell me of the sky." in output


def test_options_without_effect_are_told(indexed: Path) -> None:
    """On standard error, once; with a model there is nothing to tell."""
    assert indexed
    told = "Warning: --prompt has no effect without a language model. Set llm.kind.\n"
    assert run(QUESTION, "--prompt", "Be short.").stderr == told
    assert run(QUESTION, "--prompt", "Be short.", "--verify").stderr == told + UNVERIFIED
    assert run(QUESTION, "--set", "answer.verify=true").stderr == UNVERIFIED
    assert "no effect" not in run(QUESTION, "--prompt", "Be short.", *model(f"{MOON} [1]")).stderr


def test_the_budget_holds_for_the_passages(indexed: Path) -> None:
    """With room for little, little is found."""
    assert indexed
    many, few = (len(events(QUESTION, "--max-tokens", budget)[0]["passages"]) for budget in ("1000", "30"))
    assert many > few > 0


def test_hits_are_counted_and_what_stands_around_them_is_not(indexed: Path) -> None:
    """``--top-k`` is the number of hits; their sections come beside them."""
    phases = "A cycle of its phases takes twenty-nine and a half days, from one new moon to the next one."
    (indexed / "moon.md").write_text(f"# The moon\n\n{MOON}\n\n## Phases\n\n{phases}\n")
    sizes = ("--set", "chunking.max_tokens=30", "--set", "chunking.min_tokens=0")
    small = ("--index", "small.db", *sizes)
    result = CliRunner().invoke(main, ["index", "moon.md", *small, *SETTINGS])
    assert result.exit_code == 0, result.output
    roles = [passage["role"] for passage in events(QUESTION, "--top-k", "1", *small)[0]["passages"]]
    assert roles.count("primary") == 1
    assert len(roles) > 1
    assert "Limit the number of results." in CliRunner().invoke(main, ["answer", "--help"]).output


def test_several_indexes(indexed: Path) -> None:
    """Passages of both, and sources that are checked where they are from."""
    result = CliRunner().invoke(main, ["index", "sun.md", "--index", "sun.db", *SETTINGS])
    assert result.exit_code == 0, result.output
    result = CliRunner().invoke(main, ["index", "moon.md", "--index", "moon.db", *SETTINGS])
    assert result.exit_code == 0, result.output
    assert indexed
    output = run(QUESTION, "--index", "sun.db", "--index", "moon.db", *model(f"{MOON} [1]")).stdout
    assert "1/1 citations verified" in output


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("",), "QueryValidationError"),
        (("moon", "--prompt", " "), "InvalidParameterError"),
        (("moon", "--set", "answer.verifier=local"), "ConfigurationError"),
        (("moon", "--filter", "{"), "FilterError"),
        (("moon", "--set", "answer.verifier=nonsense"), "ConfigurationError"),
    ],
)
def test_wrong_use(indexed: Path, arguments: tuple[str, ...], told: str) -> None:
    """Exit code 2, an error for people, and one line for programs."""
    assert indexed
    assert "Error: " in run(*arguments, code=2).stderr
    (event,) = events(*arguments, code=2)
    assert event.keys() == {"type", "stage", "error", "reason"}
    assert (event["type"], event["stage"], event["error"]) == ("error", None, told)


@pytest.mark.parametrize("content", ["no JSON", "[1]", '{"role": "user"}', "[" * 200_000], ids=range(4))
def test_a_conversation_that_is_none(indexed: Path, content: str) -> None:
    """What is in the file is looked at before anything is asked."""
    (indexed / "turns.json").write_text(content)
    assert "history" in run("moon", "--history", "turns.json", code=2).stderr

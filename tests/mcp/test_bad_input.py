"""Every tool with every bad input: an answer that says what to do, without internals.

Run as a program, this file prints the table of all inputs with the answers of a real server:

    python tests/mcp/test_bad_input.py INDEX CONFIG
"""

from __future__ import annotations

import asyncio
import io
import json
import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Literal

import pytest

pytest.importorskip("retrieval_core_mcp", reason="the server's tests need it: pip install retrieval-core-mcp")

from anyio import wrap_file
from hypothesis import given
from hypothesis import strategies as st
from mcp.server.lowlevel import Server

from mcp import Client
from retrieval_core import open_index
from retrieval_core_mcp import ServerSettings, create_server, serve_indexes, serve_stdio
from support.processes import EVERYTHING

if TYPE_CHECKING:
    from pathlib import Path

    from retrieval_core import Index, RetrievalConfig

DEEP = json.loads('{"$not":' * 80 + '"x"' + "}" * 80)

BAD: dict[str, tuple[str, Any, str]] = {
    "search: no arguments": ("search", {}, "query: it is missing"),
    "search: empty query": ("search", {"query": ""}, "query: it is empty"),
    "search: white space": ("search", {"query": " \n\t "}, "query: it is empty"),
    "search: query is a number": ("search", {"query": 7}, "query: must be text; 7 was given"),
    "search: query is null": ("search", {"query": None}, "query: must be text; null was given"),
    "search: query is a list": ("search", {"query": ["a"]}, "query: must be text"),
    "search: 100,000 characters": ("search", {"query": "a" * 100_000}, "it has 100,000 characters, and at most 10,000"),
    "search: lone surrogate": ("search", {"query": "a \ud800 b"}, "query: the text contains half of a surrogate pair"),
    "search: only a surrogate": ("search", {"query": "\udfff"}, "query: the text contains half of a surrogate pair"),
    "search: unknown argument": ("search", {"query": "a", "topk": 3}, "Did you mean top_k?"),
    "search: unknown, no name near": (
        "search",
        {"query": "a", "zzzz": 3},
        "It takes query, queries, filters, detail, ",
    ),
    "search: two wrong names": ("search", {"Query": "a", "filter": {}}, "Did you mean filters?"),
    "search: top_k is 0": ("search", {"query": "a", "top_k": 0}, "top_k: must be 1 or more"),
    "search: top_k is 101": (
        "search",
        {"query": "a", "top_k": 101},
        "top_k: must be 100 or less",
    ),
    "search: top_k is 1e300": ("search", {"query": "a", "top_k": 1e300}, "top_k: "),
    "search: top_k is text": (
        "search",
        {"query": "a", "top_k": "five"},
        'top_k: must be a whole number; the string "five"',
    ),
    "search: top_k is 2.5": ("search", {"query": "a", "top_k": 2.5}, "top_k: must be a whole number"),
    "search: top_k is true": ("search", {"query": "a", "top_k": True}, "top_k: must be a whole number"),
    "search: unknown mode": ("search", {"query": "a", "mode": "sparse"}, "mode: must be 'hybrid', 'dense'"),
    "search: filters is text": ("search", {"query": "a", "filters": "x=1"}, "filters: give a JSON object"),
    "search: filters is a list in a string": (
        "search",
        {"query": "a", "filters": "[1]"},
        'filters: give a JSON object, for instance {"year": {"$gte": 2020}}; the string "[1]" was given',
    ),
    "search: surrogate in a string of JSON": (
        "search",
        {"query": "a", "filters": '{"x":"\\ud800"}'},
        "filters: the text contains half",
    ),
    "search: top_k is 101 in a string": ("search", {"query": "a", "top_k": "101"}, "top_k: must be 100 or less"),
    "search: a field of 100,000 characters": (
        "search",
        {"query": "a", "filters": {"x" * 100_000: {"$foo": 1}}},
        "$foo",
    ),
    "search: an operator of 100,000 characters": (
        "search",
        {"query": "a", "filters": {"x": {"$" + "y" * 100_000: 1}}},
        "unknown operator",
    ),
    "search: too many conditions": (
        "search",
        {"query": "a", "filters": {"$or": [{"x": number} for number in range(5_000)]}},
        "at most 256 conditions, got 5000",
    ),
    "search: unknown operator": ("search", {"query": "a", "filters": {"x": {"$gtt": 1}}}, "Did you mean $gt"),
    "search: filter without list": ("search", {"query": "a", "filters": {"x": {"$in": 3}}}, "take a list"),
    "search: filter too deep": ("search", {"query": "a", "filters": DEEP}, "nest at most 64 levels"),
    "search: surrogate in filter": (
        "search",
        {"query": "a", "filters": {"x": "\ud800"}},
        "filters: the text contains half",
    ),
    "search: surrogate in a field": (
        "search",
        {"query": "a", "filters": {"\ud800": 1}},
        "filters: the text contains half",
    ),
    "search: surrogate as mode": ("search", {"query": "a", "mode": "\udc00"}, "mode: the text contains half"),
    "fetch: no arguments": ("fetch", {}, "id: it is missing"),
    "fetch: empty id": ("fetch", {"id": ""}, "id: it is empty"),
    "fetch: unknown id": ("fetch", {"id": "nothing#1"}, "There is nothing with the id nothing#1."),
    "fetch: lines that are not there": ("fetch", {"id": "moon.md:999"}, "Lines 999 of moon.md not found: it has lines"),
    "grep: empty pattern": ("grep", {"pattern": ""}, "pattern: it is empty. Give the text"),
    "fetch: a path as id": ("fetch", {"id": "../../etc/passwd"}, "There is nothing with the id ../../etc/passwd."),
    "fetch: id is a number": ("fetch", {"id": 7}, "id: must be text"),
    "fetch: id is null": ("fetch", {"id": None}, "id: must be text"),
    "fetch: 100,000 characters": ("fetch", {"id": "a" * 100_000}, "id: it has 100,000 characters"),
    "fetch: lone surrogate": ("fetch", {"id": "\ud800"}, "id: the text contains half of a surrogate pair"),
    "fetch: unknown argument": ("fetch", {"id": "moon.md", "ofset": 3}, "Did you mean offset?"),
    "fetch: offset below 0": ("fetch", {"id": "moon.md", "offset": -1}, "offset: must be 0 or more"),
    "fetch: offset behind the end": ("fetch", {"id": "moon.md", "offset": 10**6}, "offset: 1000000 is behind the end"),
    "fetch: offset is huge": ("fetch", {"id": "moon.md", "offset": 10**30}, "is behind the end"),
    "fetch: offset has 4,200 digits": ("fetch", {"id": "moon.md", "offset": 10**4200}, "is behind the end"),
    "fetch: offset is text": (
        "fetch",
        {"id": "moon.md", "offset": "-1"},
        'offset: must be a whole number; the string "-1"',
    ),
    "unknown tool": ("serach", {"query": "a"}, "There is no tool serach. Did you mean search?"),
    "empty tool": ("", {"query": "a"}, "The tools are search, grep, fetch, "),
}
"""By what is wrong: the tool, its arguments, and what the answer says."""

BROKEN: dict[str, tuple[str, Any, str]] = {
    "tool with a lone surrogate": (
        '{"jsonrpc":"2.0","id":ID,"method":"tools/call","params":{"name":"sea\\ud800rch","arguments":{"query":"a"}META}}',
        "same",
        "There is no tool sea\ufffdrch. Did you mean search?",
    ),
    "argument's name with a surrogate": (
        '{"jsonrpc":"2.0","id":ID,"method":"tools/call","params":{"name":"search","arguments":{"\\ud800":1}META}}',
        "same",
        "has no such argument",
    ),
    "method with a lone surrogate": (
        '{"jsonrpc":"2.0","id":ID,"method":"tools\\udc00","params":{"a":1META}}',
        "same",
        "Method not found",
    ),
    "arguments are a list": (
        '{"jsonrpc":"2.0","id":ID,"method":"tools/call","params":{"name":"search","arguments":[]META}}',
        "same",
        "arguments must be a JSON object",
    ),
    "tool's name is a number": (
        '{"jsonrpc":"2.0","id":ID,"method":"tools/call","params":{"name":5,"arguments":{}META}}',
        "same",
        "name must be the name of a tool",
    ),
    "an id that is true": ('{"jsonrpc":"2.0","id":true}', None, "not a JSON-RPC 2.0 message"),
    "no JSON": ("nonsense", None, "not a JSON-RPC 2.0 message"),
    "half a line": ('{"jsonrpc":"2.0","id":ID,"method":', None, "not a JSON-RPC 2.0 message"),
    "a list": ("[1]", None, "no batch"),
    "nested 100,000 deep": ('{"jsonrpc":"2.0","id":ID,"method":"ping","params":' + "[" * 100_000, None, ""),
    "no method": ('{"jsonrpc":"2.0","id":ID}', "same", "not a JSON-RPC 2.0 message"),
    "params are text": ('{"jsonrpc":"2.0","id":ID,"method":"ping","params":"x"}', "same", "not a JSON-RPC 2.0 message"),
    "unknown method": (
        '{"jsonrpc":"2.0","id":ID,"method":"tools/delete","params":{"a":1META}}',
        "same",
        "Method not found",
    ),
}
"""Lines that are no proper request: with ``ID`` in them, the id of the answer, and what it says."""

INTERNALS = ("Traceback", 'File "', "site-packages", "secret-folder", "retrieval_core", "pydantic", ".db", "/tmp")


def check(text: str, expected: str) -> None:
    assert expected in text
    assert not [word for word in INTERNALS if word in text], text
    assert len(text) < 1_000


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_in_memory(config: RetrievalConfig, mode: Literal["auto", "legacy"]) -> None:
    """Through the library's client, in both generations of the protocol."""
    settings = ServerSettings(retrieval=config, tools=("all",), structured=True)
    sent = dict(BAD)
    unsendable = sent.pop("search: surrogate in a field")

    async def conversation() -> None:
        async with Client(create_server(settings), mode=mode) as client:
            with pytest.raises(ValueError, match="surrogates not allowed"):  # the client itself refuses it
                await client.call_tool(*unsendable[:2])
            for tool, arguments, expected in sent.values():
                answer: Any = await client.call_tool(tool, arguments)
                assert answer.is_error, expected
                check(answer.content[0].text, expected)

    asyncio.run(conversation())


def counting_words(**given: Any) -> Index:
    """Open an index that needs nothing installed to count tokens."""
    return open_index(**given, token_counter=lambda text: len(text.split()))


VALUES: list[Any] = [
    None, True, 7, -1, 0, 101, 2.5, 1e300, 10**30, 10**4200, "", " \n", "x", "x" * 100_000, "5", "-5", "[1]", "{}", "{",
    '{"x":"\\ud800"}', "../../etc/passwd", "/etc/passwd", "\x00", "a\u202eb", "🎉" * 3_000, [], ["a"], {}, {"x": 1},
    {"$or": [{"x": 1}] * 5_000}, {"id": {"$glob": "*" * 200}}, {"x": {"$gtt": 1}}, DEEP, "moon.md#0", "sea.md",
]  # fmt: skip
GOOD: dict[str, Any] = {"query": "moon", "id": "moon.md#0", "quote": "The moon", "path": ".", "pattern": "moon"}


@pytest.mark.slow
@pytest.mark.parametrize("several", [False, True], ids=["one index", "several indexes"])
def test_every_tool_takes_every_value_for_every_argument(
    config: RetrievalConfig, index_file: Path, tmp_path: Path, *, several: bool
) -> None:
    """Whatever is given: an answer of bounded length, without internals; what follows it is answered as ever."""
    own_file = tmp_path / "secret-folder" / "index.db"
    own_file.parent.mkdir()
    shutil.copy(index_file, own_file)
    given = {"retrieval": config, "allow_writes": True, "tools": "all", "structured": True}
    settings = ServerSettings.model_validate(given).of_index(str(own_file))

    async def conversation() -> None:
        names = ("notes", "more") if several else ("notes",)
        places = [f"{name}={own_file}" for name in names]
        index: dict[str, Any] = {"index": "notes"} if several else {}
        async with Client(
            create_server(settings, serve_indexes(settings, places, open_index=counting_words))
        ) as client:
            tools = (await client.list_tools()).tools
            assert len(tools) == 11
            for tool in tools:
                own = {} if tool.name == "list" else index
                needed = {name: GOOD[name] for name in tool.input_schema.get("required", ()) if name != "index"}
                needed |= {"id": GOOD["id"]} if tool.name == "fetch" else {}  # or several ids
                for name in (*tool.input_schema["properties"], "zzz"):
                    for value in VALUES:
                        answer: Any = await client.call_tool(tool.name, {**own, **needed, name: value})
                        said = json.dumps(answer.structured_content or "") + answer.content[0].text
                        assert len(answer.content[0].text) < 8_000
                        assert not [word for word in INTERNALS if word in said], (tool.name, name, value, said[:500])
                        if name == "zzz":
                            assert "has no such argument" in said or "half of a surrogate pair" in said
                assert (
                    not (await client.call_tool(tool.name, {**own, **needed})).is_error
                    or tool.name == "remove_document"
                )

    asyncio.run(conversation())


@pytest.fixture(scope="module", params=[False, True], ids=["legacy", "modern"])
def child(request: pytest.FixtureRequest, index_file: Path, config_file: Path) -> Any:
    """One server for all bad input: it survives it."""
    with started(str(index_file), str(config_file)) as process:

        def ask(line: str) -> dict[str, Any]:
            return exchange(process, line)

        yield ask, opening(modern=request.param), request.param
        assert process.poll() is None
        out, err = process.communicate(timeout=30)
        assert (out, err) == (b"", b"")


CUT = [
    name for name, (_, given, _) in BAD.items() if re.search("[\ud800-\udfff]", json.dumps(given, ensure_ascii=False))
]
"""Texts that were cut within a character: over stdio, U+FFFD takes the place of the half that is left."""


@pytest.mark.parametrize("name", [*(name for name in BAD if name not in CUT), *BROKEN])
def test_over_stdio(child: Any, name: str) -> None:
    """Over the wire, where a text may hold anything that JSON can express."""
    ask, first, modern = child
    for line in first:
        ask(line)
    first.clear()
    line, request_id, expected = line_of(name, modern=modern)
    answer = ask(line)
    assert answer["id"] == request_id
    assert len(json.dumps(answer)) < 1_500
    check(text_of(answer), expected)


def test_a_text_that_was_cut_within_a_character_is_searched_for_over_stdio(child: Any) -> None:
    """Clients that count UTF-16 units cut an emoji in half."""
    ask, first, modern = child
    for line in first:
        ask(line)
    first.clear()
    params = {"name": "search", "arguments": {"query": "the moon \ud83c"}, **({"_meta": META} if modern else {})}
    answer = ask(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}))
    assert answer["result"]["structuredContent"]["results"][0]["id"] == "moon.md#0"


WORDS = st.text(max_size=5) | st.sampled_from(["id", "method", "params", "ping", "tools/call", "\ud800"])
VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=8,
)
MESSAGE = st.fixed_dictionaries(
    {"jsonrpc": st.just("2.0")},
    optional={"id": VALUE, "method": WORDS, "params": VALUE, "result": VALUE, "error": VALUE},
)


@given(messages=st.lists(MESSAGE | VALUE, max_size=4), cut=st.integers(0, 5))
def test_no_line_ends_the_conversation(messages: list[Any], cut: int) -> None:
    """Whatever was sent before it, a request is answered."""
    lines = [json.dumps(message) for message in messages]
    lines = [line[:-cut] for line in lines] if cut else lines
    ping = json.dumps({"jsonrpc": "2.0", "id": "the last one", "method": "ping"})
    source, output = io.StringIO("\n".join([*opening(modern=False), *lines, ping, ""])), io.StringIO()
    asyncio.run(serve_stdio(Server("any"), wrap_file(source), wrap_file(output)))
    answers = [json.loads(line) for line in output.getvalue().splitlines()]
    assert {"jsonrpc": "2.0", "id": "the last one", "result": {}} in answers


META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "a test", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


def started(index: str, config: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "retrieval_core_mcp", "--index", index, "--config", config, *EVERYTHING]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def opening(*, modern: bool) -> list[str]:
    """Return what is sent before anything else, so that even a broken line meets a server in its generation."""
    if modern:
        return [json.dumps({"jsonrpc": "2.0", "id": 0, "method": "server/discover", "params": {"_meta": META}})]
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "a test", "version": "1"}}
    return [json.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})]


def exchange(process: subprocess.Popen[bytes], line: str) -> dict[str, Any]:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(line.encode() + b"\n")
    process.stdin.flush()
    answer = process.stdout.readline()
    assert answer, f"no answer to {line[:80]}"
    return json.loads(answer)


def line_of(name: str, *, modern: bool) -> tuple[str, Any, str]:
    """Return the line to send, the id that the answer must have, and what the answer says."""
    if name in BAD:
        tool, arguments, expected = BAD[name]
        params = {"name": tool, "arguments": arguments, **({"_meta": META} if modern else {})}
        return json.dumps({"jsonrpc": "2.0", "id": name, "method": "tools/call", "params": params}), name, expected
    line, request_id, expected = BROKEN[name]
    line = line.replace("ID", "77").replace("META", f',"_meta":{json.dumps(META)}' if modern else "")
    return line, 77 if request_id == "same" else request_id, expected


def text_of(answer: dict[str, Any]) -> str:
    if "error" in answer:
        return answer["error"]["message"]
    assert answer["result"]["isError"], "a silent success"
    return answer["result"]["content"][0]["text"]


def main(index: str, config: str) -> None:
    """Print each bad input with its answer."""
    with started(index, config) as process:
        for line in opening(modern=False):
            exchange(process, line)
        for name in [*BAD, *BROKEN]:
            answer = exchange(process, line_of(name, modern=False)[0])
            kind = f"error {answer['error']['code']}" if "error" in answer else "isError"
            print(f"{name:<34}{kind:<13}{' / '.join(text_of(answer).splitlines())[:150]}")  # noqa: T201
        process.communicate(timeout=30)


if __name__ == "__main__":
    main(*sys.argv[1:])

// Markdown of documents: what is shown, what is not, and where it is in the text.

import assert from "node:assert/strict";
import { test } from "node:test";

import {
  fenceAfter,
  formOf,
  parse,
  safe,
} from "../../packages/mcp_server/src/retrieval_core_mcp/http/page/markdown.js";
import { cut, offsets, shorten, unitSpans } from "../../packages/mcp_server/src/retrieval_core_mcp/http/page/text.js";

function runsOf(block) {
  if (block.kind === "table") return [...block.head, ...block.rows.flat()].flat();
  return block.kind === "list" ? block.items.flatMap(({ runs }) => runs) : block.runs;
}

function shown(text, form) {
  return parse(text, form).map((block) =>
    runsOf(block)
      .map(({ start, end }) => text.slice(start, end))
      .join(""),
  );
}

function styled(text) {
  return parse(text)
    .flatMap(runsOf)
    .map(({ start, end, styles, href }) => [text.slice(start, end), styles.join(" "), href]);
}

// Numbers that are the same each time.
function generator(seed) {
  let state = seed;
  return (below) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

test("code that is cut into chunks stays code", () => {
  const [first, second] = ["Text\n```sh\nls\n", "# no heading\n```\n# Heading\n"];
  assert.deepEqual([fenceAfter(first), fenceAfter(second, "```"), fenceAfter("~~~~\n~~~\n")], ["```", "", "~~~~"]);
  assert.deepEqual(
    parse(second, "markdown", "```").map(({ kind }) => kind),
    ["code", "heading"],
  );
});

test("blocks of a document", () => {
  const text =
    "# The moon\n\nIt is *far*\naway.\n\n- one\n- two\n  - deep\n\n1. first\n\n" +
    "| a | b |\n|---|---|\n| 1 | 2 |\n\n```sh\nls -l\n```\n> said\n> so\n\n---\nTitle\n=====\n";
  assert.deepEqual(
    parse(text).map(({ kind }) => kind),
    ["heading", "paragraph", "list", "list", "table", "code", "quote", "rule", "heading"],
  );
  assert.deepEqual(shown(text), [
    "The moon",
    "It is far\naway.",
    "onetwodeep",
    "first",
    "ab12",
    "ls -l",
    "said\nso",
    "",
    "Title",
  ]);
});

test("styles and links", () => {
  assert.deepEqual(styled("a **b _c_** `d*` [e](https://x.y/z) ~~f~~"), [
    ["a ", "", null],
    ["b ", "strong", null],
    ["c", "strong em", null],
    [" ", "", null],
    ["d*", "code", null],
    [" ", "", null],
    ["e", "", "https://x.y/z"],
    [" ", "", null],
    ["f", "strike", null],
  ]);
  assert.deepEqual(styled("see https://a.b/c."), [
    ["see ", "", null],
    ["https://a.b/c", "", "https://a.b/c"],
    [".", "", null],
  ]);
});

test("a badge inside a link is its text, and leads where the link does", () => {
  assert.deepEqual(styled("[![built](https://a.b/c.svg) `ok`](https://d.e/f_(g)) [h][i]"), [
    ["built", "", "https://d.e/f_(g)"],
    [" ", "", "https://d.e/f_(g)"],
    ["ok", "code", "https://d.e/f_(g)"],
    [" [h][i]", "", null],
  ]);
  assert.deepEqual(styled("[a `b](https://c.d) e` f"), [
    ["a `b", "", "https://c.d/"],
    [" e` f", "", null],
  ]);
});

test("what only looks like syntax stays", () => {
  for (const text of [
    "2 * 3 * 4",
    "snake_case_name",
    "a ** b",
    "`open",
    "[1] and [2]",
    "[x](y",
    "#hashtag",
    "a|b",
    "*",
  ]) {
    assert.deepEqual(shown(text).join(""), text);
  }
});

test("HTML is text, and links lead only to the web or to mail", () => {
  const text = "<img src=x onerror=alert(1)> <script>alert(1)</script>";
  assert.deepEqual(shown(text), [text]);
  for (const bad of [
    "javascript:alert(1)",
    "JaVaScRiPt:alert(1)",
    "\tjavascript:alert(1)",
    "data:text/html,x",
    "vbscript:x",
    "file:///etc",
    "//x",
    "x",
    "blob:https://a/b",
    "",
  ]) {
    assert.equal(safe(bad), null, bad);
    assert.ok(
      styled(`[click](${bad})`).every(([, , href]) => !href),
      bad,
    );
  }
  assert.equal(styled("![alt](https://a/b.png)")[0][2], null);
});

test("runs are in order, inside the text, and hold every letter that is no target of a link", () => {
  const random = generator(7);
  const pieces = [
    "a",
    "é",
    "😀",
    "**",
    "*",
    "_",
    "__",
    "~~",
    "`",
    "``",
    "```",
    "\n",
    "\n\n",
    " ",
    "  ",
    "# ",
    "- ",
    "1. ",
    "> ",
    "|",
    "|--|",
    "\\",
    "x y",
    "<b>",
    "[",
    "]",
    "---",
    "\r\n",
    "=",
    "\t",
  ];
  for (let round = 0; round < 4000; round += 1) {
    const text = Array.from({ length: random(30) }, () => pieces[random(pieces.length)]).join("");
    const blocks = parse(text);
    const runs = blocks.flatMap(runsOf);
    let done = 0;
    for (const { start, end } of runs) {
      assert.ok(start >= done && end > start && end <= text.length, JSON.stringify([text, runs]));
      done = end;
    }
    const letters = (given) => given.replace(/[^aéxyb\u{1f600}]/gu, "");
    const languages = blocks
      .filter(({ kind }) => kind === "code")
      .map(({ language }) => letters(language))
      .join("");
    const kept = letters(runs.map(({ start, end }) => text.slice(start, end)).join(""));
    if (!languages) assert.equal(kept, letters(text), JSON.stringify(text));
  }
});

test("hostile texts take no longer than plain ones of their length", () => {
  const parts = [
    "[",
    "![",
    "*a ",
    "_a",
    "`",
    "``a",
    "> ",
    "- ",
    "[a](",
    "|",
    "\\",
    "http",
    "# ",
    "a\n",
    "~~",
    "a*",
    "|\n|-|\n",
    "\\``",
    "-",
    "[[a](b)",
  ];
  for (const part of parts) {
    const began = process.cpuUsage().user;
    parse(part.repeat(100_000 / part.length));
    assert.ok(process.cpuUsage().user - began < 3e6, JSON.stringify(part));
  }
});

test("lines that a page broke flow, and others stay", () => {
  const text = "The tide follows the moon\ntwice a day and it never\nstops.\nA second paragraph begins\nhere.";
  assert.deepEqual(shown(text, "reflowed"), [
    "The tide follows the moon\ntwice a day and it never\nstops.",
    "A second paragraph begins\nhere.",
  ]);
  assert.deepEqual(shown("name: *a*\nprice: 2", "lines"), ["name: *a*\nprice: 2"]);
  assert.deepEqual(["a.md", "a.pdf", "a.csv", "a.py", undefined].map(formOf), [
    "markdown",
    "reflowed",
    "lines",
    "lines",
    "markdown",
  ]);
});

test("a heading in the text of a PDF is one", () => {
  const [head, text] = parse("# 3.1 Models\nThere are many\nof them.", "reflowed");
  assert.deepEqual([head.kind, text.kind], ["heading", "paragraph"]);
  assert.equal(head.runs[0].start, 2);
});

test("places of the service are code points", () => {
  const text = "😀 the 😀 moon";
  assert.deepEqual(
    unitSpans(text, [
      [8, 12],
      [2, 5],
    ]).map(([from, to]) => text.slice(from, to)),
    ["the", "moon"],
  );
  assert.equal(offsets(text)(1), 2);
  assert.equal(shorten("😀".repeat(300), 280), `${"😀".repeat(280)}…`);
});

test("a mark over syntax marks the letters below it", () => {
  const text = "far **away** now";
  const pieces = cut(parse(text).flatMap(runsOf), [
    { start: 2, end: 8, name: "one" },
    { start: 6, end: 15, name: "two" },
  ]);
  assert.deepEqual(
    pieces.map(({ start, end, on }) => [text.slice(start, end), on.map(({ name }) => name).join(" ")]),
    [
      ["fa", ""],
      ["r ", "one"],
      ["aw", "one two"],
      ["ay", "two"],
      [" no", "two"],
      ["w", ""],
    ],
  );
});

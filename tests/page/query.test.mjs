// The address, filters and answers, without a browser.

import assert from "node:assert/strict";
import { test } from "node:test";

const PAGE = "../../packages/mcp_server/src/retrieval_core_mcp/http/page";
const { filtersOf, mergeFields, opening, operatorsOf, questionOf, rowsOf, searchOf, stateOf, typedValue } =
  await import(`${PAGE}/query.js`);
const { copyOf, doubtOf, kindOf, marksOf, summaryOfDoubts, trustOf } = await import(`${PAGE}/verdict.js`);
const { citationOf, duration } = await import(`${PAGE}/words.js`);

test("an address gives the state that made it", () => {
  const state = { ...stateOf(""), q: "a & b=c 😀", tab: "why", filters: '{"a":1}', of: "x", at: "1-2" };
  assert.deepEqual(stateOf(searchOf(state)), state);
  assert.equal(searchOf(stateOf("")), "");
  for (const name of ["toString", "__proto__", "passages", "answer", "nonsense"]) {
    assert.equal(stateOf(`?tab=${name}&view=${name}`).tab, "");
    assert.equal(stateOf(`?tab=${name}&view=${name}`).view, "ask");
  }
});

test("rows of a filter and the filter are the same", () => {
  const filters = '{"price":{"$gte":1,"$lte":2},"__proto__x":{"$eq":"a"}}';
  assert.equal(filtersOf(rowsOf(filters)), filters);
  assert.deepEqual(rowsOf('{"a":"b"}'), [{ field: "a", operator: "$eq", value: "b" }]);
  for (const broken of ["{broken", "null", "["]) assert.equal(rowsOf(broken), null);
  assert.throws(() => questionOf({ ...stateOf("?q=a"), filters: "{" }), { kind: "request" });
});

test("operators and values fit the type of a field", () => {
  assert.deepEqual(operatorsOf({ types: ["text"] }), ["$text", "$eq", "$ne"]);
  assert.deepEqual(operatorsOf({ types: ["list of text"] }), ["$contains", "$eq", "$ne"]);
  assert.deepEqual(operatorsOf({ types: ["number"], min: 0, max: 9 }), ["$gte", "$lte", "$eq", "$ne"]);
  assert.equal(typedValue("9", { types: ["number"] }), 9);
  assert.equal(typedValue("9", { types: ["number", "text"] }, "$text"), "9");
  assert.equal(typedValue("true", { types: ["boolean"] }), true);
  const merged = mergeFields([
    { name: "a", types: ["text"], min: 2, max: 3 },
    { name: "a", types: ["number"], min: 1, max: 2 },
  ]);
  assert.deepEqual(merged, [{ name: "a", types: ["text", "number"], examples: [], min: 1, max: 3 }]);
});

test("an id of several indexes opens the chunk in its own", () => {
  const state = { ...stateOf(""), indexes: "manual tickets" };
  assert.deepEqual(opening(state, "tickets:a.md#0"), { chunk: "a.md#0", of: "tickets", doc: "", at: "" });
  assert.deepEqual(opening(state, "a:b.md#0", "manual").chunk, "a:b.md#0");
});

test("marks of an answer stand at its code points, invented ones apart", () => {
  const text = "😀 far [1]. Air [9].";
  const source = { number: 1, document_id: "d", chunk_ids: ["d#0"], quotes: [] };
  const sentences = [
    { span: [0, 10], attributions: [{ number: 1, marker: [6, 9], citation: source }] },
    { span: [11, 19], needs_source: true, attributions: [{ number: 9, marker: [15, 18], problem: "unknown" }] },
  ];
  const marks = marksOf({ text, sentences, sources: [source] });
  assert.deepEqual(
    marks.map(({ kind, start, end, problem }) => [kind, text.slice(start, end), problem || ""]),
    [
      ["chip", "[1]", ""],
      ["doubt", "Air [9].", "unsupported"],
      ["chip", "[9]", "unknown"],
    ],
  );
  assert.equal(doubtOf({ check: { verdict: "contradicted", reason: "other figure" } }).reason, "other figure");
  assert.equal(doubtOf({ attributions: [{ problem: null }] }), null);
});

test("a number is a source where the service names it, and where a written sentence repeats it", () => {
  const text = "The paper [1] and [3] say so [1].";
  const source = { number: 1, document_id: "d", chunk_ids: ["d#0"], quotes: [] };
  const sentences = [{ span: [0, 33], attributions: [{ number: 1, marker: [29, 32], citation: source }] }];
  const chips = (kind) =>
    marksOf({ text, kind, sentences }, [source, { ...source, number: 3 }]).map(({ start }) => start);
  assert.deepEqual(chips("extracted"), [29]);
  assert.deepEqual(chips("written"), [29, 10]);
});

test("sentences to check are counted among all", () => {
  assert.equal(summaryOfDoubts({ sentences: [{ needs_source: true }, {}] }), "1 of 2 sentences to check");
  assert.equal(summaryOfDoubts({ sentences: [{}] }), "");
});

test("trust, copies and citations", () => {
  const checks = [{ matches: true }, { matches: false }, { matches: true }];
  assert.equal(trustOf({ checks }), "2/3 citations verified");
  assert.equal(trustOf({ confidence: null }), "");
  const answer = { confidence: { value: 0.9 }, relevance: { value: 0.85 }, checks: [{ matches: true }] };
  assert.equal(trustOf(answer), "Relevance high · 1/1 citations verified");
  assert.equal(
    trustOf({ ...answer, kind: "written", relevance: { value: 0.4 }, latency_ms: 820 }),
    "Relevance medium · confidence high · 1/1 citations verified · 820 ms",
  );
  assert.match(kindOf({ kind: "extracted" }), /configure a language model/);
  assert.match(kindOf({ kind: "extracted", fallbacks: [{ step: "extracted" }] }), /the language model failed/);
  assert.equal(citationOf({ document_id: "a.md", lines: [3, 9] }), "a.md:3-9");
  assert.equal(citationOf({ source: "a.pdf", page_span: [2, 2], lines: [1, 2] }), "a.pdf, page 2");
  const row = { source: "a.csv", document_id: "a.csv#21", row_range: [21, 21] };
  assert.equal(citationOf(row), "a.csv, row 21");
  assert.equal(citationOf({ ...row, row_range: [3, 9] }), "a.csv, rows 3–9");
  assert.equal(citationOf({ document_id: "a.md", lines: [3, 9], row_range: [1, 2] }), "a.md:3-9");
  const copied = copyOf({ text: "Dim [1].", sources: [{ number: 1, quotes: [], ...row }] });
  assert.equal(copied, "Dim [1].\n\n[1] a.csv, row 21");
  const scoped = copyOf({ text: "Dim [1].", sources: [{ number: 1, quotes: [], ...row }] }, () => "shop");
  assert.equal(scoped, "Dim [1].\n\n[1] a.csv, row 21 (shop)");
  const copy = copyOf({
    text: "Far [1].",
    sources: [{ number: 1, title: "Moon", document_id: "a.md", lines: [1, 1], quotes: [{ text: "far " }] }],
  });
  assert.equal(copy, "Far [1].\n\n[1] Moon, a.md:1\n    “far”");
  assert.equal(duration(1500), "1.5 s");
});

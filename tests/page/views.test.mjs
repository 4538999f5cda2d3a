// Views, drawn into a fake document from what a service sends.

import assert from "node:assert/strict";
import { test } from "node:test";

import { box, install } from "./fake_dom.mjs";

const PAGE = "../../packages/mcp_server/src/retrieval_core_mcp/http/page";
const text = "# Distance\n\nThe moon is **384,400 km** away.";
const hit = {
  id: "moon.md#0",
  rank: 1,
  score: 0.5,
  highlights: [[16, 20]],
  index: null,
  found_by: [],
  scores: { dense: 0.8, dense_rank: 1, lexical: 3.2, lexical_rank: 2, fused: 0.03 },
  chunk: {
    text,
    title: "The moon",
    source: "moon.md",
    document_id: "moon.md",
    section_path: ["Distance"],
    lines: [1, 3],
  },
};
const found = {
  results: [hit],
  stages: [{ stage: "dense", milliseconds: 3, attempts: 1, started_ms: 1, dropped: [{ id: "a", reason: "" }] }],
  execution: { latency_ms: 5 },
  degraded: [{ stage: "rerank", reason: "down" }],
  relevance: { value: 0.8, unlikely: false },
};
const source = {
  number: 1,
  document_id: "moon.md",
  title: "The moon",
  chunk_ids: ["moon.md#0"],
  lines: [1, 3],
  quotes: [{ text: "384,400 km", span: [26, 36] }],
};
const said = "The moon is 384,400 km away [1]. It has air [7].";
const done = {
  text: said,
  kind: "written",
  sources: [source],
  confidence: { value: 0.5 },
  relevance: { value: 0.8 },
  latency_ms: 820,
  note: null,
  checks: [{ number: 1, matches: true }],
  sentences: [
    {
      text: said.slice(0, 32),
      span: [0, 32],
      needs_source: false,
      attributions: [{ number: 1, marker: [28, 31], citation: source }],
    },
    {
      text: said.slice(33),
      span: [33, 48],
      needs_source: true,
      attributions: [{ number: 7, marker: [44, 47], problem: "unknown" }],
    },
  ],
};
const requests = [];

function answer(path, body) {
  requests.push(path);
  const json = (value) => new Response(JSON.stringify(value));
  const isLexical = body?.mode === "lexical";
  if (path === "/v1/explain" && isLexical) return json({ ...found, relevance: { value: 0.9, unlikely: true } });
  if (path === "/v1/explain") return json({ ...found, why: "Its rank is 1.", expected: hit });
  if (path === "/v1/answer") {
    const events = [
      { type: "retrieval_done", passages: [] },
      { type: "answer_chunk", content: said },
      { type: "citation", index: 0, ...done.sentences[0] },
      { type: "done", answer: done },
    ];
    return new Response(events.map((event) => `data: ${JSON.stringify(event)}\n\n`).join(""));
  }
  if (path === "/v1/context") {
    return json({
      ledger: [{ id: "moon.md#0", role: "primary", tokens: 9, outcome: "kept" }],
      max_tokens: 60,
      token_count: 9,
      context_pack: "The moon",
      note: "",
    });
  }
  if (path === "/v1/indexes")
    return json({ indexes: [{ name: "docs", points_count: 3, indexed_vectors_count: 2, vector_size: 4 }] });
  if (path.startsWith("/v1/indexes/"))
    return json({ name: "docs", documents: 2, fields: [{ name: "title", types: ["text"], examples: ["The moon"] }] });
  if (path === "/v1/chunks/moon.md%230") {
    return json({
      text,
      metadata: { url: "https://a.b/moon" },
      fields: {
        id: "moon.md#0",
        document_id: "moon.md",
        title: "The moon",
        span: [0, text.length],
        lines: [1, 3],
        metadata: { price: 2 },
        section_path: [],
      },
    });
  }
  if (path.startsWith("/v1/documents/")) {
    return json({
      id: "moon.md",
      source: "moon.md",
      text: `${text}\n\nMore.`,
      offset: 0,
      length: 20_000,
      chunks: [
        { id: "moon.md#0", start: 0, end: text.length, section_path: [] },
        { id: "moon.md#1", start: text.length, end: text.length + 7, section_path: [] },
      ],
    });
  }
  if (path.startsWith("/v1/documents?") && path.includes("name=") && !path.includes("name=&"))
    return json({ documents: [{ id: "docs/moon.md", title: "The moon", chunks: 2 }], total: 1 });
  if (path.startsWith("/v1/documents"))
    return json({ documents: [{ id: "moon.md", title: "The moon", chunks: 2 }], total: 1 });
  if (path === "/v1/chunks/gone") return new Response(JSON.stringify({ errors: ["no such chunk"] }), { status: 404 });
  return new Response("no JSON", { status: 500 });
}

install(answer);
const state = {
  view: "ask",
  q: "how far",
  tab: "",
  mode: "",
  top: "",
  index: "",
  indexes: "",
  filters: "",
  doc: "",
  chunk: "",
  of: "",
  at: "",
  other: "",
  talk: "",
};

// Draw until nothing is asked any more.
async function settled(render) {
  let drawn;
  for (let turn = 0; turn < 8; turn += 1) {
    drawn = box(render());
    await new Promise((resolve) => {
      setTimeout(resolve, 5);
    });
  }
  return drawn;
}

test("cards of results have their words marked, and what cites them", async () => {
  const { cards, mark, searched } = await import(`${PAGE}/results.js`);
  await settled(() => {
    searched(state);
    return [];
  });
  const drawn = box(cards(state, searched(state).value));
  const cited = drawn.all("cited")[0];
  assert.ok(cited.hidden);
  assert.deepEqual(
    drawn.all("mark").map((each) => each.textContent),
    ["moon"],
  );
  assert.deepEqual(
    drawn.all("strong").map((each) => each.textContent),
    ["384,400 km"],
  );
  mark(drawn, state, new Map([["moon.md#0", 1]]));
  assert.deepEqual([cited.hidden, cited.textContent], [false, "cited as [1]"]);
  mark(drawn, state, new Map());
  assert.deepEqual([cited.hidden, cited.textContent], [true, ""]);
  assert.match(drawn.all("soft")[0].textContent, /moon\.md · lines 1–3/); // the text begins with the heading
});

test("an answer has chips with quotes, doubts with reasons, and a line of trust", async () => {
  const view = await import(`${PAGE}/answer.js`);
  const drawn = await settled(() => view.answer(state, view.answered(state)));
  assert.deepEqual(
    drawn.all("chip").map((each) => each.textContent),
    ["[1]", "[7]", "?"],
  );
  assert.match(drawn.all("tip")[0].textContent, /moon\.md:1-3384,400 km/);
  assert.equal(
    drawn
      .all("doubt")
      .map((each) => each.textContent)
      .join("")
      .startsWith("It has air"),
    true,
  );
  assert.equal(drawn.all("problem")[0].textContent, "No source supports this sentence.");
  assert.match(
    drawn.all("confidence")[0].textContent,
    /^Relevance high · confidence medium · 1\/1 citations verified · 820 ms$/,
  );
  assert.equal(requests.filter((path) => path === "/v1/answer").length, 1);
});

test("every view to inspect is drawn from the same search", async () => {
  const { inspect } = await import(`${PAGE}/inspect.js`);
  const before = requests.filter((path) => path === "/v1/explain").length;
  const why = await settled(() => inspect({ ...state, tab: "why" }));
  assert.match(why.textContent, /rank 2/);
  assert.match(why.textContent, /Matched words: moon/);
  assert.equal(requests.filter((path) => path === "/v1/explain").length, before);
  assert.match((await settled(() => inspect({ ...state, tab: "context" }))).textContent, /9 of 60 tokens/);
  assert.match((await settled(() => inspect({ ...state, tab: "compare" }))).textContent, /Save as a test case/);
});

test("the header names what is searched", async () => {
  const view = await import(`${PAGE}/corpus.js`);
  assert.match(
    (await settled(() => view.corpus(state))).textContent,
    /^docs 2 documents · 3 chunks · indexing: 66% embedded$/,
  );
  assert.match((await settled(() => view.settings(state))).textContent, /Search/);
});

test("why says what reranking did", async () => {
  const { moved } = await import(`${PAGE}/why.js`);
  const results = [
    { rank: 1, scores: { fused: 0.1, rerank: 0.9 } },
    { rank: 2, scores: { fused: 0.2, rerank: 0.1 } },
  ];
  assert.match(moved(results[0], { results }), /moved it from rank 2 to 1/);
  assert.match(moved({ rank: 1, scores: { fused: 0.2 } }, { results }), /^Combined score 0\.2$/);
});

test("nothing in a document becomes an element or a link that runs", async () => {
  const { reading } = await import(`${PAGE}/reading.js`);
  const payloads = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<svg/onload=alert(1)>",
    "<a href=javascript:alert(1)>x</a>",
    "<iframe srcdoc='<script>alert(1)</script>'>",
    "<math><mtext><style><img src onerror=alert(1)>",
    "<template><script>1</script></template>",
    "javascript:alert(1)",
    "JaVaScRiPt:alert(1)",
    "java\tscript:alert(1)",
    "\u0001javascript:alert(1)",
    "data:text/html,<script>alert(1)</script>",
    "vbscript:msgbox(1)",
    "&#106;avascript:alert(1)",
    "javascript&colon;alert(1)",
    "blob:https://a/b",
    "file:///etc/passwd",
    "//evil.example",
    'https://a.b/"onmouseover=alert(1)',
    "https://a.b/')onload=alert(1)",
    "<!--><script>alert(1)</script>",
    "]]><script>alert(1)</script>",
    "__proto__",
    "constructor",
    "{{constructor.constructor('alert(1)')()}}",
    "\u202egnp.exe",
  ];
  const places = [
    (x) => x,
    (x) => `[${x}](${x})`,
    (x) => `![${x}](${x})`,
    (x) => `[x](<${x}>)`,
    (x) => `# ${x}`,
    (x) => `- ${x}`,
    (x) => `> ${x}`,
    (x) => `|a|\n|-|\n|${x}|`,
    (x) => `\`\`\`${x}\n${x}\n\`\`\``,
    (x) => `**${x}** _${x}_ \`${x}\``,
    (x) => `[a]: ${x}\n\n[a]`,
    (x) => `<${x}>`,
  ];
  const allowed = new Set([
    "P",
    "H3",
    "H4",
    "H5",
    "UL",
    "OL",
    "LI",
    "BLOCKQUOTE",
    "TABLE",
    "THEAD",
    "TBODY",
    "TR",
    "TH",
    "TD",
    "DIV",
    "PRE",
    "CODE",
    "STRONG",
    "EM",
    "DEL",
    "A",
    "BUTTON",
    "MARK",
    "HR",
  ]);
  const check = (element) => {
    assert.ok(allowed.has(element.tagName), element.tagName);
    if (element.tagName === "A") assert.match(element.href, /^(https?|mailto):/);
    else assert.equal(element.href, undefined);
    assert.deepEqual(
      Object.keys(element.attributes).filter(
        (name) => !["class", "role", "scope"].includes(name) && !name.startsWith("aria-"),
      ),
      [],
    );
    element.children.filter((child) => typeof child !== "string").forEach(check);
  };
  for (const payload of payloads) {
    for (const place of places) {
      for (const form of ["markdown", "reflowed", "lines"]) {
        const given = place(payload);
        const marks = [{ kind: "hit", start: 1, end: given.length - 1 }];
        box(reading(given, { form, marks })).children.forEach(check);
      }
    }
  }
});

test("a source has its chunk, the cited words and the words of the query marked", async () => {
  const { showSource } = await import(`${PAGE}/source.js`);
  const panel = document.getElementById("source");
  const open = { ...state, chunk: "moon.md#0", at: "26-36" };
  await settled(() => {
    showSource(open);
    return [];
  });
  assert.match(panel.textContent, /The moon/);
  assert.deepEqual(panel.all("is-hit").length, 1);
  assert.deepEqual(
    panel.all("mark").map((each) => [each.textContent, each.className]),
    [
      ["moon", ""],
      ["384,400 km", "is-quote"],
    ],
  );
  assert.equal(panel.all("a")[0].href, "https://a.b/moon");
  assert.match(panel.textContent, /Read on/);
  await settled(() => {
    showSource({ ...state, chunk: "gone" });
    return [];
  });
  assert.match(panel.textContent, /no such chunk.*may have been removed/);
});

test("the view of a question has a form, filters, the answer and its results", async () => {
  const { ask } = await import(`${PAGE}/ask.js`);
  const main = box([]);
  const asked = { ...state, filters: '{"title":"The moon"}' };
  await settled(() => {
    ask(main, asked);
    return [];
  });
  assert.match(main.textContent, /title is The moon/);
  assert.equal(main.all("answer").length, 1);
  assert.equal(main.all("hit").length, 1);
  await settled(() => {
    ask(main, { ...asked, filters: "{" });
    return [];
  });
  assert.match(main.textContent, /not valid JSON/);
  await settled(() => {
    ask(main, { ...state, q: "" });
    return [];
  });
  assert.match(main.textContent, /Topics.*The moon/);
});

test("a query that is the name of a document opens it, without an answer that denies it", async () => {
  const { ask } = await import(`${PAGE}/ask.js`);
  const main = box([]);
  const before = requests.filter((path) => path === "/v1/answer").length;
  await settled(() => {
    ask(main, { ...state, q: "MOON.md", mode: "lexical" });
    return [];
  });
  assert.match(main.textContent, /The document with this name: docs\/moon\.md/);
  assert.equal(requests.filter((path) => path === "/v1/answer").length, before);
  await settled(() => {
    ask(main, { ...state, q: "oon.md", mode: "lexical" });
    return [];
  });
  assert.equal(requests.filter((path) => path === "/v1/answer").length, before + 1);
});

test("no answer is one sentence, with nothing to copy", async () => {
  const { answer } = await import(`${PAGE}/answer.js`);
  const none = { ...done, kind: "abstained", text: "I could not find that." };
  const drawn = box(
    answer(state, { isOver: true, value: { done: none } }, { relevance: { unlikely: true, unknown: ["Mongolia"] } }),
  );
  assert.equal(drawn.textContent, "No answer in these documents: no chunk contains Mongolia.");
});

test("the one field continues a conversation, and another button begins a new one", async () => {
  const { ask } = await import(`${PAGE}/ask.js`);
  const main = box([]);
  await settled(() => {
    ask(main, state);
    return [];
  });
  assert.match(main.textContent, /AskNew question/);
  assert.equal(main.all("input").filter(({ type }) => type === "search").length, 1);
  await settled(() => {
    ask(main, { ...state, q: "" });
    return [];
  });
  assert.doesNotMatch(main.textContent, /New question/);
});

test("a PDF is called as its file, and what its name or text repeats is left out", async () => {
  const { crumbOf, nameOf } = await import(`${PAGE}/results.js`);
  assert.equal(nameOf({ title: "3.1 Models", source: "a/paper.pdf" }), "paper.pdf");
  assert.equal(nameOf({ title: "Moon", source: "moon.md" }), "Moon");
  const sections = { title: "Moon", source: "moon.md", section_path: ["Moon", "Air", "Sound"] };
  assert.equal(crumbOf(sections), "Air › Sound");
  assert.equal(crumbOf(sections, "### Sound\n\nNone."), "Air");
});

test("fields of the documents come before those of every chunk", async () => {
  const { inOrder } = await import(`${PAGE}/filters.js`);
  const names = ["title", "Price", "source", "Brand"].map((name) => ({ name }));
  assert.deepEqual(
    inOrder(names).map(({ name }) => name),
    ["Brand", "Price", "source", "title"],
  );
});

test("the row of a table is named on its card", async () => {
  const { cards } = await import(`${PAGE}/results.js`);
  const lamp = { ...hit, ...hit.chunk, source: "lamps.csv", lines: null, row_range: [21, 21] };
  const drawn = box(cards(state, { results: [lamp] }));
  assert.match(drawn.all("soft")[0].textContent, /^lamps\.csv · row 21$/);
});

test("a follow-up question that was not rewritten is named in words", async () => {
  const { fallbacks } = await import(`${PAGE}/results.js`);
  const told = box(fallbacks({ degraded: [{ stage: "condense", reason: "no JSON" }] }));
  assert.equal(told.textContent, "Follow-up question not rewritten: no JSON");
});

test("the files are listed with what they contain", async () => {
  const { library } = await import(`${PAGE}/library.js`);
  const main = box([]);
  await settled(() => {
    library(main, { ...state, view: "index" });
    return [];
  });
  assert.match(main.textContent, /1 chunk not embedded yet/);
  assert.match(main.textContent, /1 field to filter by/);
  assert.match(main.textContent, /This server is read-only/);
  assert.equal(main.all("tr").length, 4);
});

test("whatever fails is a problem with a kind", async () => {
  const api = await import(`${PAGE}/api.js`);
  for (const [path, kind] of [
    ["/v1/chunks/gone", "missing"],
    ["/v1/nothing", "failed"],
  ]) {
    await assert.rejects(api.get(path), (problem) => problem instanceof api.Problem && problem.kind === kind);
  }
  assert.equal(api.Problem.of(new DOMException("x", "AbortError")).isCancelled, true);
  assert.throws(() => api.eventOf("data: {broken"), api.Problem);
  assert.equal(api.eventOf(": comment"), null);
});

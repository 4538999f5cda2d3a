// Why each result has its rank, why a chunk is missing, and one fold deeper the stages of the search.

import { get } from "./api.js";
import { bar, bdi, h, link, searching } from "./dom.js";
import { several, sourceIndex } from "./query.js";
import { crumbOf, nameOf, nothing, openChunk, problems, searched } from "./results.js";
import { changed, once } from "./store.js";
import { unitSpans } from "./text.js";
import { timeline } from "./timeline.js";
import { TEXT, duration, shortNumber } from "./words.js";

const MOST_WORDS = 12;
let expected = "";

export const whyKey = () => expected;

export function why(state, found) {
  const { relevance, execution } = found;
  const all = found.results.map((hit) => reasons(state, hit, found));
  return [
    typeof relevance?.value === "number" && h("p", {}, TEXT.relevance(relevance.value)),
    found.results.length ? h("ol", { class: "reasons" }, all) : nothing(state, found),
    h("h2", { class: "minor" }, TEXT.whyNot),
    whyNotForm(state),
    h(
      "details",
      { class: "stages-fold" },
      h("summary", {}, TEXT.timeline(duration(execution.latency_ms))),
      relevance?.explanation && h("p", { class: "small soft" }, relevance.explanation),
      timeline(found),
    ),
  ];
}

function reasons(state, hit, found) {
  return h(
    "li",
    { value: hit.rank },
    h(
      "p",
      {},
      link(bdi(nameOf(hit)), () => openChunk(state, hit.id, hit.index)),
      crumbOf(hit) && h("span", { class: "soft" }, ` · ${crumbOf(hit)}`),
    ),
    scores(hit, found),
    h("p", { class: "small" }, moved(hit, found)),
    h("p", { class: "small soft" }, matched(hit)),
  );
}

// The words of the query in a chunk, each once, the most frequent first.
export function wordsOf(hit) {
  const counts = new Map();
  for (const [start, end] of unitSpans(hit.text ?? "", hit.highlights)) {
    const word = hit.text.slice(start, end).toLowerCase();
    counts.set(word, (counts.get(word) ?? 0) + 1);
  }
  return [...counts].sort((one, other) => other[1] - one[1]);
}

function matched(hit) {
  const words = wordsOf(hit)
    .slice(0, MOST_WORDS)
    .map(([word, times]) => (times > 1 ? `${word} ×${times}` : word));
  return words.length > 0 && TEXT.matched(words.join(", "));
}

// What reranking did: the rank that the combined scores give among the results, against their order.
export function moved(hit, found) {
  const { fused, rerank } = hit.scores;
  const isKnown = (value) => value != null;
  const before = 1 + found.results.filter(({ scores: each }) => each.fused > fused).length;
  return [
    isKnown(fused) && TEXT.fused(shortNumber(fused)),
    isKnown(fused) && isKnown(rerank) && TEXT.reranked(before, hit.rank),
  ]
    .filter(Boolean)
    .join(" · ");
}

// The score and rank of a chunk in each search, as a share of the best one, or of 1 if all are below.
export function scores(hit, found) {
  const { dense, dense_rank: denseRank, lexical, lexical_rank: lexicalRank, rerank } = hit.scores;
  const best = (name) =>
    Math.max(...found.results.map(({ scores: each }) => each[name] ?? 0), hit.scores[name] ?? 0, 1);
  const line = (name, rank, value, share, kind) => {
    const isMissing = value == null;
    const told = isMissing ? TEXT.notFound : `${shortNumber(value)}${rank ? ` · ${TEXT.rank(rank)}` : ""}`;
    return [h("span", {}, name), bar(share, kind), h("span", { class: "number" }, told)];
  };
  return h(
    "div",
    { class: "sides" },
    line(TEXT.vector, denseRank, dense, dense ?? 0, "dense"),
    line(TEXT.keyword, lexicalRank, lexical, (lexical ?? 0) / best("lexical"), "lexical"),
    rerank != null && line(TEXT.reranker, null, rerank, rerank / best("rerank"), ""),
  );
}

function whyNotForm(state) {
  const field = h("input", {
    id: "expected",
    value: expected,
    size: 34,
    "aria-label": TEXT.expected,
    placeholder: TEXT.expectedHint,
    dir: "auto",
  });
  const look = (event) => {
    event.preventDefault();
    expected = field.value.trim();
    dispatchEvent(new Event("changed"));
  };
  return [
    h("form", { onsubmit: look, class: "filter-row" }, field, h("button", {}, TEXT.explain)),
    h("div", { role: "status" }, expected && whyNot(state, expected)),
  ];
}

// Why a chunk is or isn't among the results; what is no chunk is part of a document's name.
function whyNot(state, chunk) {
  const index = sourceIndex(state) || several(state)[0];
  const record = searched(state, { chunk_id: chunk, indexes: undefined, index });
  if (!record.isOver) return searching();
  if (record.value)
    return [h("p", {}, record.value.why), record.value.expected && scores(record.value.expected, record.value)];
  return record.problem.kind === "missing" ? named(state, chunk, index, record.problem) : problems(record.problem);
}

function named(state, name, index, problem) {
  const record = once("named", [index, name], (signal) => get("/v1/documents", { index, name, limit: 6 }, signal));
  if (!record.isOver) return searching();
  const documents = record.value?.documents ?? [];
  if (!documents.length) return problems(problem);
  const chosen = documents.length === 1 ? documents[0] : documents.find(({ id }) => id === name);
  if (chosen) return nearest(state, chosen.id, index);
  const choose = (id) => {
    expected = id;
    changed();
  };
  const one = ({ id }) => h("li", {}, ...[link(bdi(id), () => choose(id))]);
  return [h("p", {}, TEXT.noChunk), h("ul", {}, documents.map(one))];
}

function nearest(state, id, index) {
  const inside = { ...state, filters: JSON.stringify({ document_id: { $eq: id } }) };
  const record = searched(inside, { index, indexes: undefined, top_k: 1 });
  if (record.problem) return problems(record.problem);
  if (!record.value) return searching();
  const [hit] = record.value.results;
  if (!hit) return h("p", {}, TEXT.nothing);
  return [
    h(
      "p",
      {},
      TEXT.nearestChunk,
      link(bdi(hit.id), () => openChunk(state, hit.id, index)),
    ),
    whyNot(state, hit.id),
  ];
}

// Why each result has its rank, why a chunk is missing, and one fold deeper the stages of the search.

import { bar, bdi, h, link, oneField, searching } from "./dom.js";
import { several, sourceIndex } from "./query.js";
import { nameOf, nothing, openChunk, placeOf, problems, searched } from "./results.js";
import { changed, fetched } from "./store.js";
import { joined, unitSpans } from "./text.js";
import { timeline } from "./timeline.js";
import { TEXT, duration, shortNumber } from "./words.js";

const MOST_WORDS = 12;
let expected = "";

export const whyKey = () => expected;

function expect(chunk) {
  expected = chunk;
  changed();
}

export function why(state, found) {
  const { relevance, execution, results } = found;
  const items = results.map((hit) => reasons(state, hit, found));
  return [
    relevance?.value != null && h("p", TEXT.relevance(relevance.value)),
    results.length ? h("ol.reasons", items) : nothing(state, found),
    h("h2", TEXT.whyNot),
    whyNotForm(state),
    h(
      "details",
      h("summary", TEXT.timeline(duration(execution.latency_ms))),
      relevance?.explanation && h("p.small.soft", relevance.explanation),
      timeline(found),
    ),
  ];
}

function opener(state, name, id, index) {
  return link(bdi(name), () => openChunk(state, id, index));
}

function reasons(state, hit, found) {
  const where = placeOf(hit);
  return h(
    "li",
    { value: hit.rank },
    h("p", opener(state, nameOf(hit), hit.id, hit.index), where && h("span.soft", ` · ${where}`)),
    scores(hit, found),
    h("p.small", moved(hit, found)),
    h("p.small.soft", matched(hit)),
  );
}

function matched({ text, highlights, heading_words: above = [] }) {
  const counts = new Map();
  for (const [start, end] of unitSpans(text, highlights)) {
    const word = text.slice(start, end).toLowerCase();
    counts.set(word, (counts.get(word) ?? 0) + 1);
  }
  const words = [...counts]
    .sort((one, other) => other[1] - one[1])
    .slice(0, MOST_WORDS)
    .map(([word, times]) => (times > 1 ? `${word} ×${times}` : word));
  return joined(words.length && TEXT.matched(words.join(", ")), above.length && TEXT.matchedAbove(above.join(", ")));
}

// What reranking did: the rank that the combined scores give among the results, against their order.
export function moved({ rank, index, scores: { final, rerank, fused: own } }, { results }) {
  const fused = index && rerank == null ? final : own; // of several indexes, what orders them all
  if (fused == null) return "";
  const told = TEXT.fused(shortNumber(fused));
  const before = 1 + results.filter(({ scores: each }) => each.fused > fused).length;
  return rerank == null ? told : `${told} · ${TEXT.reranked(before, rank)}`;
}

// The score and rank of a chunk in each search, as a share of the best one, or of 1 if all are below.
function scores(hit, { results }) {
  const line = (name, kind) => {
    const [value, rank] = [hit.scores[kind], hit.scores[`${kind}_rank`]];
    const best = Math.max(1, ...[hit, ...results].map(({ scores: each }) => each[kind] ?? 0));
    const told = value == null ? TEXT.notFound : `${shortNumber(value)}${rank ? ` · ${TEXT.rank(rank)}` : ""}`;
    return [h("span", name), bar((value ?? 0) / best, kind), h("span.number", told)];
  };
  return h(
    "div.sides.small.soft",
    line(TEXT.vector, "dense"),
    line(TEXT.keyword, "lexical"),
    hit.scores.rerank != null && line(TEXT.reranker, "rerank"),
  );
}

function whyNotForm(state) {
  return [
    oneField("expected", TEXT.expectedHint, expected, TEXT.explain, expect),
    h("div", { role: "status" }, expected && whyNot(state, expected)),
  ];
}

// Why a chunk is or isn't among the results; what is no chunk is part of a document's name.
function whyNot(state, chunk) {
  const index = sourceIndex(state) || several(state)[0];
  const { isOver, value, problem } = searched(state, { chunk_id: chunk, indexes: undefined, index });
  if (!isOver) return searching();
  if (value) return [h("p", value.why), value.expected && scores(value.expected, value)];
  return problem.kind === "missing" ? named(state, chunk, index, problem) : problems(problem);
}

function named(state, name, index, problem) {
  const record = fetched("named", "/v1/documents", { index, name, limit: 6 });
  if (!record.isOver) return searching();
  const documents = record.value?.documents ?? [];
  if (!documents.length) return problems(problem);
  const chosen = documents.length === 1 ? documents[0] : documents.find(({ id }) => id === name);
  if (chosen) return nearest(state, chosen.id, index);
  const choices = documents.map(({ id }) => link(bdi(id), () => expect(id)));
  return [
    h("p", TEXT.noChunk),
    h(
      "ul",
      choices.map((each) => h("li", each)),
    ),
  ];
}

function nearest(state, id, index) {
  const inside = { ...state, filters: JSON.stringify({ document_id: { $eq: id } }) };
  const { value, problem } = searched(inside, { index, indexes: undefined, top_k: 1 });
  if (problem) return problems(problem);
  if (!value) return searching();
  const chunk = value.results[0]?.id;
  if (!chunk) return h("p", TEXT.nothing);
  return [h("p", TEXT.nearestChunk, opener(state, chunk, chunk, index)), whyNot(state, chunk)];
}

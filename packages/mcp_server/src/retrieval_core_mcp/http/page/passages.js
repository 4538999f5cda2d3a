import { post } from "./api.js";
import { bar, day, fill, h, marked, say, shortNumber } from "./dom.js";
import { pageName, spanOfPages } from "./parts.js";
import { again, change, conditions, openChunk, question } from "./state.js";

const LONG = 900;
const NONE = { key: "", found: null, asking: null };
let last = NONE;

// The passages of a question, asked once for all tabs that show something of them: a tab that is left does not end it.
export async function explained(state, signal) {
  const key = JSON.stringify(question(state));
  if (last.key !== key) {
    last.asking?.abort();
    const asking = new AbortController();
    const asked = { key, found: search(question(state), asking.signal), asking };
    asked.found.catch(() => last === asked && forgetLast());
    last = asked;
  }
  const found = await last.found;
  signal?.throwIfAborted();
  return found;
}

export function forgetLast() {
  last = NONE;
}

export async function search(asked, signal) {
  const found = await post("/v1/explain", { ...asked, allow_degraded: true }, signal);
  return { ...found, results: found.results.map((hit) => ({ ...hit.chunk, ...hit })) };
}

export async function passages(panel, state, signal) {
  fill(panel, h("p", { class: "quiet" }, "Searching…"));
  let found;
  try {
    found = await explained(state, signal);
  } catch (problem) {
    if (problem.name !== "AbortError") fill(panel, problems(problem));
    return;
  }
  say(`${found.results.length} passages`);
  fill(panel, notices(found), found.results.length ? h("ol", { class: "hits" }, found.results.map((hit) => entry(hit, found, state))) : nothing(state, found));
}

// What went wrong, and where waiting may help, a way to try it again.
export function problems(problem) {
  const told = problem.messages.map((message) => h("p", { class: "notice", role: "alert" }, message));
  return PASSING.includes(problem.status) ? [...told, h("p", {}, h("button", { type: "button", onclick: again }, "Try again"))] : told;
}

export function notices(found) {
  return [found.relevance?.unlikely && h("p", { class: "notice" }, "This is probably not in these documents. These passages come nearest."), ...without(found)];
}

// What was done without, as a part was down or too slow.
export function without(found) {
  return (found.degraded ?? []).map(({ stage, reason }) => h("p", { class: "notice" }, h("strong", {}, WITHOUT[stage] ?? `Without ${stage}`), `: ${reason}`));
}

export const INCOMPLETE = "The search was incomplete, and what was searched has no results.";

// A warning about a filter is no failure of the search.
export const isIncomplete = (found) => (found.degraded ?? []).some(({ stage }) => stage !== "filter");

const PASSING = [0, 429, 500, 503];

const WITHOUT = { __proto__: null, filter: "Filter", embed: "Keyword search only", dense: "Without vector search", lexical: "Without keyword search", rerank: "Not reranked", expand: "Without the passages around", cache: "Without the cache", verify_answer: "Verification" };

function nothing(state, found) {
  if (isIncomplete(found)) return h("div", { class: "quiet" }, h("p", {}, INCOMPLETE), h("button", { type: "button", onclick: again }, "Try again"));
  return h("div", { class: "quiet" }, h("p", {}, "Nothing was found."),
    state.filters ? h("p", {}, "The filter may be too narrow. ", h("button", { class: "link", onclick: () => change({ filters: "" }) }, "Ask without it")) : h("p", {}, "Is there anything in the index? ", h("button", { class: "link", onclick: () => change({ view: "index" }) }, "Look at it")));
}

function entry(hit, found, state) {
  const text = h("p", { class: `passage${hit.text.length > LONG ? " is-short" : ""}`, dir: "auto" }, marked(hit.text, hit.highlights));
  const more = hit.text.length > LONG && h("button", { class: "link", onclick: (event) => {
    text.classList.remove("is-short");
    event.target.remove();
  } }, "All of it");
  const place = [hit.index && `in ${hit.index}`, hit.section_path?.join(" › "), pages(hit.page_span, hit.source), day(hit.timestamp) && `indexed ${day(hit.timestamp)}`].filter(Boolean).join(" · ");
  const kept = (conditions(state.filters) ?? []).filter(({ field }) => Object.hasOwn(hit.metadata ?? {}, field)).map(({ field }) => `${field}: ${[hit.metadata[field]].flat().join(", ")}`);
  return h("li", { class: `hit${hit.id === state.chunk && (hit.index ?? "") === state.of ? " is-open" : ""}`, "data-chunk": hit.id, "data-index": hit.index ?? "" },
    h("h2", {}, h("button", { id: `hit-${hit.rank}`, onclick: () => openChunk(hit.id, hit.index) }, h("bdi", {}, hit.title || hit.source || hit.document_id))),
    h("p", { class: "place" }, h("bdi", {}, hit.source ?? hit.document_id), place && ` · ${place}`),
    kept.length > 0 && h("p", { class: "place" }, h("bdi", {}, [...new Set(kept)].join(" · "))),
    text, more, scores(hit, found),
    (hit.found_by ?? []).length > 0 && h("p", { class: "small soft" }, `Found for ${hit.found_by.map(({ kind, text }) => (text ? `“${text}”` : kind)).join(", ")} too`));
}

// What each side gave a passage: its rank there, and its score as a share of the best one, or of 1 if all are below.
export function scores(hit, found) {
  const best = Math.max(...found.results.map((each) => each.scores.lexical ?? 0), hit.scores.lexical ?? 0, 1);
  const { dense, dense_rank, lexical, lexical_rank, rerank } = hit.scores;
  const first = Math.max(...found.results.map((each) => each.scores.rerank ?? 0), 1);
  const line = (name, rank, value, share, kind) => [h("span", {}, name), bar(share, kind), h("span", { class: "number" }, value === undefined || value === null ? "not found" : `${shortNumber(value)}${rank ? ` · place ${rank}` : ""}`)];
  return h("div", { class: "sides" }, line("meaning", dense_rank, dense, dense ?? 0, "dense"), line("words", lexical_rank, lexical, (lexical ?? 0) / best, "lexical"),
    rerank === undefined || rerank === null ? [] : line("reranked", null, rerank, rerank / first, ""));
}

export function pages(span, source) {
  const [first, last] = spanOfPages(span);
  if (first === undefined) return "";
  return first === last ? `${pageName(source)} ${first}` : `${pageName(source)}s ${first} to ${last}`;
}

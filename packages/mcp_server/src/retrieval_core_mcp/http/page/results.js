// What a search found, asked once for all views, and its cards.

import { post } from "./api.js";
import { bdi, h, link } from "./dom.js";
import { formOf } from "./markdown.js";
import { opening, questionOf, rowsOf } from "./query.js";
import { reading } from "./reading.js";
import { change, forget, once } from "./store.js";
import { unitSpans } from "./text.js";
import { FALLBACKS, TEXT, isPdf, lineRange, pageRange, rowRange } from "./words.js";

const LONG = 700;

export function searched(state, more = {}) {
  const asked = questionOf(state, { allow_degraded: true, ...more });
  return once("search", asked, async (signal) => {
    const found = await post("/v1/explain", asked, signal);
    return { ...found, results: found.results.map((hit) => ({ ...hit.chunk, ...hit })) };
  });
}

export function problems(problem) {
  if (problem.isCancelled) return [];
  const told = problem.messages.map((message) => h("p", { class: "notice", role: "alert" }, message));
  const again = h("p", {}, h("button", { type: "button", onclick: () => forget() }, TEXT.tryAgain));
  return problem.canRetry ? [...told, again] : told;
}

// Everything that failed or fell back, without what is known from elsewhere.
export function fallbacks(found, known = []) {
  const isNew = (each) => !known.some(({ stage, reason }) => stage === each.stage && reason === each.reason);
  return (found.degraded ?? [])
    .filter(isNew)
    .map(({ stage, reason }) => h("p", { class: "notice" }, h("strong", {}, FALLBACKS[stage] ?? stage), `: ${reason}`));
}

// A warning about a filter is no failure of the search.
export const isIncomplete = (found) => (found.degraded ?? []).some(({ stage }) => stage !== "filter");

export function openChunk(state, id, index, at = "") {
  change({ ...opening(state, id, index), at });
}

export function nothing(state, found) {
  const again = h("button", { type: "button", onclick: () => forget() }, TEXT.tryAgain);
  if (isIncomplete(found)) return h("div", { class: "quiet" }, h("p", {}, TEXT.incomplete), again);
  const hint = state.filters
    ? [TEXT.narrow, " ", link(TEXT.withoutFilter, () => change({ filters: "" }))]
    : [TEXT.isItThere, " ", link(TEXT.lookAtFiles, () => change({ view: "index" }))];
  return h("div", { class: "quiet" }, h("p", {}, TEXT.nothing), h("p", {}, hint));
}

export function cards(state, found) {
  return h(
    "ol",
    { class: "hits" },
    found.results.map((hit) => card(state, hit)),
  );
}

// Mark the card that is open, and those that the answer cites: `cited` has the numbers of its sources by the ids of
// their chunks. The cards stay, so that nothing flickers while somebody reads or selects them.
export function mark(region, state, cited) {
  for (const card of region.querySelectorAll(".hit")) {
    const { chunk, index } = card.dataset;
    card.classList.toggle("is-open", chunk === state.chunk && index === state.of);
    const number = cited.get(index ? `${index}:${chunk}` : chunk);
    const label = card.querySelector(".cited");
    label.hidden = number === undefined;
    label.textContent = number === undefined ? "" : TEXT.cited(number);
  }
}

// The headings above a chunk, without the name of its document, and without the heading that its text begins with.
export function crumbOf(hit, text = "") {
  const path = (hit.section_path ?? []).filter((each) => each !== nameOf(hit));
  const isTwice = path.length > 0 && text.replace(/^[#\s]+/, "").startsWith(path.at(-1));
  return path.slice(0, isTwice ? -1 : undefined).join(" › ");
}

// The title of a document. That of a PDF may be any line of it, so its file is named.
export function nameOf({ title, source, document_id: id }) {
  return isPdf({ source }) ? source.split("/").at(-1) : title || source || id;
}

function card(state, hit) {
  const marks = unitSpans(hit.text, hit.highlights).map(([start, end]) => ({ kind: "hit", start, end }));
  const isLong = hit.text.length > LONG;
  const body = h(
    "div",
    { class: `passage${isLong ? " is-short" : ""}`, dir: "auto" },
    reading(hit.text, { form: formOf(hit.source), marks, level: 3 }),
  );
  const more =
    isLong &&
    link(TEXT.showAll, ({ target }) => {
      body.classList.remove("is-short");
      target.remove();
    });
  const place = [
    hit.index && TEXT.inIndex(hit.index),
    crumbOf(hit, hit.text),
    pageRange(hit.page_span, hit.source),
    !hit.page_span && lineRange(hit.lines),
    rowRange(hit),
  ]
    .filter(Boolean)
    .join(" · ");
  const title = h(
    "button",
    { id: `hit-${hit.rank}`, onclick: () => openChunk(state, hit.id, hit.index) },
    bdi(nameOf(hit)),
  );
  const found = (hit.found_by ?? []).map(({ kind, text }) => (text ? `“${text}”` : kind)).join(", ");
  const kept = [...new Set((rowsOf(state.filters) ?? []).map(({ field }) => field))]
    .filter((field) => Object.hasOwn(hit.metadata ?? {}, field))
    .map((field) => `${field}: ${[hit.metadata[field]].flat().join(", ")}`)
    .join(" · ");
  return h(
    "li",
    { class: "hit", "data-chunk": hit.id, "data-index": hit.index ?? "" },
    h("h2", {}, title, h("span", { class: "cited", hidden: true })),
    h("p", { class: "place" }, bdi(hit.source ?? hit.document_id), place && ` · ${place}`),
    kept && h("p", { class: "place" }, bdi(kept)),
    body,
    more,
    found && h("p", { class: "small soft" }, TEXT.foundFor(found)),
  );
}

// What a search found, asked once for all views, and its cards.

import { post } from "./api.js";
import { bdi, h, link, searching } from "./dom.js";
import { formOf } from "./markdown.js";
import { opening, questionOf, rowsOf } from "./query.js";
import { reading } from "./reading.js";
import { change, forget, once } from "./store.js";
import { joined, unitSpans } from "./text.js";
import { FALLBACKS, TEXT, isPdf, lineRange, pageRange, rowRange } from "./words.js";

const LONG = 700;

export function searched(state, more) {
  const asked = questionOf(state, { allow_degraded: true, ...more });
  return once("search", asked, async (signal) => {
    const found = await post("/v1/explain", asked, signal);
    return { ...found, results: found.results.map((hit) => ({ ...hit.chunk, ...hit })) };
  });
}

const again = () => h("button", { onclick: () => forget() }, TEXT.tryAgain);

export function problems({ isCancelled, messages, canRetry }) {
  if (isCancelled) return [];
  return [messages.map((message) => h("p.notice", { role: "alert" }, message)), canRetry && h("p", again())];
}

export function outcome({ problem, value }, render) {
  if (problem) return problems(problem);
  return value ? render(value) : searching();
}

// Everything that failed or fell back, without what is known.
export function fallbacks({ degraded = [] }, known = []) {
  const isNew = (each) => !known.some(({ stage, reason }) => stage === each.stage && reason === each.reason);
  return degraded
    .filter(isNew)
    .map(({ stage, reason }) => h("p.notice", h("strong", FALLBACKS[stage] ?? stage), `: ${reason}`));
}

export function openChunk(state, id, index, at = "") {
  change({ ...opening(state, id, index), at });
}

export function opener(state, hit, more) {
  return link(bdi(nameOf(hit)), () => openChunk(state, hit.id, hit.index), more);
}

export function nothing({ filters }, { degraded = [] }) {
  // A warning about a filter is no failure of the search.
  if (degraded.some(({ stage }) => stage !== "filter")) return h("div.quiet", h("p", TEXT.incomplete), again());
  const hint = filters
    ? [TEXT.narrow, " ", link(TEXT.withoutFilter, () => change({ filters: "" }))]
    : [TEXT.isItThere, " ", link(TEXT.lookAtFiles, () => change({ view: "index" }))];
  return h("div.quiet", h("p", TEXT.nothing), h("p", hint));
}

export function cards(state, found) {
  const all = found.results.map((hit) => card(state, hit));
  return all.length ? h("ol.hits", all) : nothing(state, found);
}

// Mark the card that is open, and those that the answer cites: `cited` has the numbers of its sources by the ids of
// their chunks. The cards stay, so that nothing flickers while somebody reads or selects them.
export function mark(region, state, cited) {
  for (const card of region.querySelectorAll(".hit")) {
    const { chunk, index } = card.dataset;
    card.classList.toggle("is-open", chunk === state.chunk && index === state.of);
    const number = cited.get(index ? `${index}:${chunk}` : chunk);
    const label = card.querySelector(".cited");
    label.hidden = !number;
    label.textContent = number ? TEXT.cited(number) : "";
  }
}

// The headings above a chunk, without the name of its document, and without the heading that its text begins with.
export function crumbOf(hit, text = "") {
  const path = (hit.section_path ?? []).filter((each) => each !== nameOf(hit));
  const isTwice = path.length > 0 && text.replace(/^[#\s]+/, "").startsWith(path.at(-1));
  return path.slice(0, isTwice ? -1 : undefined).join(" › ");
}

// Where a chunk is: its index if several are searched, the headings above it, and its pages, lines or rows.
export const placeOf = (hit, text) =>
  joined(
    hit.index && TEXT.inIndex(hit.index),
    crumbOf(hit, text),
    pageRange(hit.page_span, hit.source) || lineRange(hit.lines),
    rowRange(hit),
  );

// The title of a document. That of a PDF may be any line of it, so its file is named.
export function nameOf({ title, source, document_id: id }) {
  return isPdf({ source }) ? source.split("/").at(-1) : title || source || id;
}

function card(state, hit) {
  const marks = unitSpans(hit.text, hit.highlights).map(([start, end]) => ({ kind: "hit", start, end }));
  const isLong = hit.text.length > LONG;
  const text = reading(hit.text, { form: formOf(hit.source), marks });
  const body = h(isLong ? "div.passage.is-short" : "div.passage", { dir: "auto" }, text);
  const showAll = ({ target }) => {
    body.classList.remove("is-short");
    target.remove();
  };
  const place = placeOf(hit, hit.text);
  const filtered = rowsOf(state.filters).map(({ field }) => field);
  const kept = Object.entries(hit.metadata ?? {})
    .filter(([field]) => filtered.includes(field))
    .map(([field, value]) => `${field}: ${[value].flat().join(", ")}`);
  const found = (hit.found_by ?? []).map(({ kind, text }) => (text ? `“${text}”` : kind)).join(", ");
  return h(
    "li.hit",
    { "data-chunk": hit.id, "data-index": hit.index ?? "" },
    h("h2", opener(state, hit, { id: `hit-${hit.rank}` }), h("span.cited", { hidden: true })),
    h("p.small.soft", bdi(hit.source ?? hit.document_id), place && ` · ${place}`),
    kept.length > 0 && h("p.small.soft", bdi(joined(...kept))),
    body,
    isLong && link(TEXT.showAll, showAll),
    found && h("p.small.soft", TEXT.foundFor(found)),
  );
}

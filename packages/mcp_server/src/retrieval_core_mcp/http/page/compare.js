import { fill, h } from "./dom.js";
import { connect } from "./lines.js";
import { INCOMPLETE, explained, isIncomplete, problems, search, without } from "./passages.js";
import { lastReport } from "./report.js";
import { change, openChunk, question } from "./state.js";

const WAYS = { __proto__: null, hybrid: "meaning and words", dense: "meaning", lexical: "words" };

// One question by two settings: what rises, what falls, and what only one of them finds.
export async function compare(panel, state, signal) {
  const other = state.other || (state.mode === "lexical" ? "dense" : "lexical");
  const choice = h("select", { "aria-label": "The other way", onchange: (event) => change({ other: event.target.value }) }, Object.entries(WAYS).map(([value, text]) => h("option", { value, selected: value === other }, text)));
  const body = h("div", {}, h("p", { class: "quiet" }, "Searching twice…"));
  fill(panel, h("p", { class: "settings" }, h("label", {}, "Beside a search by ", choice)), body);
  try {
    const beside = question(state, { mode: other });
    const [here, there] = await Promise.all([explained(state, signal), search(beside, signal)]);
    const pair = h("div", { class: "pair" }, column(WAYS[state.mode] ?? "as configured", here, there), column(WAYS[other], there, here));
    fill(body, pair, saving(state, here), lastReport());
    connect(pair, signal);
  } catch (problem) {
    if (problem.name !== "AbortError") fill(body, problems(problem));
  }
}

function keyOf(hit) {
  return JSON.stringify([hit.index, hit.id]);
}

// The passages of one side, each with its place on this side and on the other.
function column(name, found, beside) {
  const places = new Map(beside.results.map((hit) => [keyOf(hit), hit.rank]));
  const entry = (hit) => h("li", { "data-key": keyOf(hit) }, h("button", { class: "link", onclick: () => openChunk(hit.id, hit.index) }, h("bdi", {}, hit.title || hit.document_id)), h("div", { class: "small soft" }, hit.section_path?.join(" › ")), moved(hit.rank, places.get(keyOf(hit))));
  return h("section", {}, h("h2", { style: { fontSize: "1rem" } }, name), without(found), found.results.length ? h("ol", {}, found.results.map(entry)) : h("p", { class: "quiet" }, isIncomplete(found) ? INCOMPLETE : "Nothing was found."));
}

function moved(here, there) {
  if (there === undefined) return h("div", { class: "moved" }, "only here");
  const told = here === there ? "the same place on both sides" : `place ${here} here, place ${there} on the other side`;
  return h("div", { class: "moved" }, h("span", { "aria-hidden": "true" }, here === there ? `${here} = ${there}` : `${here} → ${there} ${there > here ? "↓" : "↑"}`), h("span", { class: "visually-hidden" }, told));
}

// A case for a test suite, as a file: the documents that are right are chosen here.
function saving(state, found) {
  const boxes = [...new Set(found.results.map(({ document_id }) => document_id))].map((name) => h("label", { style: { display: "block" } }, h("input", { type: "checkbox", value: name }), " ", h("bdi", {}, name)));
  const save = (event) => {
    event.preventDefault();
    const documents = boxes.map((box) => box.firstElementChild).filter((box) => box.checked).map((box) => box.value);
    const one = { name: [...state.q].slice(0, 80).join(""), query: state.q, ...(documents.length ? { expect: { documents } } : { finds_nothing: true }), ...(state.filters ? { filter: JSON.parse(state.filters) } : {}), ...(state.mode ? { mode: state.mode } : {}), ...(state.top ? { top_k: Number(state.top) } : {}) };
    const url = URL.createObjectURL(new Blob([JSON.stringify({ name: "saved from the page", cases: [one] }, null, 2)], { type: "application/json" }));
    h("a", { href: url, download: "saved.retrieval.json" }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10_000);
  };
  return h("form", { onsubmit: save }, h("h2", { style: { fontSize: "1rem", marginBlock: "28px 6px" } }, "Save as a test case"),
    h("p", { class: "small soft" }, "Which documents should this question find? None: that nothing should be found. The file is for retrieval suite run."), boxes, h("p", {}, h("button", {}, "Save")));
}

import { fill, h } from "./dom.js";
import { explained, problems, search, without } from "./passages.js";
import { change, question } from "./state.js";

const WAYS = { hybrid: "meaning and words", dense: "meaning", lexical: "words" };

// One question by two settings: what rises, what falls, and what only one of them finds.
export async function compare(panel, state, signal) {
  const other = state.other || (state.mode === "lexical" ? "dense" : "lexical");
  const choice = h("select", { "aria-label": "The other way", onchange: (event) => change({ other: event.target.value }) }, Object.entries(WAYS).map(([value, text]) => h("option", { value, selected: value === other }, text)));
  const body = h("div", {}, h("p", { class: "quiet" }, "Searching twice…"));
  fill(panel, h("p", { class: "settings" }, h("label", {}, "Beside a search by ", choice)), body);
  try {
    const [here, there] = await Promise.all([explained(state, signal), search(question(state, { mode: other }), signal)]);
    fill(body, h("div", { class: "pair" }, column(WAYS[state.mode] ?? "as configured", here, there), column(WAYS[other], there, here)), saving(state, here));
  } catch (problem) {
    if (problem.name !== "AbortError") fill(body, problems(problem));
  }
}

function column(name, found, beside) {
  const places = new Map(beside.results.map(({ id, rank }) => [id, rank]));
  const moved = (hit) => {
    const rank = places.get(hit.id);
    if (rank === undefined) return "only here";
    return rank === hit.rank ? "same place" : `there ${rank} ${rank > hit.rank ? "↓" : "↑"}`;
  };
  return h("section", {}, h("h2", { style: { fontSize: "1rem" } }, name), without(found), found.results.length ? h("ol", {}, found.results.map((hit) => h("li", {}, h("button", { class: "link", onclick: () => change({ chunk: hit.id, doc: "" }) }, h("bdi", {}, hit.title || hit.document_id)), h("div", { class: "small soft" }, hit.section_path?.join(" › ")), h("div", { class: "moved" }, moved(hit))))) : h("p", { class: "quiet" }, "Nothing was found."));
}

// A case for a test suite, as a file: the documents that are right are chosen here.
function saving(state, found) {
  const boxes = [...new Set(found.results.map(({ document_id }) => document_id))].map((name) => h("label", { style: { display: "block" } }, h("input", { type: "checkbox", value: name }), " ", h("bdi", {}, name)));
  const save = (event) => {
    event.preventDefault();
    const documents = boxes.map((box) => box.firstElementChild).filter((box) => box.checked).map((box) => box.value);
    const one = { name: state.q.slice(0, 80), query: state.q, ...(documents.length ? { expect: { documents } } : { finds_nothing: true }), ...(state.filters ? { filters: JSON.parse(state.filters) } : {}), ...(state.top ? { top_k: Number(state.top) } : {}) };
    const url = URL.createObjectURL(new Blob([JSON.stringify({ name: "saved from the page", cases: [one] }, null, 2)], { type: "application/json" }));
    h("a", { href: url, download: "saved.retrieval.json" }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10_000);
  };
  return h("form", { onsubmit: save }, h("h2", { style: { fontSize: "1rem", marginBlock: "28px 6px" } }, "Save as a test case"),
    h("p", { class: "small soft" }, "Which documents should this question find? None: that nothing should be found. The file is for retrieval suite run."), boxes, h("p", {}, h("button", {}, "Save")));
}

// One query with two settings: what rises, what falls, and what only one of them finds; and a case for a test suite.

import { bdi, h, link, searching, select } from "./dom.js";
import { crumbOf, fallbacks, isIncomplete, nameOf, openChunk, problems, searched } from "./results.js";
import { change } from "./store.js";
import { MODES, TEXT } from "./words.js";

const WAYS = ["hybrid", "dense", "lexical"];

export function compare(state) {
  const other = state.other || (state.mode === "lexical" ? "dense" : "lexical");
  const choices = WAYS.map((way) => [way, MODES[way]]);
  const choice = select(TEXT.otherMode, choices, other, (value) => change({ other: value }), { id: "other" });
  const head = h("p", { class: "settings" }, h("label", {}, TEXT.compareWith, " ", choice));
  const [here, there] = [searched(state), searched(state, { mode: other })];
  const problem = here.problem ?? there.problem;
  if (problem) return [head, problems(problem)];
  if (!here.value || !there.value) return [head, searching()];
  const pair = h(
    "div",
    { class: "pair" },
    column(state, MODES[state.mode] ?? state.mode, here.value, there.value),
    column(state, MODES[other] ?? other, there.value, here.value),
  );
  return [head, pair, saving(state, here.value)];
}

const keyOf = (hit) => JSON.stringify([hit.index, hit.id]);

function column(state, name, found, beside) {
  const ranks = new Map(beside.results.map((hit) => [keyOf(hit), hit.rank]));
  const entry = (hit) =>
    h(
      "li",
      { "data-key": keyOf(hit) },
      link(bdi(nameOf(hit)), () => openChunk(state, hit.id, hit.index)),
      h("div", { class: "small soft" }, crumbOf(hit)),
      moved(hit.rank, ranks.get(keyOf(hit))),
    );
  const none = h("p", { class: "quiet" }, isIncomplete(found) ? TEXT.incomplete : TEXT.nothing);
  return h(
    "section",
    {},
    h("h2", { class: "minor" }, name),
    fallbacks(found),
    found.results.length ? h("ol", {}, found.results.map(entry)) : none,
  );
}

function moved(here, there) {
  if (there === undefined) return h("div", { class: "moved" }, TEXT.onlyHere);
  return h("div", { class: "moved" }, here === there ? TEXT.sameRank : TEXT.otherRank(there));
}

// A case for a test suite, as a file: the documents that are right are chosen here.
function saving(state, found) {
  const documents = [...new Set(found.results.map(({ document_id: id }) => id))];
  const boxes = documents.map((name) =>
    h("label", { style: { display: "block" } }, h("input", { type: "checkbox", value: name }), " ", bdi(name)),
  );
  const save = (event) => {
    event.preventDefault();
    const chosen = boxes.map((box) => box.firstElementChild).filter(({ checked }) => checked);
    const names = chosen.map(({ value }) => value);
    const content = JSON.stringify({ name: "saved from the page", cases: [caseOf(state, names)] }, null, 2);
    const url = URL.createObjectURL(new Blob([content], { type: "application/json" }));
    h("a", { href: url, download: "saved.retrieval.json" }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10_000);
  };
  return h(
    "form",
    { onsubmit: save },
    h("h2", { class: "minor" }, TEXT.saveCase),
    h("p", { class: "small soft" }, TEXT.caseHint),
    boxes,
    h("p", {}, h("button", {}, TEXT.save)),
  );
}

// Return a case of a suite for what a state asks and the documents that it should find.
export function caseOf(state, documents) {
  return {
    name: [...state.q].slice(0, 80).join(""),
    query: state.q,
    ...(documents.length ? { expect: { documents } } : { finds_nothing: true }),
    ...(state.filters ? { filter: JSON.parse(state.filters) } : {}),
    ...(state.mode ? { mode: state.mode } : {}),
    ...(state.top ? { top_k: Number(state.top) } : {}),
  };
}

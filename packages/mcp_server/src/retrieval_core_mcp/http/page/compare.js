// One query with two settings: what rises, what falls, and what only one of them finds; and a case for a test suite.

import { without } from "./api.js";
import { bdi, h, select } from "./dom.js";
import { questionOf } from "./query.js";
import { fallbacks, nothing, opener, outcome, placeOf, searched } from "./results.js";
import { change } from "./store.js";
import { shorten } from "./text.js";
import { MODES, TEXT } from "./words.js";

const WAYS = ["hybrid", "dense", "lexical"].map((way) => [way, MODES[way]]);

export function compare(state) {
  const other = state.other || (state.mode === "lexical" ? "dense" : "lexical");
  const modes = [["", MODES[""]], ...WAYS];
  const one = select(TEXT.searchBy, modes, state.mode, (mode) => change({ mode }), { id: "this" });
  const two = select(TEXT.otherMode, WAYS, other, (value) => change({ other: value }), { id: "other" });
  const [here, there] = [searched(state), searched(state, { mode: other })];
  const both = { problem: here.problem ?? there.problem, value: here.value && there.value };
  const draw = () => [
    h("div.pair", column(state, state.mode, here.value, there.value), column(state, other, there.value, here.value)),
    saving(state, here.value),
  ];
  const head = h("p.small.soft", TEXT.compare, " ", one, ` ${TEXT.compareWith} `, two);
  return [head, outcome(both, draw)];
}

const keyOf = (hit) => JSON.stringify([hit.index, hit.id]);

function column(state, mode, found, beside) {
  const ranks = new Map(beside.results.map((hit) => [keyOf(hit), hit.rank]));
  const moved = (here, there) => {
    if (!there) return TEXT.onlyHere;
    return here === there ? TEXT.sameRank : TEXT.otherRank(there);
  };
  const entry = (hit) =>
    h(
      "li",
      { "data-key": keyOf(hit) },
      opener(state, hit),
      h("div.small.soft", placeOf(hit)),
      h("div.small.soft", moved(hit.rank, ranks.get(keyOf(hit)))),
    );
  const list = found.results.length ? h("ol", found.results.map(entry)) : nothing(state, found);
  return h("section", h("h2", MODES[mode] ?? mode), fallbacks(found), list);
}

function saving(state, found) {
  const names = [...new Set(found.results.map(({ document_id: id }) => id))];
  const box = (value) => h("div", h("label", h("input", { type: "checkbox", name: "right", value }), " ", bdi(value)));
  const save = (event) => {
    event.preventDefault();
    const documents = new FormData(event.target).getAll("right");
    const { query_text: query, filters: filter, mode, top_k } = without(questionOf(state));
    const expected = documents.length ? { expect: { documents } } : { finds_nothing: true };
    const saved = { name: shorten(query, 80), query, ...expected, filter, mode, top_k };
    const content = JSON.stringify({ name: "saved from the page", cases: [saved] }, null, 2);
    const href = URL.createObjectURL(new Blob([content], { type: "application/json" }));
    h("a", { href, download: "saved.retrieval.json" }).click();
    setTimeout(() => URL.revokeObjectURL(href), 10_000);
  };
  return h(
    "form",
    { onsubmit: save },
    h("h2", TEXT.saveCase),
    h("p.small.soft", TEXT.caseHint),
    names.map(box),
    h("p", h("button", TEXT.save)),
  );
}

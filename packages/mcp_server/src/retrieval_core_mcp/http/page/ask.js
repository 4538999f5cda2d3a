import { answer, forgetAnswer, leaveAnswer } from "./answer.js";
import { get } from "./api.js";
import { compare } from "./compare.js";
import { context } from "./context.js";
import { fill, h } from "./dom.js";
import { filterRows } from "./filters.js";
import { unusable } from "./library.js";
import { forgetLast, passages } from "./passages.js";
import { again, change } from "./state.js";
import { why } from "./why.js";

const TABS = { __proto__: null, passages: ["Passages", passages], answer: ["Answer", answer], context: ["Context", context], why: ["Why", why], compare: ["Compare", compare] };
let shown = "";
let running = new AbortController();

export function ask(main, asked, repeat) {
  const state = asked.tab in TABS ? asked : { ...asked, tab: "passages" };
  const key = JSON.stringify({ ...state, chunk: "", doc: "", of: "" });
  if (key === shown && main.querySelector(".question") && !repeat) return;  // only the source beside it has changed
  if (repeat) {
    forgetLast();
    forgetAnswer();
  } else leaveAnswer(state);
  shown = key;
  running.abort();
  running = new AbortController();
  const focused = document.activeElement?.id;
  const panel = h("section", { id: "panel", role: "tabpanel", "aria-labelledby": `tab-${state.tab}` });
  const trouble = h("div", { role: "status" });
  fill(main, form(state), trouble, state.q ? [tabs(state), panel] : welcome());
  look(trouble, state);
  if (focused) document.getElementById(focused)?.focus();
  if (!state.q) document.getElementById("question").focus();
  else TABS[state.tab][1](panel, state, running.signal);
}

// What makes every answer of an index poor is said above them all.
async function look(place, state) {
  const { indexes } = await get("/v1/indexes").catch(() => ({ indexes: [] }));
  fill(place, unusable(indexes.find(({ name }) => name === state.index) ?? (state.index ? undefined : indexes[0])));
}

function form(state) {
  const field = h("input", { type: "search", id: "question", value: state.q, autocomplete: "off", spellcheck: true, dir: "auto", maxLength: 10_000, placeholder: "Ask in plain words, or look for a name or an error text", "aria-label": "Question" });
  const mode = h("select", { id: "mode" }, [["", "as configured"], ["hybrid", "meaning and words"], ["dense", "meaning"], ["lexical", "words"]].map(([value, text]) => h("option", { value, selected: value === state.mode }, text)));
  const top = h("input", { type: "number", id: "top", min: 1, max: 100, value: state.top, placeholder: "5" });
  const submit = (event) => {
    event?.preventDefault();
    const before = location.search;
    change({ q: field.value.trim(), mode: mode.value, top: top.value, chunk: "", doc: "", of: "" });
    if (location.search === before && state.q) again();
  };
  mode.addEventListener("change", () => state.q && submit());
  top.addEventListener("change", () => state.q && submit());
  return h("form", { onsubmit: submit, role: "search" },
    h("div", { class: "question" }, field, h("button", { class: "main" }, "Ask")),
    h("div", { class: "settings" },
      h("label", {}, "Search by ", mode), h("label", {}, "Passages ", top)),
    filterRows(state));
}

function tabs(state) {
  const names = Object.keys(TABS);
  const go = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const next = names[(names.indexOf(state.tab) + step + names.length) % names.length];
    change({ tab: next });
    document.getElementById(`tab-${next}`)?.focus();
  };
  return h("div", { class: "tabs", role: "tablist", "aria-label": "What is shown", onkeydown: go }, names.map((name) =>
    h("button", { role: "tab", id: `tab-${name}`, type: "button", "aria-selected": String(name === state.tab), "aria-controls": "panel", tabIndex: name === state.tab ? 0 : -1, onclick: () => change({ tab: name }) }, TABS[name][0])));
}

function welcome() {
  return h("div", { class: "quiet" },
    h("p", {}, "Ask what the documents tell. You see the passages, why each of them came, and where it stands in its document."),
    h("p", { class: "small" }, "The address of this page holds the question and its settings, so it can be sent to somebody."));
}

// The view of a question: the form, the answer, its results below it, and what is to inspect.

import { answer, answered, numbersOf } from "./answer.js";
import { get } from "./api.js";
import { asked as askedIndexes, contents, indexes, notice } from "./corpus.js";
import { bdi, draw, h, link, regions, searching } from "./dom.js";
import { filters, filtersKey } from "./filters.js";
import { contextKey, inspect } from "./inspect.js";
import { CLOSED, rowsOf } from "./query.js";
import { cards, fallbacks, mark, nothing, problems, searched } from "./results.js";
import { addTurn, change, drop, forget, once, revisionOf } from "./store.js";
import { TEXT } from "./words.js";
import { whyKey } from "./why.js";

const TABS = [
  ["", TEXT.answer],
  ["why", TEXT.why],
  ["context", TEXT.context],
  ["compare", TEXT.compare],
];
const LONGEST_NAME = 200;
const MOST_NAMED = 20;
let latest = null;

export function ask(main, state) {
  const { q, tab } = state;
  const [top, told, , region] = regions(main, [
    ["form"],
    ["notice", [state.index, state.indexes, indexes().revision], () => [notice(state)]],
    ["tabs", [Boolean(q), tab], () => [q && tabs(state)]],
    ["panel"],
  ]);
  told.setAttribute("role", "status");
  region.id = "panel";
  if (q) {
    region.setAttribute("role", "tabpanel");
    region.setAttribute("aria-labelledby", `tab-${tab || "answer"}`);
  } else for (const name of ["role", "aria-labelledby"]) region.removeAttribute(name);
  region.hidden = !q && !indexes().revision;
  panel(region, state);
  const answer = latest?.value?.done;
  const isTalk = Boolean(q) && (Boolean(state.talk) || answer?.kind === "written");
  const key = [q, state.filters, state.index, state.indexes, state.talk, isTalk, filtersKey(state)];
  draw(top, JSON.stringify(key), () => form(state, isTalk));
}

function panel(region, state) {
  const given = JSON.stringify({ ...state, ...CLOSED });
  if (!state.q) {
    leave(null);
    draw(region, JSON.stringify([given, indexes().revision, revisionOf("contents")]), () => welcome(state));
    return;
  }
  if (!state.tab && rowsOf(state.filters) !== null) {
    both(region, state);
    return;
  }
  // Whatever it asks is asked once, so drawing it again costs no request.
  const content = safely(() => (state.tab ? inspect(state) : searched(state)));
  const key = JSON.stringify([given, contextKey(), whyKey(), revisionOf("search", "context", "named")]);
  draw(region, key, () => content);
}

function safely(render) {
  try {
    return render();
  } catch (problem) {
    return problems(problem);
  }
}

// End the answer to another question than the one that is shown now.
function leave(told) {
  if (latest && latest !== told && !latest.isOver) drop(latest);
  latest = told;
}

// The answer above the results: two regions, so a growing answer leaves the cards alone.
function both(region, state) {
  const record = searched(state);
  const given = { ...state, ...CLOSED };
  const { unlikely, unknown = [] } = record.value?.relevance ?? {};
  const named = unlikely || unknown.length ? documentsNamed(state) : [];
  const isAnswerable = record.value?.results.length > 0 && named?.length === 0;
  const told = isAnswerable ? answered(state) : null;
  leave(told);
  draw(region, "both", () => []);
  const hit = region.querySelector(".hit:is(:hover, :focus-within)");
  const place = hit?.getBoundingClientRect().top;
  const [, below] = regions(region, [
    ["answer", [given, Boolean(told), revisionOf("answer")], () => [told && answer(state, told, record.value)]],
    ["results", [given, record.revision, named], () => results(state, record, named)],
  ]);
  mark(below, state, numbersOf(told));
  // A card that is read stays where it is. Browsers see to that only once the page is scrolled.
  if (hit?.isConnected && scrollY === 0) scrollBy(0, hit.getBoundingClientRect().top - place);
}

// The documents whose file name is the query, or null while they are asked for. They need no answer.
function documentsNamed(state) {
  const name = state.q.toLowerCase();
  const all = indexes();
  if (name.length > LONGEST_NAME || all.problem) return [];
  if (!all.value) return null;
  const query = (index) => ({ index, name: state.q, limit: MOST_NAMED });
  const records = askedIndexes(state, all.value.indexes).map((index) => ({
    index,
    record: once("documents", query(index), (signal) => get("/v1/documents", query(index), signal)),
  }));
  if (records.some(({ record }) => !record.isOver)) return null;
  const found = records.flatMap(({ index, record }) =>
    (record.value?.documents ?? []).map((each) => ({ ...each, index })),
  );
  return found.filter(({ id }) => `/${id}`.toLowerCase().endsWith(`/${name}`));
}

function openNamed(state, { id, index }) {
  return link(bdi(id), () => change({ doc: id, chunk: "", at: "", of: state.indexes ? index : "" }));
}

function results(state, record, named) {
  if (record.problem) return problems(record.problem);
  if (!record.value) return searching();
  const found = record.value;
  const notes = [
    named?.map((each) => h("p", { class: "named" }, TEXT.named, openNamed(state, each))),
    fallbacks(found),
  ];
  return [notes, found.results.length ? cards(state, found) : nothing(state, found)];
}

// The one field. In a conversation, it continues the conversation.
function form(state, isTalk) {
  const label = isTalk ? TEXT.askNext : TEXT.question;
  const field = h("input", {
    type: "search",
    id: "question",
    value: state.q,
    autocomplete: "off",
    spellcheck: true,
    dir: "auto",
    maxLength: 10_000,
    placeholder: TEXT.placeholder,
    "aria-label": label,
  });
  const submit = (event) => {
    event.preventDefault();
    const q = field.value.trim();
    if (q === state.q && q) forget("search", "answer", "context");
    else change({ q, tab: "", talk: isTalk && q ? talkWith(state) : "", ...CLOSED });
  };
  const anew = () => {
    change({ q: "", tab: "", talk: "", ...CLOSED });
    setTimeout(() => document.getElementById("question").focus());
  };
  return h(
    "form",
    { onsubmit: submit, role: "search" },
    h(
      "div",
      { class: "question" },
      field,
      h("button", { class: "main" }, TEXT.ask),
      isTalk && h("button", { type: "button", id: "anew", onclick: anew }, TEXT.newQuestion),
    ),
    filters(state),
  );
}

function talkWith(state) {
  const { done } = latest?.value ?? {};
  return done ? addTurn(state.talk, state.q, done.text) : state.talk;
}

function tabs(state) {
  const go = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const at = TABS.findIndex(([name]) => name === state.tab);
    const [next] = TABS[(at + step + TABS.length) % TABS.length];
    change({ tab: next });
    setTimeout(() => document.getElementById(`tab-${next || "answer"}`)?.focus());
  };
  const one = ([name, text]) =>
    h(
      "button",
      {
        role: "tab",
        id: `tab-${name || "answer"}`,
        type: "button",
        "aria-selected": String(name === state.tab),
        "aria-controls": "panel",
        tabIndex: name === state.tab ? 0 : -1,
        onclick: () => change({ tab: name }),
      },
      text,
    );
  return h("div", { class: "tabs", role: "tablist", "aria-label": TEXT.inspect, onkeydown: go }, TABS.map(one));
}

function welcome(state) {
  const all = indexes();
  if (all.problem) return problems(all.problem);
  if (!all.value) return null;
  const [name] = askedIndexes(state, all.value.indexes);
  const about = name && contents(name).value;
  const topic = (text) => h("li", {}, ...[link(bdi(text), () => change({ q: text }))]);
  const topics = topicsOf(about);
  return h(
    "div",
    { class: "quiet" },
    h("p", {}, about?.description || TEXT.welcome),
    topics.length > 0 && [h("p", { class: "small" }, TEXT.topics), h("ul", {}, topics.map(topic))],
    h("p", { class: "small" }, all.value.files ? link(TEXT.addFiles, () => change({ view: "index" })) : TEXT.readOnly),
  );
}

// Up to three things that can be asked about: titles and sections of several words, the most frequent first.
function topicsOf(about) {
  const values = ["title", "section"].flatMap(
    (wanted) => about?.fields.find(({ name }) => name === wanted)?.examples ?? [],
  );
  return [...new Set(values.filter((value) => typeof value === "string" && /\S\s+\S/.test(value)))].slice(0, 3);
}

// The view of a question: the form, the answer, its results below it, and what is to inspect.

import { answer, answered, numbersOf } from "./answer.js";
import { get } from "./api.js";
import { asked as askedIndexes, contents, indexes, notice } from "./corpus.js";
import { bdi, draw, h, link, regions } from "./dom.js";
import { filters, filtersKey } from "./filters.js";
import { inspect, inspectKey } from "./inspect.js";
import { CLOSED } from "./query.js";
import { cards, fallbacks, mark, outcome, problems, searched } from "./results.js";
import { addTurn, change, drop, forget, once, revisionOf } from "./store.js";
import { TEXT } from "./words.js";

const TABS = [
  ["", TEXT.answer],
  ["why", TEXT.why],
  ["context", TEXT.context],
  ["compare", TEXT.compare],
];
const LONGEST_NAME = 200;
const MOST_TOPICS = 6;
const MOST_NAMED = 20;
const FILE_NAME = /\.\w{1,8}$/;
const tabId = (tab) => `tab-${tab || "answer"}`;
let latest = null;

export function ask(main, state) {
  const { q, tab } = state;
  const where = [state.index, state.indexes];
  const known = [where, indexes().revision];
  const [top, told, , region] = regions(main, [
    ["form"],
    ["notice", known, () => [notice(state)]],
    ["tabs", [q && "tabs", tab], () => [q && tabs(state)]],
    q ? ["panel"] : ["welcome", [known, revisionOf("contents")], () => [welcome(state)]],
  ]);
  told.setAttribute("role", "status");
  if (q) panel(region, state);
  else leave(null);
  const isTalk = Boolean(q && (state.talk || latest?.value?.done?.kind === "written"));
  draw(top, [q, state.filters, where, state.talk, isTalk, filtersKey()], () => form(state, isTalk));
}

function panel(region, state) {
  region.id = "panel";
  region.setAttribute("role", "tabpanel");
  region.setAttribute("aria-labelledby", tabId(state.tab));
  try {
    if (state.tab) draw(region, [{ ...state, ...CLOSED }, inspectKey()], () => inspect(state));
    else both(region, state);
  } catch (problem) {
    draw(region, "problem", () => problems(problem));
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
  const { unlikely, unknown } = record.value?.relevance ?? {};
  const named = unlikely || unknown?.length || FILE_NAME.test(state.q) ? documentsNamed(state) : [];
  const told = record.value?.results.length && named?.length === 0 ? answered(state) : null;
  leave(told);
  draw(region, "both", () => []);
  const hit = region.querySelector(".hit:is(:hover, :focus-within)");
  const place = hit?.getBoundingClientRect().top;
  const [, below] = regions(region, [
    ["answer", [given, Boolean(told), revisionOf("answer")], () => [told && answer(state, told, record.value)]],
    ["results", [given, record.revision, named], () => outcome(record, (found) => results(state, found, named))],
  ]);
  mark(below, state, numbersOf(told));
  // A card that is read stays where it is. Browsers see to that only once the page is scrolled.
  if (hit?.isConnected && scrollY === 0) scrollBy(0, hit.getBoundingClientRect().top - place);
}

// The documents whose file name is the query, or null while they are asked for. They need no answer.
function documentsNamed({ q: name, ...state }) {
  const all = indexes();
  if (name.length > LONGEST_NAME || all.problem) return [];
  if (!all.value) return null;
  const records = askedIndexes(state, all.value.indexes).map((index) => {
    const query = { index, name, limit: MOST_NAMED };
    return once("documents", query, async (signal) => {
      const { documents } = await get("/v1/documents", query, signal);
      const found = documents.filter(({ id }) => `/${id}`.toLowerCase().endsWith(`/${name.toLowerCase()}`));
      return found.map(({ id }) => ({ doc: id, of: state.indexes ? index : "" }));
    });
  });
  return records.every(({ isOver }) => isOver) ? records.flatMap(({ value }) => value ?? []) : null;
}

function results(state, found, named) {
  const open = (opened) => link(bdi(opened.doc), () => change({ ...CLOSED, ...opened }));
  return [named?.map((each) => h("p.named", TEXT.named, open(each))), fallbacks(found), cards(state, found)];
}

function form(state, isTalk) {
  const field = h("input", {
    type: "search",
    id: "question",
    value: state.q,
    autocomplete: "off",
    spellcheck: true,
    dir: "auto",
    maxLength: 10_000,
    placeholder: TEXT.placeholder,
    "aria-label": isTalk ? TEXT.askNext : TEXT.question,
  });
  const onsubmit = (event) => {
    event.preventDefault();
    const q = field.value.trim();
    if (q === state.q) forget("search", "answer", "context");
    else change({ ...CLOSED, q, tab: "", talk: q && isTalk ? talkWith(state) : "" });
  };
  const anew = () => {
    change({ ...CLOSED, q: "", tab: "", talk: "" });
    setTimeout(() => document.getElementById("question").focus());
  };
  const again = isTalk && h("button", { type: "button", id: "anew", onclick: anew }, TEXT.newQuestion);
  const row = h("div.row", field, h("button.main", TEXT.ask), again);
  return h("form", { onsubmit, role: "search" }, row, filters(state));
}

function talkWith({ talk, q }) {
  const done = latest?.value?.done;
  return done ? addTurn(talk, q, done.text) : talk;
}

function tabs({ tab }) {
  const onkeydown = ({ key }) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[key];
    if (!step) return;
    const at = TABS.findIndex(([name]) => name === tab);
    const [next] = TABS.at((at + step) % TABS.length);
    change({ tab: next });
    setTimeout(() => document.getElementById(tabId(next))?.focus());
  };
  const one = ([name, text]) => {
    const more = {
      role: "tab",
      id: tabId(name),
      "aria-selected": String(name === tab),
      "aria-controls": "panel",
      tabIndex: name === tab ? 0 : -1,
      onclick: () => change({ tab: name }),
    };
    return h("button", more, text);
  };
  return h("div.tabs", { role: "tablist", "aria-label": TEXT.inspect, onkeydown }, TABS.map(one));
}

function welcome(state) {
  const all = indexes();
  if (all.problem) return problems(all.problem);
  if (!all.value) return null;
  const known = askedIndexes(state, all.value.indexes).map((name) => contents(name).value);
  const topics = [...new Set(known.flatMap(topicsOf))].slice(0, MOST_TOPICS);
  const topic = (q) => link(bdi(q), () => change({ q }));
  return h(
    "div.quiet",
    h("p", (known.length === 1 && known[0]?.description) || TEXT.welcome),
    topics.length > 0 && [
      h("p.small", TEXT.topics),
      h(
        "ul",
        topics.map((each) => h("li", topic(each))),
      ),
    ],
    h("p.small", all.value.files ? link(TEXT.addFiles, () => change({ view: "index" })) : TEXT.readOnly),
  );
}

// Up to three things that can be asked about: titles and sections of several words, the most frequent first.
function topicsOf(about) {
  const examples = (wanted) => about?.fields.find(({ name }) => name === wanted)?.examples ?? [];
  const values = ["title", "section"].flatMap(examples).filter((value) => /\S\s+\S/.test(value));
  return [...new Set(values)].slice(0, 3);
}

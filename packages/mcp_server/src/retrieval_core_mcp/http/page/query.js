// What is asked, between the page's address, the filter's rows and the body of a request.

import { Problem } from "./api.js";
import { FAILURES } from "./words.js";

export const DEFAULTS = {
  view: "ask",
  q: "",
  tab: "",
  mode: "",
  top: "",
  index: "",
  indexes: "",
  filters: "",
  doc: "",
  chunk: "",
  of: "",
  at: "",
  other: "",
  talk: "",
};
export const CLOSED = { chunk: "", doc: "", of: "", at: "" };
const TABS = ["", "why", "context", "compare"];
const VIEWS = ["ask", "index"];

// Return the state that an address names. Unknown views and tabs, also those of older versions, are the first one.
export function stateOf(search) {
  const given = new URLSearchParams(search);
  const state = Object.fromEntries(Object.entries(DEFAULTS).map(([name, value]) => [name, given.get(name) ?? value]));
  const [tab, view] = [TABS.includes(state.tab) ? state.tab : "", VIEWS.includes(state.view) ? state.view : "ask"];
  return { ...state, tab, view };
}

export function searchOf(state) {
  const kept = Object.entries(state).filter(([name, value]) => name in DEFAULTS && value !== DEFAULTS[name]);
  return kept.length ? `?${new URLSearchParams(kept)}` : "";
}

// The names of the indexes to search if these are several: names of such have no white space.
export function several(state) {
  return state.indexes ? state.indexes.split(" ") : [];
}

export function sourceIndex(state) {
  return state.of || state.index;
}

export function quoteOf({ at }) {
  return /^(\d+)-(\d+)$/.exec(at)?.slice(1).map(Number);
}

// Return what opens a chunk beside the results. With several indexes, its id may begin with the name of its own.
export function opening(state, id, index) {
  const scoped = !index && several(state).find((name) => id.startsWith(`${name}:`));
  return { chunk: scoped ? id.slice(scoped.length + 1) : id, of: index ?? (scoped || ""), doc: "", at: "" };
}

// Return the rows of a filter, or null for one that the page can't show.
export function rowsOf(filters) {
  if (!filters) return [];
  try {
    return Object.entries(JSON.parse(filters)).flatMap(([field, test]) => {
      const tests = typeof test === "object" && test !== null ? test : { $eq: test };
      return Object.entries(tests).map(([operator, value]) => ({ field, operator, value }));
    });
  } catch {
    return null;
  }
}

export function filtersOf(rows) {
  const filter = { __proto__: null };
  for (const { field, operator, value } of rows) filter[field] = { ...filter[field], [operator]: value };
  return rows.length ? JSON.stringify(filter) : "";
}

// The operators that fit the types of a field, the most useful first.
export function operatorsOf(field) {
  const types = field?.types ?? [];
  const ranged = field?.min != null;
  const found = [];
  if (types.includes("text")) found.push("$text");
  if (types.some((type) => type.startsWith("list"))) found.push("$contains");
  if (ranged) found.push("$gte", "$lte");
  return [...new Set([...found, "$eq", "$ne"])];
}

export function typedValue(text, field, operator = "$eq") {
  const types = field?.types ?? [];
  if (operator === "$text") return text;
  if (types.some((type) => type.includes("boolean")) && ["true", "false"].includes(text)) return text === "true";
  const isNumber = types.some((type) => type.includes("number")) && text.trim() !== "" && Number.isFinite(Number(text));
  return isNumber ? Number(text) : text;
}

// Return the fields of several indexes: each once, with the values and the range that it has in any of them.
export function mergeFields(fields) {
  const merged = new Map();
  for (const field of fields) {
    const known = merged.get(field.name);
    if (!known) {
      merged.set(field.name, field);
      continue;
    }
    const given = [known.min, known.max, field.min, field.max].filter((each) => each != null);
    const ends = given.sort((one, other) => (one < other ? -1 : 1));
    const union = (name) => [...new Set([...(known[name] ?? []), ...(field[name] ?? [])])];
    const all = { types: union("types"), examples: union("examples"), min: ends[0], max: ends.at(-1) };
    merged.set(field.name, { ...known, ...all });
  }
  return [...merged.values()];
}

// Return the body of a request for what a state asks. Throw a problem if its filter is not JSON.
export function questionOf(state, more = {}) {
  if (rowsOf(state.filters) === null) throw new Problem("request", [FAILURES.filter], 400);
  return {
    query_text: state.q,
    index: state.index || undefined,
    indexes: state.indexes ? several(state) : undefined,
    mode: state.mode || undefined,
    top_k: state.top ? Number(state.top) : undefined,
    filters: state.filters ? JSON.parse(state.filters) : undefined,
    ...more,
  };
}

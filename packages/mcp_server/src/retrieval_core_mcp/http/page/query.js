// What is asked, between the page's address, the filter's rows and the body of a request.

import { Problem } from "./api.js";
import { FAILURES } from "./words.js";

const NAMES = "q tab mode top index indexes filters doc chunk of at other talk find".split(" ");
const DEFAULTS = { view: "ask", ...Object.fromEntries(NAMES.map((name) => [name, ""])) };
export const CLOSED = { chunk: "", doc: "", of: "", at: "" };
const TABS = ["", "why", "context", "compare"];
const VIEWS = ["ask", "index"];

// Return the state that an address names. Unknown views and tabs, also those of older versions, are the first one.
export function stateOf(search) {
  const given = new URLSearchParams(search);
  const state = Object.fromEntries(Object.entries(DEFAULTS).map(([name, value]) => [name, given.get(name) ?? value]));
  const known = (all, one) => (all.includes(one) ? one : all[0]);
  return { ...state, tab: known(TABS, state.tab), view: known(VIEWS, state.view) };
}

export function searchOf(state) {
  const kept = Object.entries(state).filter(([name, value]) => value !== DEFAULTS[name]);
  return kept.length ? `?${new URLSearchParams(kept)}` : "";
}

// The names of the indexes to search if these are several: names of such have no white space.
export const several = ({ indexes }) => indexes.split(" ").filter(Boolean);

export const sourceIndex = ({ of, index }) => of || index;

export function quoteOf({ at }) {
  return /^(\d+)-(\d+)$/.exec(at)?.slice(1).map(Number);
}

// Return what opens a chunk beside the results. With several indexes, its id may begin with the name of its own.
export function opening(state, id, index) {
  const own = index ? "" : (several(state).find((name) => id.startsWith(`${name}:`)) ?? "");
  return { ...CLOSED, chunk: own ? id.slice(own.length + 1) : id, of: index || own };
}

// Return the rows of a filter, or null for one that the page can't show.
export function rowsOf(filters) {
  if (!filters) return [];
  try {
    return Object.entries(JSON.parse(filters)).flatMap(([field, test]) => {
      const tests = Object(test) === test ? test : { $eq: test };
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

export function operatorsOf({ types, min }) {
  return [
    types.includes("text") && "$text",
    types.some((type) => type.startsWith("list")) && "$contains",
    min != null && "$gte",
    min != null && "$lte",
    "$eq",
    "$ne",
  ].filter(Boolean);
}

export function typedValue(text, { types }, operator) {
  const has = (kind) => types.some((type) => type.includes(kind));
  if (operator === "$text") return text;
  if (has("boolean") && ["true", "false"].includes(text)) return text === "true";
  return has("number") && Number.isFinite(Number(text)) ? Number(text) : text;
}

// Return the fields of several indexes: each once, with the values and the range that it has in any of them.
export function mergeFields(fields) {
  return [...Map.groupBy(fields, ({ name }) => name).values()].map((same) => {
    const union = (name) => [...new Set(same.flatMap((field) => field[name] ?? []))];
    const ends = [...union("min"), ...union("max")].sort((one, other) => (one < other ? -1 : 1));
    return { ...same[0], types: union("types"), examples: union("examples"), min: ends[0], max: ends.at(-1) };
  });
}

// Return the body of a request for what a state asks. Throw a problem if its filter is not JSON.
export function questionOf(state, more) {
  if (rowsOf(state.filters) === null) throw new Problem("request", [FAILURES.filter]);
  return {
    query_text: state.q,
    index: state.index,
    indexes: state.indexes && several(state),
    mode: state.mode,
    top_k: state.top && Number(state.top),
    filters: state.filters && JSON.parse(state.filters),
    ...more,
  };
}

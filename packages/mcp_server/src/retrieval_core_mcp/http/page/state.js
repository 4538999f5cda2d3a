import { Problem } from "./api.js";

// What is asked, as it stands in the page's address: whoever gets the address sees the same.

export const DEFAULTS = { view: "ask", q: "", tab: "passages", mode: "", top: "", index: "", indexes: "", filters: "", doc: "", chunk: "", of: "", other: "" };

export function read() {
  const given = new URLSearchParams(location.search);
  return Object.fromEntries(Object.entries(DEFAULTS).map(([name, value]) => [name, given.get(name) ?? value]));
}

export function addressOf(state) {
  const kept = Object.entries(state).filter(([name, value]) => value !== DEFAULTS[name]);
  return kept.length ? `?${new URLSearchParams(kept)}` : location.pathname;
}

export function change(values, { replace = false } = {}) {
  const state = { ...read(), ...values };
  if (addressOf(state) === addressOf(read())) return;
  history[replace ? "replaceState" : "pushState"](null, "", addressOf(state));
  dispatchEvent(new Event("changed"));
}

// The names of the indexes that are asked where these are several: names of such have no white space.
export function several(state) {
  return state.indexes ? state.indexes.split(" ") : [];
}

// The index that the open source is from.
export function sourceIndex(state) {
  return state.of || state.index;
}

// Opens a passage beside the results. Of several indexes its id may begin with the name of its own and a colon.
export function openChunk(id, index) {
  const scoped = !index && several(read()).find((name) => id.startsWith(`${name}:`));
  change({ chunk: scoped ? id.slice(scoped.length + 1) : id, of: index ?? (scoped || ""), doc: "" });
}

// Does once more what the address says, after something failed.
export function again() {
  dispatchEvent(new CustomEvent("changed", { detail: "again" }));
}

// The filter of the rows that the page has; `null` where somebody wrote one by hand that the page cannot show.
export function conditions(filters) {
  if (!filters) return [];
  try {
    const parsed = JSON.parse(filters);
    return Object.entries(parsed).flatMap(([field, test]) =>
      Object.entries(typeof test === "object" && test !== null ? test : { $eq: test }).map(([operator, value]) => ({ field, operator, value })));
  } catch {
    return null;
  }
}

export function filtersOf(rows) {
  const filter = { __proto__: null };
  for (const { field, operator, value } of rows) filter[field] = { ...filter[field], [operator]: value };
  return rows.length ? JSON.stringify(filter) : "";
}

function parsed(filters) {
  if (conditions(filters) === null) throw new Problem(400, ["The filter in the address is not valid JSON. Leave it out, or write it anew."]);
  return filters ? JSON.parse(filters) : undefined;
}

export function question(state, more = {}) {
  return {
    query_text: state.q,
    index: state.index || undefined,
    indexes: state.indexes ? several(state) : undefined,
    mode: state.mode || undefined,
    top_k: state.top ? Number(state.top) : undefined,
    filters: parsed(state.filters),
    ...more,
  };
}

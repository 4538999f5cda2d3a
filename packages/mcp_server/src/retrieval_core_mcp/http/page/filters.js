// Filters by the fields of the indexes, with what fits each type: contains, equals, has, ranges and dates.

import { fieldsOf, indexes } from "./corpus.js";
import { bdi, fill, h, link, say, select } from "./dom.js";
import { CLOSED, filtersOf, operatorsOf, rowsOf, typedValue } from "./query.js";
import { change, changed, revisionOf } from "./store.js";
import { OPERATORS, TEXT } from "./words.js";

const GENERAL = ["chunk_index", "document_id", "id", "page", "parent_id", "section", "source", "timestamp", "title"];
let isOpen = false;

export const filtersKey = () => [isOpen, isOpen && [revisionOf("contents"), indexes().value?.indexes.length]];

export function filters(state) {
  const rows = rowsOf(state.filters);
  if (rows === null || rows.length) isOpen = true;
  const details = h(
    "details",
    { class: "filters", open: isOpen },
    h("summary", { id: "filters" }, TEXT.filters(rows?.length ?? 0)),
    isOpen && body(state, rows),
  );
  details.addEventListener("toggle", () => {
    if (details.open === isOpen) return;
    isOpen = details.open;
    changed();
  });
  return details;
}

function body(state, rows) {
  if (rows === null) {
    const leave = h("button", { type: "button", onclick: () => change({ filters: "" }) }, TEXT.removeFilter);
    return [h("p", { class: "notice" }, TEXT.brokenFilter), leave];
  }
  const { fields, problem } = fieldsOf(state);
  const shown = rows.map((row, place) => line(rows, row, place));
  if (problem) return [shown, h("p", { class: "notice" }, TEXT.noFields(problem.message))];
  if (!fields) return [shown, h("p", { class: "quiet small" }, TEXT.searching)];
  if (!fields.length) return [shown, !rows.length && h("p", { class: "small soft" }, TEXT.withoutFields)];
  return [shown, adding(rows, inOrder(fields))];
}

// The fields of the documents before those that every chunk has, each by the alphabet.
export function inOrder(fields) {
  const isGeneral = ({ name }) => GENERAL.includes(name);
  return [...fields].sort((one, other) => isGeneral(one) - isGeneral(other) || (one.name < other.name ? -1 : 1));
}

function line(rows, { field, operator, value }, place) {
  const rest = rows.filter((_, other) => other !== place);
  const text = typeof value === "string" ? value : JSON.stringify(value);
  return h(
    "div",
    { class: "filter-row" },
    h("span", {}, `${field} ${OPERATORS[operator] ?? operator} `, bdi(text)),
    link(TEXT.remove, () => change({ filters: filtersOf(rest), ...CLOSED }), {
      "aria-label": TEXT.removeFilterOn(field),
    }),
  );
}

function adding(rows, fields) {
  const place = h("span", { class: "filter-row" });
  let chosen = fields[0];
  let operator;
  let value;
  const add = () => {
    const text = value.value.trim();
    if (text === "") return value.focus();
    const row = { field: chosen.name, operator: operator.value, value: typedValue(text, chosen, operator.value) };
    say(TEXT.filterAdded);
    return change({ filters: filtersOf([...rows, row]), ...CLOSED });
  };
  const show = () => {
    operator = select(
      TEXT.condition,
      operatorsOf(chosen).map((name) => [name, OPERATORS[name]]),
      "",
      () => {},
    );
    value = input(chosen);
    value.addEventListener("keydown", (event) => {
      if (event.key !== "Enter") return;
      event.preventDefault();
      add();
    });
    const list = h(
      "datalist",
      { id: "values" },
      (chosen.examples ?? []).map((each) => h("option", { value: String(each) })),
    );
    if (value.tagName === "INPUT" && value.type === "text") value.setAttribute("list", "values");
    const range = chosen.min != null && TEXT.range(chosen.min, chosen.max);
    fill(place, operator, value, list, range && h("span", { class: "small soft" }, range));
  };
  const field = select(
    TEXT.field,
    fields.map(({ name }) => [name, name]),
    chosen.name,
    (name) => {
      chosen = fields.find((each) => each.name === name);
      show();
    },
  );
  show();
  return h("div", { class: "filter-row" }, field, place, h("button", { type: "button", onclick: add }, TEXT.add));
}

function input({ types = [], min, max }) {
  const name = { "aria-label": TEXT.value };
  if (types.length && types.every((type) => type === "boolean")) {
    return h(
      "select",
      name,
      ["true", "false"].map((each) => h("option", {}, each)),
    );
  }
  if (typeof min === "number") return h("input", { ...name, type: "number", step: "any" });
  if (/^\d{4}-\d\d-\d\d$/.test(min ?? "")) return h("input", { ...name, type: "date", min, max });
  return h("input", { ...name, type: "text", dir: "auto", size: 18 });
}

// Filters by the fields of the indexes, with what fits each type: contains, equals, has, ranges and dates.

import { fieldsOf, indexes } from "./corpus.js";
import { bdi, fill, h, link, say, select } from "./dom.js";
import { CLOSED, filtersOf, operatorsOf, rowsOf, typedValue } from "./query.js";
import { change, changed, revisionOf } from "./store.js";
import { FAILURES, OPERATORS, TEXT } from "./words.js";

const GENERAL = ["chunk_index", "document_id", "id", "page", "parent_id", "section", "source", "timestamp", "title"];
let isOpen = false;

export const filtersKey = () => [isOpen, isOpen && [revisionOf("contents"), indexes().value?.indexes.length]];

export function filters(state) {
  const rows = rowsOf(state.filters);
  if (rows?.length !== 0) isOpen = true;
  const ontoggle = ({ target }) => {
    if (target.open === isOpen) return;
    isOpen = target.open;
    changed();
  };
  return h(
    "details.filters",
    { open: isOpen, ontoggle },
    h("summary", { id: "filters" }, TEXT.filters(rows?.length)),
    isOpen && body(state, rows),
  );
}

function body(state, rows) {
  if (!rows) {
    const leave = h("button", { type: "button", onclick: () => change({ filters: "" }) }, TEXT.removeFilter);
    return [!state.q && h("p.notice", FAILURES.filter), leave]; // with a query, its results say so
  }
  return [rows.map((row) => line(rows, row)), adding(rows, fieldsOf(state))];
}

// The fields of the documents before those that every chunk has, each by the alphabet.
export function inOrder(fields) {
  const isGeneral = ({ name }) => GENERAL.includes(name);
  return [...fields].sort((one, other) => isGeneral(one) - isGeneral(other) || (one.name < other.name ? -1 : 1));
}

function line(rows, row) {
  const { field, operator, value } = row;
  const filters = filtersOf(rows.filter((other) => other !== row));
  const text = typeof value === "string" ? value : JSON.stringify(value);
  return h(
    "div.row",
    h("span", `${field} ${OPERATORS[operator] ?? operator} `, bdi(text)),
    link(TEXT.remove, () => change({ filters, ...CLOSED }), { "aria-label": TEXT.removeFilterOn(field) }),
  );
}

function adding(rows, { fields, problem }) {
  if (problem) return h("p.notice", TEXT.noFields(problem.message));
  if (!fields) return h("p.quiet.small", TEXT.searching);
  if (!fields.length) return !rows.length && h("p.small.soft", TEXT.withoutFields);
  const place = h("span.row");
  const all = inOrder(fields);
  let chosen;
  let operator;
  let value;
  const add = () => {
    const text = value.value.trim();
    if (!text) return value.focus();
    const row = { field: chosen.name, operator: operator.value, value: typedValue(text, chosen, operator.value) };
    say(TEXT.filterAdded);
    return change({ filters: filtersOf([...rows, row]), ...CLOSED });
  };
  const onkeydown = (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault();
    add();
  };
  const show = (name) => {
    chosen = all.find((each) => each.name === name);
    const { min, max, examples } = chosen;
    operator = select(
      TEXT.condition,
      operatorsOf(chosen).map((each) => [each, OPERATORS[each]]),
    );
    value = input(chosen, onkeydown);
    const list = h(
      "datalist",
      { id: "values" },
      examples.map((each) => h("option", { value: String(each) })),
    );
    fill(place, operator, value, list, min != null && h("span.small.soft", TEXT.range(min, max)));
  };
  const names = all.map(({ name }) => name);
  show(names[0]);
  const field = select(TEXT.field, names.map(twice), names[0], show);
  return h("div.row", field, place, h("button", { type: "button", onclick: add }, TEXT.add));
}

const twice = (text) => [text, text];

function input({ types, min, max }, onkeydown) {
  const given = { "aria-label": TEXT.value, onkeydown };
  if (types.length && types.every((type) => type === "boolean"))
    return select(TEXT.value, ["true", "false"].map(twice), "true", null, given);
  if (typeof min === "number") return h("input", { ...given, type: "number", step: "any" });
  if (/^\d{4}-\d\d-\d\d$/.test(min)) return h("input", { ...given, type: "date", min, max });
  const text = h("input", { ...given, type: "text", dir: "auto", size: 18 });
  text.setAttribute("list", "values");
  return text;
}

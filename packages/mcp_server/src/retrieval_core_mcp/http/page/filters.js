import { get, part } from "./api.js";
import { fill, h, say } from "./dom.js";
import { change, conditions, filtersOf, several } from "./state.js";

const OPERATORS = { __proto__: null, $eq: "is", $ne: "is not", $gte: "at least", $lte: "at most", $contains: "contains" };
const SHOWN = { ...OPERATORS, __proto__: null, $text: "contains" };
const known = new Map();
let open = false;

// Filters by the fields that there are, with their values and ranges.
export function filterRows(state) {
  const rows = conditions(state.filters);
  const body = h("div", {});
  const details = h("details", { class: "filters", open: open || rows?.length !== 0 }, h("summary", {}, rows?.length ? `Filters (${rows.length})` : "Filters"), body);
  details.addEventListener("toggle", () => {
    open = details.open;
    if (open) show();
  });
  if (details.open) show();
  return details;

  async function show() {
    if (rows === null) {
      fill(body, h("p", { class: "notice" }, "The filter in the address is not valid JSON. "), h("button", { type: "button", onclick: () => change({ filters: "" }) }, "Leave it out"));
      return;
    }
    let fields;
    try {
      fields = await fieldsOfAll(state);
    } catch (problem) {
      fill(body, rows.map(line), h("p", { class: "notice" }, `The fields cannot be read: ${problem.message}`));
      return;
    }
    if (!fields.length && !rows.length) {
      fill(body, h("p", { class: "small soft" }, "The passages of this index have no fields to filter by."));
      return;
    }
    fill(body, rows.map(line), adding(fields));
  }

  function line({ field, operator, value }, place) {
    const rest = rows.filter((_, other) => other !== place);
    return h("div", { class: "filter-row" }, h("span", {}, `${field} ${SHOWN[operator] ?? operator} `, h("bdi", {}, typeof value === "string" ? value : JSON.stringify(value))),
      h("button", { type: "button", class: "link", "aria-label": `Leave out the filter on ${field}`, onclick: () => change({ filters: filtersOf(rest) }) }, "leave out"));
  }

  function adding(fields) {
    const field = h("select", { "aria-label": "Field" }, fields.map(({ name }) => h("option", {}, name)));
    const operator = h("select", { "aria-label": "Condition" }, Object.entries(OPERATORS).map(([name, text]) => h("option", { value: name }, text)));
    const list = h("datalist", { id: "values" });
    const value = h("input", { "aria-label": "Value", dir: "auto", size: 18 });
    value.setAttribute("list", "values");
    const hint = h("span", { class: "small soft" });
    const choose = () => {
      const chosen = fields.find(({ name }) => name === field.value);
      fill(list, (chosen?.examples ?? []).map((each) => h("option", { value: String(each) })));
      hint.textContent = chosen?.min !== undefined ? `${chosen.min} to ${chosen.max}` : "";
    };
    field.addEventListener("change", choose);
    choose();
    const add = () => {
      if (value.value === "") return value.focus();
      const chosen = fields.find(({ name }) => name === field.value);
      const within = operator.value === "$contains" && isText(chosen);
      const row = within ? { operator: "$text", value: value.value } : { operator: operator.value, value: typed(value.value, chosen) };
      change({ filters: filtersOf([...rows, { field: field.value, ...row }]), chunk: "", doc: "" });
      say("Filter added");
    };
    value.addEventListener("keydown", (event) => {
      if (event.key === "Enter") {
        event.preventDefault();
        add();
      }
    });
    return h("div", { class: "filter-row" }, field, operator, value, list, h("button", { type: "button", onclick: add }, "Add"), hint);
  }
}

// The fields of all indexes that are asked; each once, with what it has in any of them.
async function fieldsOfAll(state) {
  const merged = new Map();
  for (const field of (await Promise.all((state.indexes ? several(state) : [state.index]).map(fieldsOf))).flat()) {
    const known = merged.get(field.name);
    const ends = [known?.min, known?.max, field.min, field.max].filter((each) => each !== undefined).sort((one, other) => (one < other ? -1 : 1));
    merged.set(field.name, known ? { ...known, types: [...new Set([...(known.types ?? []), ...(field.types ?? [])])], examples: [...new Set([...(known.examples ?? []), ...(field.examples ?? [])])], min: ends[0], max: ends.at(-1) } : field);
  }
  return [...merged.values()];
}

export async function fieldsOf(index) {
  if (!known.has(index)) {
    const name = index || (await get("/v1/indexes")).indexes[0].name;
    known.set(index, (await get(`/v1/indexes/${part(name)}/fields`)).fields);
  }
  return known.get(index);
}

export function forgetFields(index) {
  known.delete(index);
}

// Whether a field has texts, which contain words, and not only lists, which contain items.
function isText(field) {
  return (field?.types ?? []).includes("text");
}

function typed(text, field) {
  const kinds = field?.types ?? [];
  if (kinds.some((kind) => kind.includes("boolean")) && ["true", "false"].includes(text)) return text === "true";
  if (kinds.some((kind) => kind.includes("number")) && text.trim() !== "" && Number.isFinite(Number(text))) return Number(text);
  return text;
}

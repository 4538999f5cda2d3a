// The files: what the index contains, its fields, and with --allow-writes new files and the removal of documents.

import { Problem, get, remove } from "./api.js";
import { asked, contents, forgetContents, indexes, unusable } from "./corpus.js";
import { bdi, fill, h, headCell, link, numberCell, regions, say, select, table } from "./dom.js";
import { several } from "./query.js";
import { nameOf, problems } from "./results.js";
import { change, once, revisionOf } from "./store.js";
import { uploaded, uploads, uploadsKey } from "./uploads.js";
import { TEXT, shortNumber } from "./words.js";

const PAGE = 100;
let wanted = "";
let cursors = [""];
let shown = "";

export function library(main, state) {
  const all = indexes();
  const name = state.of || asked(state, all.value?.indexes ?? [])[0] || "";
  if (shown !== name) [shown, wanted, cursors] = [name, "", [""]];
  const { files, writable } = all.value ?? {};
  const records = all.value && name ? cursors.map((cursor) => listed(name, cursor)) : [];
  const listing = [name, wanted, cursors, revisionOf("documents"), writable];
  const inside = [
    ["search", [name, wanted], () => search()],
    files && ["adding", [name, files], () => uploads(name, files)],
    ["added", [name, uploadsKey()], () => uploaded(name)],
    ["documents", listing, () => documents(state, name, records, writable)],
    ["fields", [name, revisionOf("contents")], () => fields(name)],
    !files && ["read-only", [], () => h("p", { class: "small soft" }, TEXT.readOnly)],
  ];
  const [top] = regions(main, [
    ["head", [name, state.indexes], () => head(state, name)],
    ["condition", [name, all.revision], () => condition(all, name)],
    ...(records.length ? inside : []),
  ]);
  top.id = "library";
}

function head(state, name) {
  const choices = several(state).map((each) => [each, each]);
  const which =
    choices.length > 1
      ? select(TEXT.index, choices, name, (value) => change({ of: value, chunk: "", doc: "" }))
      : bdi(name);
  return h("h1", {}, TEXT.files, " · ", which);
}

function condition(all, name) {
  if (all.problem) return problems(all.problem);
  const info = all.value?.indexes.find((each) => each.name === name);
  if (!info) return [];
  const { points_count: total, indexed_vectors_count: embedded, vector_size: width } = info;
  const told = unusable(info);
  return [
    told && h("p", { class: "notice" }, told),
    width > 0 && total > embedded && h("p", { class: "notice" }, TEXT.notEmbedded(total - embedded)),
  ];
}

function fields(name) {
  const record = contents(name);
  if (record.problem) return problems(record.problem);
  if (!record.value?.fields.length) return [];
  const values = ({ min, max, examples }) =>
    min != null ? TEXT.range(min, max) : (examples ?? []).slice(0, 5).join(", ");
  const row = (field) => [
    headCell(field.name),
    (field.types ?? []).join(", "),
    numberCell(shortNumber(field.count)),
    bdi(values(field)),
  ];
  return h(
    "details",
    {},
    h("summary", {}, TEXT.fields(record.value.fields.length)),
    table(TEXT.fieldsToFilter, TEXT.fieldColumns, record.value.fields.map(row)),
  );
}

function search() {
  const name = h("input", {
    type: "search",
    id: "document",
    value: wanted,
    "aria-label": TEXT.partOfName,
    placeholder: TEXT.partOfName,
    dir: "auto",
  });
  const find = (event) => {
    event.preventDefault();
    [wanted, cursors] = [name.value.trim(), [""]];
    dispatchEvent(new Event("changed"));
  };
  return h("form", { class: "filter-row", role: "search", onsubmit: find }, name, h("button", {}, TEXT.find));
}

function listed(index, cursor) {
  const query = { index, limit: PAGE, cursor, name: wanted };
  return once("documents", query, (signal) => get("/v1/documents", query, signal));
}

function documents(state, index, records, writable) {
  const known = records.filter(({ value }) => value).map(({ value }) => value);
  const failed = records.find(({ problem }) => problem);
  const all = known.flatMap((each) => each.documents);
  const next = known.length === records.length && known.at(-1)?.next_cursor;
  const more = () => {
    cursors = [...cursors, next];
    dispatchEvent(new Event("changed"));
  };
  const none =
    known.length > 0 && !all.length && h("p", { class: "quiet" }, wanted ? TEXT.noSuchName : TEXT.noDocuments);
  return [
    h("h2", { class: "minor" }, TEXT.documents, " ", h("span", { class: "soft number" }, shortNumber(known[0]?.total))),
    all.length > 0 &&
      table(
        TEXT.documents,
        TEXT.documentColumns,
        all.map((each) => row(state, index, each, writable)),
      ),
    none,
    failed && problems(failed.problem),
    next && h("p", {}, h("button", { id: "more", onclick: more }, TEXT.more)),
    h("p", { class: "small soft" }, TEXT.skippedFiles),
  ];
}

function row(state, index, each, writable) {
  const open = () => change({ doc: each.id, chunk: "", at: "", of: state.indexes ? index : "" });
  const place = h("td", {}, writable && link(TEXT.remove, forgetIt, { class: "link small" }));
  const name = nameOf({ ...each, source: each.id, document_id: each.id });
  const title = link(bdi(name), open);
  const id = name !== each.id && h("div", { class: "small soft" }, bdi(each.id));
  return [[title, id], numberCell(shortNumber(each.chunks)), place];

  async function forgetIt() {
    if (!confirm(TEXT.removeDocument(each.id))) return;
    try {
      await remove("/v1/documents", { index, id: each.id });
      say(TEXT.removed);
      forgetContents();
    } catch (error) {
      fill(place, problems(Problem.of(error)));
    }
  }
}

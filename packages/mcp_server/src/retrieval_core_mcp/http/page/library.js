// The files: what the index contains, its fields, and with --allow-writes new files and the removal of documents.

import { remove } from "./api.js";
import { asked, contents, forgetContents, indexes, unusable } from "./corpus.js";
import { bdi, fill, h, headCell, link, numberCell, oneField, regions, say, select, table } from "./dom.js";
import { several } from "./query.js";
import { nameOf, problems } from "./results.js";
import { change, changed, fetched, revisionOf } from "./store.js";
import { sent, uploaded, uploads } from "./uploads.js";
import { TEXT, shortNumber } from "./words.js";

const PAGE = 100;
let cursors = [""];
let shown = "";

export function library(main, state) {
  const all = indexes();
  const { files, writable, indexes: infos = [] } = all.value ?? {};
  const name = state.of || asked(state, infos)[0];
  const wanted = state.find;
  const about = JSON.stringify([name, wanted]);
  if (shown !== about) [shown, cursors] = [about, [""]];
  const listing = [name, wanted, cursors, revisionOf("documents"), writable];
  const inside = [
    [
      "search",
      [name, wanted],
      () => [oneField("document", TEXT.partOfName, wanted, TEXT.find, (find) => change({ find }))],
    ],
    files && ["adding", [name, files], () => uploads(name, files)],
    ["added", [name, sent], () => uploaded(name)],
    ["documents", listing, () => documents(state, name, writable)],
    ["fields", [name, revisionOf("contents")], () => fields(name)],
    !files && ["read-only", [], () => h("p.small.soft", TEXT.readOnly)],
  ];
  regions(main, [
    ["head", [name, state.indexes], () => head(state, name)],
    ["condition", [name, all.revision], () => (all.problem ? problems(all.problem) : condition(infos, name))],
    ...(all.value && name ? inside : []),
  ]);
}

function head(state, name) {
  const choices = several(state).map((each) => [each, each]);
  const choose = (of) => change({ of, chunk: "", doc: "", find: "" });
  return h(
    "h1",
    { id: "library" },
    TEXT.files,
    " · ",
    choices.length > 1 ? select(TEXT.index, choices, name, choose) : bdi(name ?? ""),
  );
}

function condition(infos, name) {
  const info = infos.find((each) => each.name === name);
  const told = unusable(info);
  const waiting = info?.vector_size > 0 && info.points_count - info.indexed_vectors_count;
  return [told && h("p.notice", told), waiting > 0 && h("p.notice", TEXT.notEmbedded(waiting))];
}

function fields(name) {
  const { value, problem } = contents(name);
  if (problem) return problems(problem);
  if (!value?.fields.length) return [];
  const row = ({ name, types = [], count, min, max, examples = [] }) => [
    headCell(name),
    types.join(", "),
    numberCell(shortNumber(count)),
    bdi(min != null ? TEXT.range(min, max) : examples.slice(0, 5).join(", ")),
  ];
  return h(
    "details",
    h("summary", TEXT.fields(value.fields.length)),
    table(TEXT.fieldsToFilter, TEXT.fieldColumns, value.fields.map(row)),
  );
}

function documents(state, index, writable) {
  const records = cursors.map((cursor) =>
    fetched("documents", "/v1/documents", { index, limit: PAGE, cursor, name: state.find }),
  );
  const all = records.flatMap(({ value }) => value?.documents ?? []);
  const [first, last] = [records[0].value, records.at(-1).value];
  const failed = records.find(({ problem }) => problem);
  const more = () => {
    cursors = [...cursors, last.next_cursor];
    changed();
  };
  const rows = all.map((each) => row(state, index, each, writable));
  const none = first && h("p.quiet", state.find ? TEXT.noSuchName : TEXT.noDocuments);
  return [
    h("h2", TEXT.documents, " ", h("span.soft.number", shortNumber(first?.total))),
    rows.length ? table(TEXT.documents, TEXT.documentColumns, rows) : none,
    failed && problems(failed.problem),
    last?.next_cursor && h("p", h("button", { id: "more", onclick: more }, TEXT.more)),
    h("p.small.soft", TEXT.skippedFiles),
  ];
}

function row(state, index, { id, title, chunks }, writable) {
  const forgetIt = async () => {
    if (!confirm(TEXT.removeDocument(id))) return;
    try {
      await remove("/v1/documents", { index, id });
      say(TEXT.removed);
      forgetContents();
    } catch (problem) {
      fill(place, problems(problem));
    }
  };
  const place = h("td", writable && link(TEXT.remove, forgetIt, { class: "link small" }));
  const name = nameOf({ title, source: id });
  const open = () => change({ doc: id, chunk: "", at: "", of: state.indexes ? index : "" });
  return [[link(bdi(name), open), name !== id && h("div.small.soft", bdi(id))], numberCell(shortNumber(chunks)), place];
}

import { get, remove } from "./api.js";
import { day, fill, h, say, shortNumber } from "./dom.js";
import { fieldsOf, forgetFields } from "./filters.js";
import { problems } from "./passages.js";
import { change, read, several } from "./state.js";
import { uploads } from "./uploads.js";

// What the index holds: documents, fields, what is still to come, and with --allow-writes new files.
export async function library(main, asked, repeat) {
  const state = { ...asked, index: asked.of || asked.index || several(asked)[0] || "" };
  if (main.querySelector("#library")?.dataset.index === state.index && !repeat) return;  // only the document beside it has changed
  const facts = h("div", {});
  const adding = h("div", {});
  const fields = h("div", {});
  const documents = h("div", {});
  const which = several(asked).length > 1 && h("select", { "aria-label": "Index", onchange: (event) => change({ of: event.target.value, chunk: "", doc: "" }) }, several(asked).map((name) => h("option", { selected: name === state.index }, name)));
  fill(main, h("h1", { style: { fontSize: "1.3rem" }, id: "library", "data-index": state.index }, "The index ", which), facts, adding, fields, documents);
  try {
    const { indexes, writable, files } = await get("/v1/indexes");
    const info = indexes.find(({ name }) => name === state.index) ?? indexes[0];
    fill(facts, about(info));
    if (files) fill(adding, uploads(info.name, files, again));
    await Promise.all([showFields(fields, state), showDocuments(documents, state, writable)]);
  } catch (problem) {
    fill(facts, problems(problem));
  }

  // After something was added: what happened to each file stays to be read.
  async function again() {
    const { indexes } = await get("/v1/indexes");
    fill(facts, about(indexes.find(({ name }) => name === state.index) ?? indexes[0]));
    forgetFields(state.index);
    await Promise.all([showFields(fields, state), showDocuments(documents, state, true)]);
  }
}

export function unusable(info) {
  if (info?.status === "red") return h("p", { class: "notice" }, "This index cannot be read, or was not made yet. The log of the service says which; retrieval index FOLDER makes one.");
  return info?.points_count === 0 && h("p", { class: "notice" }, "This index is empty, so that nothing can be found. Fill it with: retrieval index FOLDER");
}

function about(info) {
  const waiting = info.points_count - info.indexed_vectors_count;
  return [h("dl", { class: "facts" }, [["Name", info.name], ["Passages", shortNumber(info.points_count)], ["Vectors", `${shortNumber(info.indexed_vectors_count)}, of ${info.vector_size} numbers each`]].map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])),
    unusable(info),
    waiting > 0 && h("p", { class: "notice" }, `${shortNumber(waiting)} passages have no vector yet: they are found by their words, and by meaning once indexing has ended.`)];
}

async function showFields(place, state) {
  let fields;
  try {
    fields = await fieldsOf(state.index);
  } catch (problem) {
    fill(place, problems(problem));
    return;
  }
  if (!fields.length) return;
  fill(place, h("h2", { style: { fontSize: "1rem", marginBlock: "24px 6px" } }, "Fields to filter by"), h("div", { class: "scroll" }, h("table", { class: "plain" }, h("thead", {}, h("tr", {}, ["field", "kind", "passages", "values"].map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, fields.map((field) => h("tr", {}, h("th", { scope: "row" }, field.name), h("td", {}, (field.types ?? []).join(", ")), h("td", { class: "number" }, shortNumber(field.count)), h("td", {}, h("bdi", {}, field.min !== undefined ? `${field.min} to ${field.max}` : (field.examples ?? []).slice(0, 5).join(", ")))))))));
}

async function showDocuments(place, state, writable) {
  const rows = h("tbody", {});
  const more = h("p", {});
  const count = h("span", { class: "soft number" });
  let total;
  const name = h("input", { type: "search", "aria-label": "Part of a document's name", placeholder: "part of a document's name", dir: "auto" });
  const find = (event) => {
    event.preventDefault();
    load("");
  };
  fill(place, h("h2", { style: { fontSize: "1rem", marginBlock: "24px 6px" } }, "Documents ", count), h("form", { class: "filter-row", role: "search", onsubmit: find }, name, h("button", {}, "Find")),
    h("div", { class: "scroll" }, h("table", { class: "plain" }, h("thead", {}, h("tr", {}, ["document", "passages", ""].map((title) => h("th", { scope: "col" }, title)))), rows)), more,
    h("p", { class: "small soft" }, "A file that is not here could not be read, or has been left out: retrieval index FOLDER says which, and why."));
  await load("");

  async function load(cursor) {
    const wanted = name.value.trim();
    let found;
    try {
      found = await get("/v1/documents", { index: state.index, limit: 100, cursor, name: wanted });
    } catch (problem) {
      fill(more, problems(problem), h("button", { onclick: () => load(cursor) }, "Try again"));
      return;
    }
    if (wanted !== name.value.trim()) return;  // another name was asked for meanwhile
    if (!cursor) fill(rows);
    rows.append(...found.documents.map((each) => row(each)));
    total = found.total;
    count.textContent = shortNumber(total);
    if (!rows.children.length) fill(more, h("span", { class: "quiet" }, wanted ? "No document has that in its name." : "There are no documents."));
    else fill(more, found.next_cursor && h("button", { onclick: () => load(found.next_cursor) }, "More"));
  }

  function row(each) {
    const line = h("tr", {}, h("td", {}, h("button", { class: "link", onclick: () => change({ doc: each.id, chunk: "", of: read().indexes ? state.index : "" }) }, h("bdi", {}, each.title || each.id)), each.title && each.title !== each.id && h("div", { class: "small soft" }, h("bdi", {}, each.id))),
      h("td", { class: "number" }, shortNumber(each.chunks)), h("td", {}, writable && h("button", { class: "link small", onclick: () => forget() }, "Remove")));
    return line;

    async function forget() {
      if (!confirm(`Remove ${each.id} from the index? Its file stays.`)) return;
      try {
        await remove("/v1/documents", { index: state.index, id: each.id });
        line.remove();
        if (total) count.textContent = shortNumber(total -= 1);
        say("Removed");
      } catch (problem) {
        line.lastChild.replaceChildren(...problems(problem));
      }
    }
  }
}

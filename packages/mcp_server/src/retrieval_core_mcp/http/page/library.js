import { get, post, remove } from "./api.js";
import { day, fill, h, say, shortNumber } from "./dom.js";
import { fieldsOf } from "./filters.js";
import { problems } from "./passages.js";
import { change } from "./state.js";

const TEXTS = [".md", ".markdown", ".txt", ".rst"];

// What the index holds: documents, fields, what is still to come, and with --allow-writes new files.
export async function library(main, state) {
  const facts = h("div", {});
  const adding = h("div", {});
  const fields = h("div", {});
  const documents = h("div", {});
  fill(main, h("h1", { style: { fontSize: "1.3rem" } }, "The index"), facts, adding, fields, documents);
  try {
    const { indexes, writable } = await get("/v1/indexes");
    const info = indexes.find(({ name }) => name === state.index) ?? indexes[0];
    fill(facts, about(info));
    if (writable) fill(adding, drop(info.name, () => library(main, state)));
    await Promise.all([showFields(fields, state), showDocuments(documents, state, writable)]);
  } catch (problem) {
    fill(facts, problems(problem));
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
    const line = h("tr", {}, h("td", {}, h("button", { class: "link", onclick: () => change({ doc: each.id, chunk: "" }) }, h("bdi", {}, each.title || each.id)), each.title && each.title !== each.id && h("div", { class: "small soft" }, h("bdi", {}, each.id))),
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

function drop(index, done) {
  const told = h("ul", { class: "small", role: "status", style: { listStyle: "none", padding: 0 } });
  const choose = h("input", { type: "file", multiple: true, accept: TEXTS.join(), class: "visually-hidden", id: "files", onchange: () => take(choose.files) });
  const area = h("div", { class: "drop" }, h("label", { htmlFor: "files" }, "Drop text files here, or "), h("button", { class: "link", onclick: () => choose.click() }, "choose them"), choose, told);
  area.addEventListener("dragover", (event) => {
    event.preventDefault();
    area.classList.add("is-over");
  });
  area.addEventListener("dragleave", () => area.classList.remove("is-over"));
  area.addEventListener("drop", (event) => {
    event.preventDefault();
    area.classList.remove("is-over");
    take(event.dataTransfer.files);
  });
  return area;

  async function take(files) {
    let failed = false;
    for (const file of files) {
      const line = h("li", {}, h("bdi", {}, file.name), ": indexing…");
      told.append(line);
      try {
        if (!TEXTS.some((ending) => file.name.toLowerCase().endsWith(ending))) throw new Error("only texts are taken here; put it into a folder, and run retrieval index FOLDER");
        await post("/v1/documents", { index, documents: [{ id: file.name, text: await file.text() }] });
        fill(line, h("bdi", {}, file.name), ": indexed");
      } catch (problem) {
        failed = true;
        fill(line, h("bdi", {}, file.name), `: ${problem.message}`);
      }
    }
    if (!failed) done();
  }
}

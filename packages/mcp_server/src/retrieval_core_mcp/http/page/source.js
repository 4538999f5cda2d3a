import { get, part, post } from "./api.js";
import { day, fill, h, offsets, say } from "./dom.js";
import { hasPictures, pageName, partOf, pdf } from "./parts.js";
import { pages, problems } from "./passages.js";
import { change, read, sourceIndex } from "./state.js";
import { whyNot } from "./why.js";

const AROUND = 12_000;
const panel = document.getElementById("source");
let shown = "";
let before = null;
let running = new AbortController();
let urls = [];

export function closeSource() {
  change({ chunk: "", doc: "", of: read().view === "index" ? read().of : "" });
  before?.focus();
  const back = document.querySelector(".hit.is-open button");
  if (!before?.isConnected) back?.focus();
}

// The document of a passage beside the results, with the passage marked; or a document from its beginning.
export async function showSource(state, again) {
  const key = state.chunk || state.doc ? JSON.stringify([sourceIndex(state), state.chunk, state.doc]) : "";
  for (const hit of document.querySelectorAll(".hit")) hit.classList.remove("is-open");
  document.querySelector(`[data-chunk="${CSS.escape(state.chunk)}"][data-index="${CSS.escape(state.of)}"]`)?.classList.add("is-open");
  document.body.classList.toggle("with-source", Boolean(key));
  panel.hidden = !key;
  if (key === shown && !(again && key)) return;
  running.abort();
  running = new AbortController();
  urls.forEach((url) => URL.revokeObjectURL(url));
  urls = [];
  if (!shown) before = document.activeElement;
  shown = key;
  if (!key) return;
  const { signal } = running;
  const close = h("button", { onclick: closeSource, "aria-label": "Close the source" }, "Close");
  const body = h("div", {}, h("p", { class: "quiet" }, "Reading…"));
  const title = h("h2", {}, "Source");
  fill(panel, h("header", {}, title, close), body);
  panel.scrollTop = 0;
  close.focus();
  try {
    const chunk = state.chunk ? await get(`/v1/chunks/${part(state.chunk)}`, { index: sourceIndex(state) }, signal) : null;
    const name = chunk?.fields.document_id ?? state.doc;
    fill(title, h("bdi", {}, chunk?.fields.title || name));
    await show(body, state, chunk, name, signal);
  } catch (problem) {
    if (problem.name === "AbortError") return;
    fill(body, problems(problem), problem.status === 404 && h("p", { class: "quiet" }, "It may have been removed, or have another name since its file was indexed again."));
  }
}

async function show(body, state, chunk, name, signal) {
  const facts = h("dl", { class: "facts" });
  const page = h("div", {});
  const text = h("div", {});
  const fields = chunk?.fields;
  const told = [["Document", h("bdi", {}, name)], ["Section", fields?.section_path?.join(" › ")], [pageName(fields?.source) === "slide" ? "Slide" : "Page", pages(fields?.page_span).replace(/^pages? /, "")], ["Indexed", day(fields?.timestamp)], ["Passage", fields && `${fields.id}`]];
  const own = Object.entries(fields?.metadata ?? {}).slice(0, 30).map(([label, value]) => [h("bdi", {}, label), h("bdi", {}, short(value))]);
  fill(facts, [...told, ...own].filter(([, value]) => value).map(([label, value]) => [h("dt", {}, label), h("dd", {}, value)]));
  fill(body, facts, chunk && check(chunk, state), page, text);
  await Promise.all([chunk && hasPictures(fields) && pdf(page, chunk, state, signal, urls), reading(text, state, chunk, name, signal)]);
  if (!signal.aborted) bringIntoView();
}

// Whether the passage still says what was read: asked when somebody wants to know, as files may be large.
function check(chunk, state) {
  const told = h("span", { role: "status" });
  const look = async () => {
    told.textContent = "Comparing…";
    try {
      const found = await post(`/v1/chunks/${part(chunk.fields.id)}/validate${sourceIndex(state) ? `?index=${part(sourceIndex(state))}` : ""}`, {});
      told.textContent = !found.validation_passed ? `Damaged: ${found.mismatch_details}` : found.file_changed ? "The file was changed since it was indexed: this is what it said then." : "Unchanged: it is what the document says.";
    } catch (problem) {
      told.textContent = problem.status === 404 ? "Gone: the index does not hold this passage any more." : problem.message;
    }
  };
  return h("p", { class: "actions small" }, h("button", { class: "link", onclick: look }, "Compare with the document"), told,
    h("button", { class: "link", onclick: (event) => copy(event.target, chunk.fields.citation) }, "Copy the citation"));
}

function short(value) {
  const text = typeof value === "string" ? value : JSON.stringify(value);
  return text.length > 300 ? `${text.slice(0, 300)}…` : text;
}

export async function copy(button, text) {
  try {
    await navigator.clipboard.writeText(text);
    say("Copied");
    button.textContent = "Copied";
  } catch {
    say("The browser does not let this page copy");
    button.textContent = "Not allowed to copy";
  }
}

// The text around the passage, in passages, each of which can be asked about.
async function reading(place, state, chunk, name, signal) {
  const from = chunk?.fields.span ? Math.max(0, spanOf(chunk)[0] - AROUND / 2) : 0;
  const document = await get(`/v1/documents/${part(name)}`, { index: sourceIndex(state), offset: from, limit: AROUND }, signal);
  fill(place, part_of(document, chunk, state), document.offset + length(document.text) < document.length && more(place, document, chunk, name, state, signal), earlier(document, name, chunk));
}

// Brings the passage into view: on the picture of its page where there is one, else in the text.
function bringIntoView() {
  const place = panel.querySelector(".pdf i") ?? panel.querySelector(".pdf") ?? panel.querySelector(".is-hit");
  if (place) panel.scrollTop += place.getBoundingClientRect().top - panel.getBoundingClientRect().top - panel.clientHeight / 5;
}

function earlier(document, name, chunk) {
  return document.offset > 0 && h("p", {}, h("button", { class: "link", onclick: () => change({ chunk: "", doc: name }) }, "The document from its beginning"));
}

function more(place, document, chunk, name, state, signal) {
  const button = h("button", { onclick: async () => {
    button.disabled = true;
    const next = await get(`/v1/documents/${part(name)}`, { index: sourceIndex(state), offset: document.offset + length(document.text), limit: AROUND }, signal);
    button.replaceWith(part_of(next, chunk, state), next.offset + length(next.text) < next.length ? more(place, next, chunk, name, state, signal) : "");
  } }, "Read on");
  return button;
}

function part_of(document, chunk, state) {
  const at = offsets(document.text);
  const pieces = [];
  let [done, before_it] = [0, ""];
  for (const each of document.chunks) {
    const [start, end] = [Math.max(0, each.start - document.offset), Math.max(0, each.end - document.offset)];
    const [from, to] = [at(start), at(end)];
    if (to <= done) continue;
    if (from > done) pieces.push(h("p", { class: "passage soft", dir: "auto" }, document.text.slice(done, from)));
    const begun = partOf(document, each);
    if (begun && begun !== before_it) pieces.push(h("h3", { class: "part", dir: "auto" }, begun));
    before_it = begun;
    pieces.push(piece(document.text.slice(Math.max(done, from), to), each, chunk, state));
    done = to;
  }
  if (done < document.text.length) pieces.push(h("p", { class: "passage", dir: "auto" }, document.text.slice(done)));
  return h("div", {}, pieces);
}

function piece(text, each, chunk, state) {
  const isHit = each.id === chunk?.fields.id;
  const told = h("div", {});
  const button = read().q && !isHit && h("button", { class: "link small", "aria-label": `Why not passage ${each.id}?`, onclick: () => {
    button.remove();
    fill(told, whyNot(state, running.signal, each.id));
  } }, "Why not this one?");
  return h("div", {}, h("p", { class: `passage${isHit ? " is-hit" : ""}`, dir: "auto", "aria-current": isHit ? "true" : undefined }, text.replace(/^\s+|\s+$/g, "")), button, told);
}

function spanOf(chunk) {
  const { span } = chunk.fields;
  return Array.isArray(span) ? span : [span.start, span.end];
}

function length(text) {
  return [...text].length;
}

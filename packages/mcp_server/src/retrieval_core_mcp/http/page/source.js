// The source beside the results: a chunk in its document with the words of the query and the cited words marked.

import { hideTip } from "./answer.js";
import { address, part, post } from "./api.js";
import { bdi, copyButton, draw, facts, fill, h, link, regions } from "./dom.js";
import { fenceAfter, formOf } from "./markdown.js";
import { partOf, pictures } from "./parts.js";
import { quoteOf, rowsOf, sourceIndex } from "./query.js";
import { reading } from "./reading.js";
import { nameOf, openChunk, problems, searched } from "./results.js";
import { change, changed, fetched, read, revisionOf } from "./store.js";
import { offsets, shorten } from "./text.js";
import { TEXT, citationOf, day, lineRange, pageRange, rowRange } from "./words.js";

const AROUND = 12_000;
const MOST_FIELDS = 30;
const LONGEST_FIELD = 300;
const panel = document.getElementById("source");
let shown = "";
let before = null;
let parts = [];
let isInView = false;
let isText = false; // instead of the pictures of a PDF

export function closeSource() {
  const { view, of, chunk } = read();
  change({ chunk: "", doc: "", at: "", of: view === "index" ? of : "" });
  const back = before?.isConnected ? before : document.querySelector(`.hit[data-chunk="${CSS.escape(chunk)}"] button`);
  back?.focus();
  hideTip(); // of the number that the source was opened from
}

export function showSource(state) {
  const key = state.chunk || state.doc ? JSON.stringify([sourceIndex(state), state.chunk, state.doc, state.at]) : "";
  const isNew = key !== shown;
  const wasClosed = !shown;
  panel.hidden = !key;
  shown = key;
  if (!key) return;
  if (!panel.firstElementChild) fill(panel, h("header"), h("div"));
  const [head, body] = panel.children;
  if (isNew) {
    if (wasClosed) before = document.activeElement;
    [parts, isInView, isText] = [[], false, false];
    fill(body);
    panel.scrollTop = 0;
  }
  const { title, content, chunk, note } = contentOf(state);
  const hits = foundBy(state);
  const known = [key, title, hits.map(({ id, index }) => [id, index]), Boolean(chunk), note];
  draw(head, known, () => header(state, title, hits, chunk, note));
  regions(body, content);
  if (wasClosed) document.getElementById("close")?.focus();
  if (!isInView && !body.querySelector(".loading")) bringIntoView();
}

function header(state, title, hits, chunk, note) {
  const at = hits.findIndex(({ id, index = "" }) => id === state.chunk && index === state.of);
  const step = (hit, id, sign) => {
    const onclick = () => openChunk(state, hit.id, hit.index);
    return h("button", { id, "aria-label": TEXT[id], disabled: !hit, onclick }, sign);
  };
  const isLocal = /^(localhost|127\.|\[::1\])/.test(location.hostname);
  return [
    h("h2", bdi(title)),
    h(
      "div.actions",
      at >= 0 && hits.length > 1 && [step(hits[at - 1], "previousResult", "↑"), step(hits[at + 1], "nextResult", "↓")],
      h("button", { id: "close", onclick: closeSource, "aria-label": TEXT.closeSource }, TEXT.close),
    ),
    chunk &&
      h(
        "div.actions.small",
        copyButton(TEXT.copyCitation, () => citationOf({ ...chunk.fields, index: state.of })),
        copyButton(TEXT.copyLink, () => location.href, isLocal ? TEXT.localLink : TEXT.copied),
        h("details.menu", h("summary", TEXT.details), h("div", about(chunk.fields), actions(state, chunk))),
      ),
    note && h("p.notice.small", note),
  ];
}

// A broken filter finds nothing, which the form says.
function foundBy(state) {
  return (state.q && rowsOf(state.filters) && searched(state).value?.results) || [];
}

const WAITING = ["waiting", [], () => h("p.quiet.loading", TEXT.loading)];

function failed(title, problem) {
  const told = () => [problems(problem), problem.kind === "missing" && h("p.quiet", TEXT.gone)];
  return { title, content: [["failed", [problem.messages], told]] };
}

function contentOf(state) {
  const index = sourceIndex(state);
  const record = state.chunk && fetched("chunk", `/v1/chunks/${part(state.chunk)}`, { index });
  if (record.problem) return failed(TEXT.sourceTitle, record.problem);
  const chunk = record.value;
  if (record && !chunk) return { title: TEXT.sourceTitle, content: [WAITING] };
  const fields = chunk?.fields;
  const name = fields?.document_id ?? state.doc;
  const title = fields ? nameOf(fields) : name;
  const { all, isOver, note } = pictures(state, fields);
  if (!isOver || (all.length && !isText)) {
    const asText = () => {
      [isText, isInView] = [true, false];
      changed();
    };
    const last = isOver ? ["as-text", [], () => link(TEXT.showText, asText)] : WAITING;
    return { title, chunk, note, content: [...all, last] };
  }
  if (!parts.length) parts = [Math.max(0, (fields?.span?.[0] ?? 0) - AROUND / 2)];
  const records = parts.map((offset) =>
    fetched("document", `/v1/documents/${part(name)}`, { index, offset, limit: AROUND }),
  );
  const problem = records.find((each) => each.problem)?.problem;
  if (problem) return failed(title, problem);
  const texts = records
    .filter(({ value }) => value)
    .map(({ value, revision }) => [
      `text-${value.offset}`,
      [state.q, revision, revisionOf("search")],
      () => passages(state, value, fields),
    ]);
  const total = records.at(-1).value?.length;
  const last = total == null ? WAITING : ["around", parts, () => around(name, total)];
  return { title, chunk, note, content: [...all, ...texts, last] };
}

function about(fields) {
  const { source, page_span: pages } = fields;
  const textOf = (value) => (typeof value === "string" ? value : JSON.stringify(value));
  const own = Object.entries(fields.metadata ?? {}).slice(0, MOST_FIELDS);
  return facts([
    [TEXT.document, bdi(fields.document_id)],
    [TEXT.section, fields.section_path.join(" › ")],
    [TEXT.place, pageRange(pages, source) || rowRange(fields) || lineRange(fields.lines)],
    [TEXT.indexedAt, day(fields.timestamp)],
    ...own.map(([label, value]) => [bdi(label), bdi(shorten(textOf(value), LONGEST_FIELD))]),
  ]);
}

function actions(state, { text, metadata, fields }) {
  const told = h("span", { role: "status" });
  const compare = async () => {
    told.textContent = TEXT.comparing;
    told.textContent = await compared(fields.id, sourceIndex(state));
  };
  const url = metadata?.url;
  return h(
    "p.actions.small",
    /^https?:\/\//i.test(url) && h("a", { href: url, target: "_blank", rel: "noreferrer noopener" }, TEXT.openOriginal),
    copyButton(TEXT.copyQuote, () => text.trim()),
    link(TEXT.compareSource, compare),
    told,
  );
}

async function compared(id, index) {
  try {
    const found = await post(address(`/v1/chunks/${part(id)}/validate`, { index }), {});
    if (!found.validation_passed) return TEXT.damaged(found.mismatch_details);
    return found.file_changed ? TEXT.fileChanged : TEXT.unchanged;
  } catch ({ kind, message }) {
    return kind === "missing" ? TEXT.chunkGone : message;
  }
}

function around(name, total) {
  const end = parts.at(-1) + AROUND;
  const more = () => {
    parts = [...parts, end];
    changed();
  };
  const start = link(TEXT.fromStart, () => change({ chunk: "", at: "", doc: name }));
  return [end < total && h("button", { id: "read-on", onclick: more }, TEXT.readOn), parts[0] > 0 && h("p", start)];
}

function passages(state, document, fields) {
  const at = offsets(document.text);
  const unit = (point) => at(Math.max(0, point - document.offset));
  const form = formOf(document.source ?? document.id);
  const hits = foundBy(state);
  const pieces = [];
  let [done, last, fence] = [0, "", ""];
  const add = (from, to, marks, isHit) => {
    const text = document.text.slice(from, to);
    if (!marks && !text.trim()) return;
    const inner = reading(text, { form, fence, marks, draw: DRAW });
    if (form === "markdown") fence = fenceAfter(text, fence);
    const kind = isHit ? "div.passage.is-hit" : "div.passage";
    pieces.push(h(kind, { dir: "auto", "aria-current": isHit && "true" }, inner));
  };
  for (const each of document.chunks) {
    const [start, end] = [unit(each.start), unit(each.end)];
    if (end <= done) continue;
    add(done, start);
    const begun = partOf(document, each);
    if (begun && begun !== last) pieces.push(h("h3.part.small.soft", { dir: "auto" }, begun));
    last = begun;
    const from = Math.max(done, start);
    const marks = marksIn(state, each, hits, (point) => unit(point) - from);
    add(from, end, marks, each.id === fields?.id);
    done = end;
  }
  add(done, document.text.length);
  return h("div", pieces);
}

const DRAW = { quote: (_mark, inner) => h("mark.is-quote", inner) };

// The cited words in a chunk, and outside of them the words of the query, in units from where it is drawn.
function marksIn(state, { id, start: first }, hits, place) {
  const quote = quoteOf(state) ?? [0, 0];
  const words = (hits.find((hit) => hit.id === id)?.highlights ?? [])
    .map((span) => span.map((point) => first + point))
    .filter(([start, end]) => end <= quote[0] || start >= quote[1]);
  return [...words, quote]
    .map((span) => ({ kind: span === quote ? "quote" : "hit", start: place(span[0]), end: place(span[1]) }))
    .filter(({ start, end }) => end > Math.max(0, start));
}

function bringIntoView() {
  const wanted = [...(isText ? [] : [".pdf i", ".pdf"]), ".is-quote", ".is-hit"];
  const place = wanted.map((each) => panel.querySelector(each)).find(Boolean);
  isInView = Boolean(place);
  if (!place) return;
  panel.scrollTop += place.getBoundingClientRect().top - panel.getBoundingClientRect().top - panel.clientHeight / 5;
}

// The source beside the results: a chunk in its document with the words of the query and the cited words marked.

import { Problem, address, get, part, post } from "./api.js";
import { bdi, copyButton, draw, facts, fill, h, link, regions } from "./dom.js";
import { fenceAfter, formOf } from "./markdown.js";
import { hasPictures, partOf, pictures } from "./parts.js";
import { quoteOf, sourceIndex } from "./query.js";
import { reading } from "./reading.js";
import { nameOf, openChunk, problems, searched } from "./results.js";
import { change, changed, once, read, revisionOf } from "./store.js";
import { countPoints, offsets } from "./text.js";
import { TEXT, citationOf, day, lineRange, pageRange, rowRange } from "./words.js";

const AROUND = 12_000;
const MOST_FIELDS = 30;
const panel = document.getElementById("source");
let shown = "";
let before = null;
let parts = [];
let isInView = false;
let isText = false; // instead of the pictures of a PDF

export function closeSource() {
  const { view, of } = read();
  const { chunk } = read();
  change({ chunk: "", doc: "", at: "", of: view === "index" ? of : "" });
  const back = before?.isConnected ? before : document.querySelector(`.hit[data-chunk="${CSS.escape(chunk)}"] button`);
  back?.focus();
}

export function showSource(state) {
  const key = state.chunk || state.doc ? JSON.stringify([sourceIndex(state), state.chunk, state.doc, state.at]) : "";
  document.body.classList.toggle("with-source", Boolean(key));
  panel.hidden = !key;
  const isNew = key !== shown;
  const wasClosed = !shown;
  if (isNew && key) {
    if (!shown) before = document.activeElement;
    [parts, isInView, isText] = [[], false, false];
  }
  shown = key;
  if (!key) return;
  if (!panel.firstElementChild) fill(panel, h("header", {}), h("div", {}));
  const [head, body] = panel.children;
  const { title, chunk, content, isComplete } = contentOf(state);
  const hits = foundBy(state).map(({ id, index }) => [id, index]);
  draw(head, JSON.stringify([key, title, hits, Boolean(chunk)]), () => header(state, title, chunk));
  regions(
    body,
    content.filter(Boolean).map(([name, known, render]) => [name, [key, known], render]),
  );
  if (isNew) {
    panel.scrollTop = 0;
    if (wasClosed) document.getElementById("close")?.focus();
  }
  if (isComplete && !isInView) {
    isInView = true;
    bringIntoView();
  }
}

function header(state, title, chunk) {
  const close = h("button", { id: "close", onclick: closeSource, "aria-label": TEXT.closeSource }, TEXT.close);
  const isLocal = /^(localhost|127\.|\[::1\])/.test(location.hostname);
  const copies = chunk && [
    copyButton(TEXT.copyCitation, () => citationOf({ ...chunk.fields, index: state.of })),
    copyButton(TEXT.copyLink, () => location.href, isLocal ? TEXT.localLink : TEXT.copied),
    h("details", { class: "menu" }, h("summary", {}, TEXT.details), h("div", {}, about(chunk), actions(state, chunk))),
  ];
  return [
    h("h2", {}, bdi(title)),
    h("div", { class: "actions" }, steps(state), close),
    copies && h("div", { class: "actions small" }, copies),
  ];
}

function steps(state) {
  const hits = foundBy(state);
  const at = hits.findIndex(({ id, index }) => id === state.chunk && (index ?? "") === state.of);
  if (at === -1 || hits.length < 2) return null;
  const step = (by, name, sign) => {
    const hit = hits[at + by];
    const open = () => openChunk(state, hit.id, hit.index);
    return h("button", { id: name, "aria-label": TEXT[name], disabled: !hit, onclick: open }, sign);
  };
  return [step(-1, "previousResult", "↑"), step(1, "nextResult", "↓")];
}

function foundBy(state) {
  if (!state.q) return [];
  try {
    return searched(state).value?.results ?? [];
  } catch {
    return []; // the filter is broken, which the form says
  }
}

function contentOf(state) {
  const index = sourceIndex(state);
  const waiting = () => h("p", { class: "quiet" }, TEXT.loading);
  const failed = ({ problem }, title = TEXT.sourceTitle) => ({
    title,
    content: [
      [
        "failed",
        [problem.messages],
        () => [problems(problem), problem.kind === "missing" && h("p", { class: "quiet" }, TEXT.gone)],
      ],
    ],
  });
  const chunk = state.chunk
    ? once("chunk", [index, state.chunk], (signal) => get(`/v1/chunks/${part(state.chunk)}`, { index }, signal))
    : null;
  if (chunk?.problem) return failed(chunk);
  if (chunk && !chunk.value) return { title: TEXT.sourceTitle, content: [["waiting", [], waiting]] };
  const fields = chunk?.value.fields;
  const name = fields?.document_id ?? state.doc;
  const title = fields ? nameOf(fields) : name;
  const drawn = fields && hasPictures(fields) ? pictures(state, fields) : { all: [], isOver: true };
  const known = { title, chunk: chunk?.value };
  if (!drawn.isOver || (drawn.hasPages && !isText)) {
    const asText = () => {
      [isText, isInView] = [true, false];
      changed();
    };
    const last = drawn.isOver ? ["as-text", [], () => link(TEXT.showText, asText)] : ["waiting", [], waiting];
    return { ...known, content: [...drawn.all, last], isComplete: drawn.isOver };
  }
  if (!parts.length) parts = [fields?.span ? Math.max(0, startOf(fields) - AROUND / 2) : 0];
  const records = parts.map((offset) =>
    once("document", [index, name, offset], (signal) =>
      get(`/v1/documents/${part(name)}`, { index, offset, limit: AROUND }, signal),
    ),
  );
  const broken = records.find(({ problem }) => problem);
  if (broken) return failed(broken, title);
  const isComplete = records.every(({ value }) => value);
  const text = ({ value }) => (value ? piecesOf(state, value, fields) : waiting());
  const content = [
    ...drawn.all,
    ...records.map((record, place) => [
      `text-${place}`,
      [state.q, record.revision, revisionOf("search")],
      () => text(record),
    ]),
    ["around", [parts, records.map(({ revision }) => revision)], () => around(name, records)],
  ];
  return { ...known, content, isComplete };
}

const startOf = ({ span }) => (Array.isArray(span) ? span[0] : span.start);

function about({ fields }) {
  const { source, page_span: pages, lines } = fields;
  const told = [
    [TEXT.document, bdi(fields.document_id)],
    [TEXT.section, fields.section_path?.join(" › ")],
    [TEXT.place, pageRange(pages, source) || rowRange(fields) || lineRange(lines)],
    [TEXT.indexedAt, day(fields.timestamp)],
  ];
  const short = (value) => {
    const text = typeof value === "string" ? value : JSON.stringify(value);
    return text.length > 300 ? `${text.slice(0, 300)}…` : text;
  };
  const own = Object.entries(fields.metadata ?? {})
    .slice(0, MOST_FIELDS)
    .map(([label, value]) => [bdi(label), bdi(short(value))]);
  return facts([...told, ...own]);
}

function actions(state, { text, metadata, fields }) {
  const told = h("span", { role: "status" });
  const compare = async () => {
    told.textContent = TEXT.comparing;
    const path = address(`/v1/chunks/${part(fields.id)}/validate`, { index: sourceIndex(state) });
    try {
      const { validation_passed: isSound, mismatch_details: details, file_changed: isChanged } = await post(path, {});
      told.textContent = isSound ? (isChanged ? TEXT.fileChanged : TEXT.unchanged) : TEXT.damaged(details);
    } catch (error) {
      const problem = Problem.of(error);
      told.textContent = problem.kind === "missing" ? TEXT.chunkGone : problem.message;
    }
  };
  const isWeb = /^https?:\/\//i.test(metadata?.url ?? "");
  return h(
    "p",
    { class: "actions small" },
    isWeb && h("a", { href: metadata.url, target: "_blank", rel: "noreferrer noopener" }, TEXT.openOriginal),
    copyButton(TEXT.copyQuote, () => text.trim()),
    link(TEXT.compareSource, compare),
    told,
  );
}

function around(name, records) {
  const last = records.at(-1).value;
  if (!last) return null;
  const end = last.offset + countPoints(last.text);
  const more = () => {
    parts = [...parts, end];
    changed();
  };
  return [
    end < last.length && h("button", { id: "read-on", onclick: more }, TEXT.readOn),
    records[0].value?.offset > 0 &&
      h(
        "p",
        {},
        link(TEXT.fromStart, () => change({ chunk: "", at: "", doc: name })),
      ),
  ];
}

function piecesOf(state, document, fields) {
  const at = offsets(document.text);
  const form = formOf(document.source ?? document.id);
  const hits = new Map(foundBy(state).map((hit) => [hit.id, hit]));
  const quote = quoteOf(state);
  const pieces = [];
  let [done, last, fence] = [0, "", ""];
  const text = (from, to, isHit, marks = []) => {
    const read = document.text.slice(from, to);
    const shown = reading(read, { form, fence, marks, draw: DRAW });
    if (form === "markdown") fence = fenceAfter(read, fence);
    return h(
      "div",
      { class: `passage${isHit ? " is-hit" : ""}`, dir: "auto", "aria-current": isHit ? "true" : undefined },
      shown,
    );
  };
  for (const each of document.chunks) {
    const [start, end] = [each.start, each.end].map((point) => at(Math.max(0, point - document.offset)));
    if (end <= done) continue;
    if (document.text.slice(done, start).trim()) pieces.push(text(done, start));
    const begun = partOf(document, each);
    if (begun && begun !== last) pieces.push(h("h3", { class: "part", dir: "auto" }, begun));
    last = begun;
    const from = Math.max(done, start);
    const marks = marksIn(document, each, from, hits.get(each.id), quote);
    pieces.push(text(from, end, each.id === fields?.id, marks));
    done = end;
  }
  if (document.text.slice(done).trim()) pieces.push(text(done, document.text.length));
  return h("div", {}, pieces);
}

const DRAW = { quote: (_mark, inner) => h("mark", { class: "is-quote" }, inner) };

// The cited words in a chunk, and outside of them the words of the query, in units from where it is drawn.
function marksIn(document, each, from, hit, quote) {
  const words = (hit?.highlights ?? []).map(([start, end]) => ["hit", each.start + start, each.start + end]);
  const spans = quote
    ? [...words.filter(([, start, end]) => end <= quote[0] || start >= quote[1]), ["quote", ...quote]]
    : words;
  const at = offsets(document.text);
  const place = (point) => at(Math.max(0, point - document.offset)) - from;
  const marks = spans.map(([kind, start, end]) => ({ kind, start: place(start), end: place(end) }));
  return marks.filter(({ start, end }) => end > Math.max(0, start));
}

// Bring the cited words into view, or the chunk: on the picture of its page, or in the text.
function bringIntoView() {
  const wanted = [...(isText ? [] : [".pdf i", ".pdf"]), ".is-quote", ".is-hit"];
  const place = wanted.map((each) => panel.querySelector(each)).find(Boolean);
  if (!place) return;
  panel.scrollTop += place.getBoundingClientRect().top - panel.getBoundingClientRect().top - panel.clientHeight / 5;
}

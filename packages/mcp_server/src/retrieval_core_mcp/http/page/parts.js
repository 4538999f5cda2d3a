// The parts of documents: pages of a PDF as pictures with the chunk outlined, and the names of slides and chapters.

import { get, part, picture } from "./api.js";
import { h, link } from "./dom.js";
import { sourceIndex } from "./query.js";
import { changed, once } from "./store.js";
import { TEXT, pageName } from "./words.js";

const AT_FIRST = 4;
const WIDEST = 2000;
const shownAll = new Set();

// Whether there may be pictures of the pages of a chunk.
export function hasPictures({ source, page_span: span }) {
  return Boolean(span) && /\.pdf$/i.test(source ?? "");
}

// The part of a document that a chunk begins: a slide, a page, or a chapter of a book; the empty text for none.
export function partOf(document, chunk) {
  const { source, last_page: last } = document;
  if (/\.epub$/i.test(source ?? "")) return chunk.section_path[0] ? TEXT.chapter(chunk.section_path[0]) : "";
  const [from, to] = chunk.page_span ?? [];
  if (from === undefined) return "";
  return TEXT.partOf(pageName(source), from, to ?? from, pageName(source) === "slide" ? last : null);
}

// The pages of a PDF that a chunk runs over, one after the other, each as a region that stays while others arrive.
export function pictures(state, { id, page_span: [first, last = first] }) {
  const isWhole = shownAll.has(id);
  const all = [];
  for (let number = first; number <= last; number += 1) {
    if (number === first + AT_FIRST && !isWhole) {
      const more = () => {
        shownAll.add(id);
        changed();
      };
      all.push(["pages", [], () => h("p", {}, link(TEXT.morePages(last - number + 1), more))]);
      break;
    }
    const { value, problem } = pageRecord(state, id, number);
    if (value) all.push([`page-${number}`, [value.picture], () => page(value)]);
    else if (problem && hasReason(problem)) {
      all.push([`page-${number}`, [problem.message], () => h("p", { class: "small soft" }, problem.message)]);
    }
    if (!value) break;
  }
  return all;
}

// A missing page has a reason for people only if its file was changed or removed.
function hasReason({ kind, message }) {
  return kind !== "missing" || /changed|gone|removed/.test(message);
}

function pageRecord(state, id, number) {
  const index = sourceIndex(state);
  return once("page", [index, id, number], async (signal) => {
    const path = `/v1/chunks/${part(id)}`;
    const found = await get(`${path}/page`, { index, page: number }, signal);
    const width = Math.min(WIDEST, Math.round(900 * devicePixelRatio));
    return { ...found, picture: await picture(`${path}/page.png`, { index, page: number, width }, signal) };
  });
}

function page({ page: number, pages, width, height, boxes, picture: address }) {
  const percent = (value, whole) => `${(value / whole) * 100}%`;
  const box = ([left, top, right, bottom]) =>
    h("i", {
      style: {
        left: percent(left, width),
        top: percent(top, height),
        width: percent(right - left, width),
        height: percent(bottom - top, height),
      },
    });
  const name = TEXT.pageOf(number, pages);
  return h(
    "div",
    { "data-page": number },
    h(
      "figure",
      { class: "pdf", style: { marginInline: 0 } },
      h("img", { src: address, alt: name, width, height }),
      boxes.map(box),
    ),
    h("p", { class: "small soft" }, name, !boxes.length && TEXT.notOnPage),
  );
}

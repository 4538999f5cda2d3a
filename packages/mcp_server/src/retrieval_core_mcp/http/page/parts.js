// The parts of documents: pages of a PDF as pictures with what is cited outlined, and names of slides and chapters.

import { get, part, picture } from "./api.js";
import { h, link } from "./dom.js";
import { quoteOf, sourceIndex } from "./query.js";
import { changed, once } from "./store.js";
import { TEXT, isPdf, pageName } from "./words.js";

const AT_FIRST = 4;
const WIDEST = 2000;
const shownAll = new Set();

export const hasPictures = (fields) => Boolean(fields.page_span) && isPdf(fields);

// The part of a document that a chunk begins: a slide, a page, or a chapter of a book; the empty text for none.
export function partOf(document, chunk) {
  const { source, last_page: last } = document;
  if (/\.epub$/i.test(source ?? "")) return chunk.section_path[0] ? TEXT.chapter(chunk.section_path[0]) : "";
  const [from, to] = chunk.page_span ?? [];
  if (from === undefined) return "";
  return TEXT.partOf(pageName(source), from, to ?? from, pageName(source) === "slide" ? last : null);
}

// The pages of a PDF that a chunk runs over, each as a region that stays while others arrive. `isOver` says that no
// more are to come, `hasPages` that there is at least one.
export function pictures(state, { id, page_span: [first, last = first] }) {
  const end = shownAll.has(id) ? last : Math.min(last, first + AT_FIRST - 1);
  const all = [];
  let [isOver, hasPages] = [true, false];
  for (let number = first; number <= end && isOver; number += 1) {
    const [place, drawn] = pageRecords(state, id, number);
    const problem = place.problem ?? drawn.problem;
    isOver = Boolean(problem) || (place.isOver && drawn.isOver);
    if (!isOver) break;
    if (!problem) {
      hasPages = true;
      all.push([`page-${number}`, [drawn.value.picture, state.at], () => page(place.value, drawn.value, state.at)]);
    } else if (hasReason(problem)) {
      all.push([`page-${number}`, [problem.message], () => h("p", { class: "small soft" }, problem.message)]);
    }
    if (problem) break;
  }
  const more = () => {
    shownAll.add(id);
    changed();
  };
  if (hasPages && end < last) all.push(["pages", [], () => h("p", {}, link(TEXT.morePages(last - end), more))]);
  return { all, isOver, hasPages };
}

// A missing page has a reason for people only if its file was changed or removed.
function hasReason({ kind, message }) {
  return kind !== "missing" || /changed|gone|removed/.test(message);
}

function pageRecords(state, id, number) {
  const index = sourceIndex(state);
  const [start, end] = quoteOf(state) ?? [];
  const path = `/v1/chunks/${part(id)}`;
  const place = { index, page: number, start, end };
  const shape = { index, page: number, width: Math.min(WIDEST, Math.round(900 * devicePixelRatio)) };
  return [
    once("page", [id, place], (signal) => get(`${path}/page`, place, signal)),
    once("picture", [id, shape], async (signal) => ({ picture: await picture(`${path}/page.png`, shape, signal) })),
  ];
}

function page({ page: number, pages, width, height, boxes }, { picture: address }, at) {
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
    h("p", { class: "small soft" }, name, !boxes.length && !at && TEXT.notOnPage),
  );
}

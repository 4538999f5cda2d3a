// The parts of documents: pages of a PDF as pictures with what is cited outlined, and names of slides and chapters.

import { part, picture } from "./api.js";
import { h, link } from "./dom.js";
import { quoteOf, sourceIndex } from "./query.js";
import { changed, fetched, once } from "./store.js";
import { TEXT, isPdf, pageName } from "./words.js";

const AT_FIRST = 4;
const WIDEST = 2000;
const shownAll = new Set();

// The part of a document that a chunk begins: a slide, a page, or a chapter of a book; the empty text for none.
export function partOf({ source, last_page: last }, { section_path: [chapter], page_span: span }) {
  if (/\.epub$/i.test(source ?? "")) return chapter ? TEXT.chapter(chapter) : "";
  if (!span) return "";
  const [from, to = from] = span;
  const name = pageName(source);
  return TEXT.partOf(name, from, to, name === "slide" && last);
}

// The pages of a PDF that a chunk runs over, each as a region that stays while others arrive. `isOver` says that no
// more are to come, `note` why there are none.
export function pictures(state, fields) {
  const all = [];
  if (!fields?.page_span || !isPdf(fields)) return { all, isOver: true };
  const { id } = fields;
  const [first, last = first] = fields.page_span;
  const until = shownAll.has(id) ? last : Math.min(last, first + AT_FIRST - 1);
  const index = sourceIndex(state);
  const [start, end] = quoteOf(state) ?? [];
  const path = `/v1/chunks/${part(id)}`;
  const width = Math.min(WIDEST, Math.round(900 * devicePixelRatio));
  for (let page = first; page <= until; page += 1) {
    const asked = { index, page, start, end };
    const shape = { index, page, width };
    const place = fetched("page", `${path}/page`, asked);
    const drawn = once("picture", [id, shape], async (signal) => ({
      picture: await picture(`${path}/page.png`, shape, signal),
    }));
    const problem = place.problem ?? drawn.problem;
    if (problem) {
      // A missing page has a reason for people only if its file was changed or removed.
      const isTold = problem.kind !== "missing" || /changed|gone|removed/.test(problem.message);
      return { all, isOver: true, note: isTold && problem.message };
    }
    if (!place.isOver || !drawn.isOver) return { all, isOver: false };
    const src = drawn.value.picture;
    all.push([`page-${page}`, [src], () => pictured(place.value, src, state.at)]);
  }
  const more = () => {
    shownAll.add(id);
    changed();
  };
  if (until < last) all.push(["pages", [], () => h("p", link(TEXT.morePages(last - until), more))]);
  return { all, isOver: true };
}

function pictured({ page, pages, width, height, boxes }, src, at) {
  const box = ([left, top, right, bottom]) => {
    const sides = [top / height, 1 - right / width, 1 - bottom / height, left / width];
    return h("i", { style: { inset: sides.map((each) => `${each * 100}%`).join(" ") } });
  };
  const alt = TEXT.pageOf(page, pages);
  return h(
    "div",
    { "data-page": page },
    h("figure.pdf", h("img", { src, alt, width, height }), boxes.map(box)),
    h("p.small.soft", alt, !boxes.length && !at && TEXT.notOnPage),
  );
}

import { get, part, picture } from "./api.js";
import { fill, h } from "./dom.js";
import { sourceIndex } from "./state.js";

const AT_FIRST = 4;

// What the pages of a document are called, by the kind of its file.
export function pageName(source) {
  return /\.pptx$/i.test(source ?? "") ? "slide" : "page";
}

// Whether there may be pictures of the pages of a passage.
export function hasPictures({ source, page_span: span }) {
  return Boolean(span) && /\.pdf$/i.test(source ?? "");
}

export function spanOfPages(span) {
  if (!span) return [];
  const [first, last] = Array.isArray(span) ? span : [span.first ?? span.start, span.last ?? span.end];
  return [first, last ?? first];
}

// The part of a document that a passage begins: a slide, a page, or a chapter of a book; the empty text for none.
export function partOf(document, passage) {
  if (/\.epub$/i.test(document.source ?? "")) return passage.section_path[0] ? `Chapter: ${passage.section_path[0]}` : "";
  const [first, last] = spanOfPages(passage.page_span);
  if (first === undefined) return "";
  const name = pageName(document.source);
  const of = document.last_page && name === "slide" ? ` of ${document.last_page}` : "";
  return `${name[0].toUpperCase()}${name.slice(1)}${first === last ? ` ${first}` : `s ${first} to ${last}`}${of}`;
}

// The pages of a PDF that a passage runs over, each as a picture with the passage outlined.
export async function pdf(place, chunk, state, signal, urls) {
  const [first, last] = spanOfPages(chunk.fields.page_span);
  const path = `/v1/chunks/${part(chunk.fields.id)}`;
  const rest = h("p", {});
  for (let number = first; number <= last; number += 1) {
    if (number === first + AT_FIRST) {
      place.append(rest);
      if (!(await asked(rest, last - number + 1, signal))) return;
      rest.remove();
    }
    let found;
    try {
      found = await get(`${path}/page`, { index: sourceIndex(state), page: number }, signal);
    } catch (problem) {
      if (problem.name === "AbortError") throw problem;
      if (problem.status !== 404 || problem.message.includes("changed") || problem.message.includes("gone")) place.append(h("p", { class: "small soft" }, problem.message));
      return;
    }
    const url = await picture(`${path}/page.png`, { index: sourceIndex(state), page: number, width: Math.min(2000, Math.round(900 * devicePixelRatio)) }, signal);
    urls.push(url);
    place.append(shown(found, url));
  }
}

function asked(rest, left, signal) {
  return new Promise((resolve) => {
    fill(rest, h("button", { onclick: () => resolve(true) }, `Show ${left} more page${left === 1 ? "" : "s"} of the passage`));
    signal.addEventListener("abort", () => resolve(false));
  });
}

function shown(found, url) {
  const percent = (value, whole) => `${(value / whole) * 100}%`;
  const box = ([left, top, right, bottom]) => h("i", { style: { left: percent(left, found.width), top: percent(top, found.height), width: percent(right - left, found.width), height: percent(bottom - top, found.height) } });
  return h("div", { "data-page": found.page }, h("figure", { class: "pdf", style: { marginInline: 0 } }, h("img", { src: url, alt: `Page ${found.page} of ${found.pages}`, width: found.width, height: found.height }), found.boxes.map(box)),
    h("p", { class: "small soft" }, `Page ${found.page} of ${found.pages}${found.boxes.length ? "" : "; the words of the passage were not found on it"}`));
}

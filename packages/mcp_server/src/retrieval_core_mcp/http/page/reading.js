// Texts as they are read: Markdown and marks as elements. Each letter is a cut of the text that the service sent.

import { copyButton, h } from "./dom.js";
import { parse } from "./markdown.js";
import { cut } from "./text.js";
import { TEXT } from "./words.js";

const ELEMENTS = { __proto__: null, strong: "strong", em: "em", strike: "del", code: "code" };

// Return the elements of a text. `marks` have units `start` and `end` and a `kind`; `draw[kind](mark, inner, place)`
// wraps each piece of a mark, with `place.isFirst` and `place.isLast`. Headings begin at `level`; bare texts have
// none, and nothing to press.
export function reading(
  text,
  { form = "markdown", fence = "", marks = [], draw = {}, level = 3, isBare = false } = {},
) {
  const blocks = parse(text, form, fence);
  const pieces = piecesOf(blocks, marks);
  const [first, last] = [new Map(), new Map()];
  for (const list of pieces.values()) {
    for (const piece of list) {
      for (const mark of piece.on) {
        if (!first.has(mark)) first.set(mark, piece);
        last.set(mark, piece);
      }
    }
  }
  const wrap = (mark, inner, piece) => {
    const place = { isFirst: first.get(mark) === piece, isLast: last.get(mark) === piece };
    return draw[mark.kind] ? draw[mark.kind](mark, inner, place) : h("mark", {}, inner);
  };
  const show = (runs) =>
    (pieces.get(runs) ?? []).map((piece) => onePiece(text, isBare ? { ...piece, href: null } : piece, wrap));
  return blocks.map((block) => BLOCKS[block.kind](block, show, { text, level, isBare }));
}

function piecesOf(blocks, marks) {
  const lists = blocks.flatMap((block) => {
    if (block.kind === "table") return [...block.head, ...block.rows.flat()];
    return block.kind === "list" ? block.items.map(({ runs }) => runs) : [block.runs];
  });
  const found = new Map(lists.map((runs) => [runs, []]));
  const all = lists.flatMap((runs) => runs.map((run) => ({ ...run, owner: runs })));
  for (const piece of cut(all, marks)) found.get(piece.owner).push(piece);
  return found;
}

function onePiece(text, piece, wrap) {
  let inner = text.slice(piece.start, piece.end);
  for (const style of piece.styles ?? []) inner = h(ELEMENTS[style], {}, inner);
  if (piece.href) inner = h("a", { href: piece.href, rel: "noreferrer noopener", target: "_blank" }, inner);
  for (const mark of [...piece.on].reverse()) inner = wrap(mark, inner, piece);
  return inner;
}

const BLOCKS = {
  __proto__: null,
  paragraph: ({ runs }, show) => h("p", { dir: "auto" }, show(runs)),
  lines: ({ runs }, show) => h("p", { dir: "auto", class: "is-kept" }, show(runs)),
  heading: ({ runs, level: own }, show, { level, isBare }) =>
    h(isBare ? "p" : `h${Math.min(6, level + own - 1)}`, { dir: "auto" }, show(runs)),
  quote: ({ runs }, show) => h("blockquote", { dir: "auto" }, show(runs)),
  rule: () => h("hr", {}),
  code({ runs, language }, show, { text, isBare }) {
    if (isBare) return h("pre", {}, h("code", {}, show(runs)));
    const copy = copyButton(TEXT.copy, () => runs.map(({ start, end }) => text.slice(start, end)).join(""));
    const code = h("pre", { tabIndex: 0, "aria-label": language || "code" }, h("code", {}, show(runs)));
    return h("div", { class: "code" }, copy, code);
  },
  table({ head, rows }, show, { isBare }) {
    const cell = (tag, scope) => (runs) => h(tag, { dir: "auto", scope }, show(runs));
    const row = (cells, tag, scope) => h("tr", {}, cells.map(cell(tag, scope)));
    const body = rows.map((cells) => row(cells, "td"));
    const all = h("table", { class: "plain" }, h("thead", {}, row(head, "th", "col")), h("tbody", {}, body));
    return isBare ? all : h("div", { class: "scroll", tabIndex: 0, role: "region", "aria-label": TEXT.table }, all);
  },
  list({ items, isOrdered }, show) {
    const make = ({ marker }) => (/\d/.test(marker) ? h("ol", { start: parseInt(marker, 10) }) : h("ul", {}));
    const top = isOrdered ? make(items[0]) : h("ul", {});
    const open = [{ depth: 0, list: top }];
    for (const item of items) {
      while (open.length > 1 && open.at(-1).depth > item.depth) open.pop();
      if (item.depth > open.at(-1).depth && open.at(-1).list.lastElementChild) {
        const inner = make(item);
        open.at(-1).list.lastElementChild.append(inner);
        open.push({ depth: item.depth, list: inner });
      }
      open.at(-1).list.append(h("li", { dir: "auto" }, show(item.runs)));
    }
    return top;
  },
};

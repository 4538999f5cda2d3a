// Texts as they are read: Markdown and marks as elements. Each letter is a cut of the text that the service sent.

import { copyButton, h } from "./dom.js";
import { parse } from "./markdown.js";
import { cut } from "./text.js";
import { TEXT } from "./words.js";

const ELEMENTS = { __proto__: null, strong: "strong", em: "em", strike: "del", code: "code" };

// Return the elements of a text. `marks` have units `start` and `end` and a `kind`; `draw[kind](mark, inner, isFirst)`
// wraps each piece of a mark. Headings begin at `level`; bare texts have none, and nothing to press.
export function reading(text, { form, fence, marks = [], draw = {}, level = 3, isBare } = {}) {
  const begun = new Set();
  const one = ({ start, end, styles, href, on }) => {
    let inner = text.slice(start, end);
    for (const style of styles ?? []) inner = h(ELEMENTS[style], inner);
    if (href && !isBare) inner = h("a", { href, rel: "noreferrer noopener", target: "_blank" }, inner);
    for (const mark of on.reverse()) {
      inner = draw[mark.kind] ? draw[mark.kind](mark, inner, !begun.has(mark)) : h("mark", inner);
      begun.add(mark);
    }
    return inner;
  };
  const show = (runs) => cut(runs, marks).map(one);
  return parse(text, form, fence).map((block) => BLOCKS[block.kind](block, show, { text, level, isBare }));
}

const written = (kind, runs, show) => h(kind, { dir: "auto" }, show(runs));

const BLOCKS = {
  __proto__: null,
  paragraph: ({ runs }, show) => written("p", runs, show),
  lines: ({ runs }, show) => written("p.is-kept", runs, show),
  heading: ({ runs, level: own }, show, { level, isBare }) =>
    written(isBare ? "p" : `h${Math.min(6, level + own - 1)}`, runs, show),
  quote: ({ runs }, show) => written("blockquote", runs, show),
  rule: () => h("hr"),
  code({ runs, language }, show, { text, isBare }) {
    const code = h("code", show(runs));
    if (isBare) return h("pre", code);
    const copy = copyButton(TEXT.copy, () => runs.map(({ start, end }) => text.slice(start, end)).join(""));
    return h("div.code", copy, h("pre", { tabIndex: 0, "aria-label": language || "code" }, code));
  },
  table({ head, rows }, show, { isBare }) {
    const row = (cells, tag, scope) =>
      h(
        "tr",
        cells.map((runs) => h(tag, { dir: "auto", scope }, show(runs))),
      );
    const all = h(
      "table",
      h("thead", row(head, "th", "col")),
      h(
        "tbody",
        rows.map((cells) => row(cells, "td")),
      ),
    );
    return isBare ? all : h("div.scroll", { tabIndex: 0, role: "region", "aria-label": TEXT.table }, all);
  },
  // The first item has depth 0.
  list({ items }, show) {
    const open = [];
    for (const { depth, marker, runs } of items) {
      while (open.at(-1)?.depth > depth) open.pop();
      if (open.at(-1)?.depth !== depth) {
        const list = /\d/.test(marker) ? h("ol", { start: parseInt(marker, 10) }) : h("ul");
        open.at(-1)?.list.lastElementChild.append(list);
        open.push({ depth, list });
      }
      open.at(-1).list.append(written("li", runs, show));
    }
    return open[0].list;
  },
};

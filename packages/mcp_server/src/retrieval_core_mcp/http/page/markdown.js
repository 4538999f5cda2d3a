// Markdown as blocks of runs. Each run is a cut of the text, `[start, end)` in UTF-16 units, so places that the service
// counted stay exact; what is syntax is in no run. HTML is text. Every step is linear in the length of the text.

const WRITTEN = ["md", "markdown", "mdx", "html", "htm", "docx", "epub", "pptx", "ipynb"];
const STYLES = { "**": "strong", __: "strong", "~~": "strike", "*": "em", _: "em" };
const MOST_OPEN = 32; // marks of styles: each run is styled at most so often

// What a line begins with says what it is. A `#` that is indented by four is a comment in code, and a rule has a most
// of marks because each costs the expression memory.
const LINE = new RegExp(
  [
    /(?<fence>`{3,}(?=[^`\n]*$)|~{3,})/,
    /(?<heading>(?<=^[ \t]{0,3})#{1,6}(?=\s|$))/,
    /(?<rule>(?:(?:-[ \t]*){3,999}|(?:\*[ \t]*){3,999}|(?:_[ \t]*){3,999}|={3,}[ \t]*)$)/,
    /(?<item>(?:[-*+•]|\d{1,9}[.)])[ \t]+)/,
    /(?<quote>>[> ]*)/,
  ]
    .map(({ source }) => source)
    .join("|"),
  "my",
);
const COLUMNS = /^[\s:|]*-[\s:|-]*$/;

// What may be syntax inside a block: an escape, code, a link, a bare address (which doesn't end with a mark), a style.
const TOKEN = /\\[!-/:-@[-`{-~]|`+|!?\[|\]|https?:\/\/[^\s<>()[\]"'`|\\]*[^\s<>()[\]"'`|\\.,;:!?*_~]|\*\*|__|~~|[*_]/g;
const TARGET = /\(([^()\n]*(?:\([^()\n]*\)[^()\n]*){0,9})\)/y;

// Return the blocks of a text. `form` is "markdown", "reflowed" (lines that a page broke) or "lines" (kept).
// `fence` begins the code that is open before the text.
export function parse(text, form = "markdown", fence = "") {
  if (form === "lines") return text.trim() ? [{ kind: "lines", runs: [{ start: 0, end: text.length }] }] : [];
  const lines = linesOf(text);
  if (form === "reflowed") return reflow(text, lines);
  if (fence) lines.unshift({ kind: "fence", mark: fence, rest: { start: 0, end: 0 } });
  const blocks = [];
  for (let at = 0; at < lines.length; ) {
    const [block, next] = BLOCKS[lines[at].kind](text, lines, at);
    if (block) blocks.push(block);
    at = next;
  }
  return blocks;
}

export function formOf(source) {
  const suffix = /\.([a-z0-9]{1,8})$/i.exec(source ?? "")?.[1].toLowerCase() ?? "md";
  if (suffix === "pdf") return "reflowed";
  return WRITTEN.includes(suffix) ? "markdown" : "lines";
}

// Return the fence of the code that is open after a text, if `fence` was open before it.
export function fenceAfter(text, fence = "") {
  let open = fence;
  for (const line of linesOf(text)) {
    if (open) open = closes(line, open) ? "" : open;
    else if (line.kind === "fence") open = line.mark;
  }
  return open;
}

function trimmed(text, start, end) {
  const cut = text.slice(start, end);
  const from = start + cut.length - cut.trimStart().length;
  return { start: from, end: from + cut.trim().length };
}

// Return the lines of a text. Each begins at `from`; `start` and `end` cut its letters, `rest` those after its mark.
function linesOf(text) {
  const lines = [];
  let from = 0;
  for (const whole of text.split("\n")) {
    const { start, end } = trimmed(text, from, from + whole.length);
    LINE.lastIndex = start;
    const kinds = Object.entries(LINE.exec(text)?.groups ?? {});
    const [kind, mark] = kinds.find(([, found]) => found) ?? [start < end ? "text" : "empty", ""];
    const hasPipe = whole.includes("|");
    if (hasPipe && lines.at(-1)?.hasPipe && COLUMNS.test(whole)) lines.at(-1).kind = "table";
    const rest = { start: start + mark.length, end };
    lines.push({ kind, mark, hasPipe, from, start, end, rest, indent: start - from });
    from += whole.length + 1;
  }
  return lines;
}

function closes({ mark, start, end }, fence) {
  return mark.startsWith(fence) && mark.length === end - start;
}

function stop(lines, first, goesOn) {
  let at = first;
  while (at < lines.length && goesOn(lines[at], lines[at + 1])) at += 1;
  return at;
}

// For each kind of line: the block that begins at one, and the place of the line after it.
const BLOCKS = {
  empty: (_text, _lines, at) => [null, at + 1],

  fence(text, lines, at) {
    const last = stop(lines, at + 1, (line) => !closes(line, lines[at].mark));
    const inner = lines.slice(at + 1, last);
    const run = { start: inner[0]?.from, end: inner.at(-1)?.end };
    const { start, end } = lines[at].rest;
    const language = text.slice(start, end).trim().slice(0, 40);
    return [{ kind: "code", language, runs: run.end > run.start ? [run] : [] }, last + 1];
  },

  heading(text, lines, at) {
    const { start, end } = lines[at].rest;
    const { length } = text.slice(start, end).replace(/\s#+$/, "");
    const runs = inline(text, [{ start, end: start + length }]);
    return [{ kind: "heading", level: lines[at].mark.length, runs }, at + 1];
  },

  rule: (_text, _lines, at) => [{ kind: "rule", runs: [] }, at + 1],

  table(text, lines, at) {
    const last = stop(lines, at + 2, ({ hasPipe }) => hasPipe);
    const rows = lines.slice(at + 2, last).map((line) => cells(text, line));
    return [{ kind: "table", head: cells(text, lines[at]), rows, runs: [] }, last];
  },

  item(text, lines, at) {
    const isNumber = ({ mark }) => /\d/.test(mark);
    const isOrdered = isNumber(lines[at]);
    const depthOf = ({ indent }) => Math.min(4, Math.max(0, Math.floor((indent - lines[at].indent) / 2)));
    const last = stop(lines, at, (line, below) => {
      if (line.kind === "item") return depthOf(line) > 0 || isNumber(line) === isOrdered;
      if (line.kind !== "empty") return line.kind === "text" || line.indent > 0;
      return below?.kind === "item" || (below?.indent >= 2 && below.kind !== "empty");
    });
    const items = [];
    for (const line of lines.slice(at, last)) {
      const marker = line.mark.trim();
      if (line.kind === "item") items.push({ depth: depthOf(line), marker, parts: [line.rest] });
      else if (line.kind !== "empty") items.at(-1).parts.push(line);
    }
    const made = items.map(({ parts, ...item }) => ({ ...item, runs: inline(text, parts) }));
    return [{ kind: "list", isOrdered, items: made, runs: [] }, last];
  },

  quote(text, lines, at) {
    const last = stop(lines, at, ({ kind }) => kind === "quote");
    const parts = lines.slice(at, last).map(({ rest }) => rest);
    return [{ kind: "quote", runs: inline(text, parts) }, last];
  },

  text(text, lines, at) {
    const below = lines[at + 1];
    if (below?.kind === "rule" && /^[-=]{3}/.test(below.mark)) {
      return [{ kind: "heading", level: below.mark[0] === "=" ? 1 : 2, runs: inline(text, [lines[at]]) }, at + 2];
    }
    const last = stop(lines, at, ({ kind }) => kind === "text");
    return [{ kind: "paragraph", runs: inline(text, lines.slice(at, last)) }, last];
  },
};

function cells(text, { start, end }) {
  const pipes = Array.from(text.slice(start, end).matchAll(/(?<!\\)\|/g), ({ index }) => start + index);
  if (pipes[0] !== start) pipes.unshift(start - 1);
  if (pipes.at(-1) !== end - 1) pipes.push(end);
  return pipes.slice(1).map((pipe, place) => inline(text, [{ start: pipes[place] + 1, end: pipe }]));
}

// Lines that a page broke as paragraphs: one ends at an empty line, before a bullet, and after a short line that ends
// a sentence. Only headings, which the reader of PDF files marks, are syntax.
function reflow(text, lines) {
  const widest = lines.reduce((most, { from, end }) => Math.max(most, end - from), 0);
  const blocks = [];
  let isOpen = false;
  for (const [at, { kind, start, end }] of lines.entries()) {
    if (kind === "heading") blocks.push(BLOCKS.heading(text, lines, at)[0]);
    if (["empty", "heading", "item"].includes(kind)) isOpen = false;
    if (kind === "empty" || kind === "heading") continue;
    if (!isOpen) blocks.push({ kind: "paragraph", runs: [] });
    const { runs } = blocks.at(-1);
    const previous = runs.at(-1);
    if (previous && text[previous.end - 1] !== "-") previous.end += 1; // the line's end is drawn as a space
    runs.push({ start, end });
    isOpen = end - start >= widest * 0.75 || !".:!?".includes(text[end - 1]);
  }
  return blocks;
}

// Return the runs of text in some parts of lines, each with the styles and the link that hold for it. What is between
// the parts is in no run, and runs that meet and look the same are one.
export function inline(text, parts) {
  const cuts = parts.map(({ start, end }) => trimmed(text, start, end));
  for (const cut of cuts.slice(0, -1)) cut.end += 1; // the line's end is drawn as a space
  const base = cuts[0].start;
  const runs = [];
  let place = 0;
  for (const { start, end, styles, href } of styled(text.slice(base, cuts.at(-1).end))) {
    for (; cuts[place]?.start < base + end; place += 1) {
      const cut = cuts[place];
      const run = { start: Math.max(base + start, cut.start), end: Math.min(base + end, cut.end), styles, href };
      const last = runs.at(-1);
      const isSame = last?.end === run.start && last.href === href && `${last.styles}` === `${styles}`;
      if (run.end > run.start && isSame) last.end = run.end;
      else if (run.end > run.start) runs.push(run);
      if (cut.end > base + end) break;
    }
  }
  return runs;
}

function styled(text) {
  const partners = partnersIn(text);
  const [runs, open, links] = [[], [], [{ end: text.length, href: null }]];
  let done = 0;
  const push = (start, end, styles = [], href = links.at(-1).href) => runs.push({ start, end, styles, href });
  // Take a token as syntax: what is before it becomes a run. One that isn't taken stays text.
  const take = (start, end) => {
    push(done, start);
    done = end;
  };
  for (const { 0: token, index: start } of text.matchAll(TOKEN)) {
    if (start < done) continue; // inside code, or the target of a link
    const end = start + token.length;
    const link = links.at(-1);
    if (token[0] === "\\") take(start, start + 1);
    else if (token[0] === "`") {
      const close = partners.get(start) ?? Infinity;
      if (close > link.end) continue;
      take(start, close + token.length);
      push(end, close, ["code"]);
    } else if (token.endsWith("[")) {
      const close = partners.get(end - 1) ?? Infinity;
      TARGET.lastIndex = close + 1;
      const target = close < link.end && TARGET.exec(text);
      if (!target || TARGET.lastIndex > link.end) continue;
      take(start, end);
      const href = token === "[" ? safe(/^\s*<?([^\s>]*)/.exec(target[1])[1]) : link.href;
      links.push({ end: close, after: TARGET.lastIndex, href });
    } else if (token === "]") {
      if (start !== link.end) continue;
      take(start, link.after);
      links.pop();
    } else if (token[0] === "h") {
      if (links.length > 1) continue;
      take(start, end);
      push(start, end, [], safe(token));
    } else {
      const isWord = (letter) => token[0] === "_" && /[\p{L}\p{N}]/u.test(letter);
      const [before, after] = [text[start - 1] ?? " ", text[end] ?? " "];
      const canOpen = /\S/.test(after) && !isWord(before);
      const canClose = /\S/.test(before) && !isWord(after);
      const opener = canClose ? open.findLastIndex((each) => each.token === token) : -1;
      if (opener !== -1) {
        take(start, end);
        const [mark, ...inner] = runs.slice(open[opener].place);
        mark.end = mark.start;
        for (const { styles } of inner) if (!styles.includes(STYLES[token])) styles.unshift(STYLES[token]);
        open.length = opener;
      } else if (canOpen) {
        take(start, end);
        if (open.length === MOST_OPEN) open.shift();
        open.push({ token, place: runs.length });
        push(start, end); // text, until it is closed
      }
    }
  }
  take(text.length);
  return runs;
}

// Return where the partner of each bracket is that opens, and of each run of backticks: the next one of its length.
function partnersIn(text) {
  const [partners, brackets, ticks] = [new Map(), [], new Map()];
  for (const { 0: mark, index } of text.matchAll(/\\[\\[\]]|[[\]]|`+/g)) {
    if (mark === "[") brackets.push(index);
    else if (mark === "]") partners.set(brackets.pop(), index);
    else if (mark[0] === "`") {
      partners.set(ticks.get(mark), index);
      ticks.set(mark, index);
    }
  }
  return partners;
}

// Only what a reader expects of a link; anything else stays text without one.
export function safe(address) {
  try {
    return /^(?:https?|mailto):/i.test(address) ? new URL(address).href : null;
  } catch {
    return null;
  }
}

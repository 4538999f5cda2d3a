// Markdown as blocks of runs. Each run is a cut of the text, `[start, end)` in UTF-16 units, so places that the service
// counted stay exact; what is syntax is in no run. HTML is text. Every step is linear in the length of the text.

const WRITTEN = ["md", "markdown", "mdx", "html", "htm", "docx", "epub", "pptx", "ipynb"];
const MOST_OPEN = 32;
const LINK_TEXT = 1_000;
const LINK_TARGET = 2_000;
const ITEM = /[ \t]{0,24}(?:[-*+•]|\d{1,9}[.)])[ \t]+/y;
const RULE = /^([-*_])[ \t]*(?:\1[ \t]*){2,}$/;
const TABLE_RULE = /^[ \t:|]*-[ \t:|-]*$/;
const SETEXT = /^(?:={3,}|-{3,})[ \t]*$/;
const BARE = /https?:\/\/[^\s<>()[\]"'`|\\]{1,2000}/y;
const MARKS = ["**", "__", "~~", "*", "_"];
const STYLES = { __proto__: null, "**": "strong", __: "strong", "~~": "strike", "*": "em", _: "em" };

// Return the blocks of a text. `form` is "markdown", "reflowed" (lines that a page broke) or "lines" (kept).
// `fence` begins the code that is open before the text.
export function parse(text, form = "markdown", fence = "") {
  if (form === "lines") return text.trim() ? [{ kind: "lines", runs: [{ start: 0, end: text.length }] }] : [];
  return form === "reflowed" ? reflow(text) : parseBlocks(text, linesOf(text), fence);
}

export function formOf(source) {
  const suffix = /\.([a-z0-9]{1,8})$/i.exec(source ?? "")?.[1].toLowerCase() ?? "md";
  if (suffix === "pdf") return "reflowed";
  return WRITTEN.includes(suffix) ? "markdown" : "lines";
}

function linesOf(text) {
  const lines = [];
  for (let start = 0; start <= text.length; ) {
    const found = text.indexOf("\n", start);
    const stop = found === -1 ? text.length : found;
    lines.push({ start, end: stop > start && text[stop - 1] === "\r" ? stop - 1 : stop });
    start = stop + 1;
  }
  return lines;
}

// Return the fence of the code that is open after a text, if `fence` was open before it.
export function fenceAfter(text, fence = "") {
  let open = fence;
  for (const line of linesOf(text)) {
    const begin = firstInk(text, line);
    if (open) open = closes(text, line, open) ? "" : open;
    else if (begin < line.end) open = fenceAt(text, line, begin);
  }
  return open;
}

function parseBlocks(text, lines, before) {
  const blocks = [];
  let at = 0;
  if (before) {
    const [block, next] = code(text, lines, 0, before);
    blocks.push(block);
    at = next;
  }
  while (at < lines.length) {
    const line = lines[at];
    const begin = firstInk(text, line);
    if (begin === line.end) {
      at += 1;
      continue;
    }
    const [block, next] =
      fence(text, lines, at, begin) ||
      heading(text, lines, at, begin) ||
      rule(text, lines, at, begin) ||
      table(text, lines, at) ||
      list(text, lines, at) ||
      quote(text, lines, at, begin) ||
      paragraph(text, lines, at);
    blocks.push(block);
    at = next;
  }
  return blocks;
}

function firstInk(text, { start, end }) {
  let at = start;
  while (at < end && (text[at] === " " || text[at] === "\t")) at += 1;
  return at;
}

function repeats(text, at, end) {
  let to = at;
  while (to < end && text[to] === text[at]) to += 1;
  return to - at;
}

function fenceAt(text, { end }, begin) {
  const count = "`~".includes(text[begin]) ? repeats(text, begin, end) : 0;
  if (count < 3 || (text[begin] === "`" && text.slice(begin + count, end).includes("`"))) return "";
  return text.slice(begin, begin + count);
}

function fence(text, lines, at, begin) {
  const open = fenceAt(text, lines[at], begin);
  const language = text.slice(begin + open.length, lines[at].end).trim();
  return open && code(text, lines, at + 1, open, language.slice(0, 40));
}

function code(text, lines, first, open, language = "") {
  let last = first;
  while (last < lines.length && !closes(text, lines[last], open)) last += 1;
  const run = last > first && { start: lines[first].start, end: lines[last - 1].end };
  return [{ kind: "code", language, runs: run && run.end > run.start ? [run] : [] }, last + 1];
}

function closes(text, line, open) {
  const begin = firstInk(text, line);
  if (text[begin] !== open[0]) return false;
  const found = repeats(text, begin, line.end);
  return found >= open.length && text.slice(begin + found, line.end).trim() === "";
}

function heading(text, lines, at, begin) {
  const line = lines[at];
  const level = text[begin] === "#" ? repeats(text, begin, line.end) : 0;
  if (level < 1 || level > 6 || begin - line.start > 3) return null;
  if (begin + level < line.end && !" \t".includes(text[begin + level])) return null;
  let end = trimmedEnd(text, begin + level, line.end);
  let hashes = end;
  while (hashes > begin + level && text[hashes - 1] === "#") hashes -= 1;
  if (hashes < end && " \t".includes(text[hashes - 1])) end = hashes;
  return [{ kind: "heading", level, runs: inline(text, [{ start: begin + level, end }]) }, at + 1];
}

function trimmedEnd(text, start, end) {
  let to = end;
  while (to > start && (text[to - 1] === " " || text[to - 1] === "\t")) to -= 1;
  return to;
}

function rule(text, lines, at, begin) {
  return RULE.test(text.slice(begin, lines[at].end)) ? [{ kind: "rule", runs: [] }, at + 1] : null;
}

function table(text, lines, at) {
  const below = lines[at + 1];
  const hasPipe = ({ start, end }) => text.slice(start, end).includes("|");
  if (!below || !hasPipe(below) || !TABLE_RULE.test(text.slice(below.start, below.end)) || !hasPipe(lines[at]))
    return null;
  let last = at + 2;
  while (last < lines.length && hasPipe(lines[last])) last += 1;
  const rows = lines.slice(at + 2, last).map((line) => cells(text, line));
  return [{ kind: "table", head: cells(text, lines[at]), rows, runs: [] }, last];
}

function cells(text, line) {
  let [from, end] = [firstInk(text, line), trimmedEnd(text, line.start, line.end)];
  if (text[from] === "|") from += 1;
  if (end > from && text[end - 1] === "|" && text[end - 2] !== "\\") end -= 1;
  const found = [];
  for (let at = from; at <= end; at += 1) {
    if (at < end && (text[at] !== "|" || text[at - 1] === "\\")) continue;
    found.push(inline(text, [{ start: firstInk(text, { start: from, end: at }), end: trimmedEnd(text, from, at) }]));
    from = at + 1;
  }
  return found;
}

function itemEnd(text, line) {
  ITEM.lastIndex = line.start;
  const found = ITEM.exec(text);
  return found && ITEM.lastIndex <= line.end ? ITEM.lastIndex : -1;
}

function list(text, lines, at) {
  if (itemEnd(text, lines[at]) === -1) return null;
  const least = firstInk(text, lines[at]) - lines[at].start;
  const items = [];
  let last = at;
  for (; last < lines.length; last += 1) {
    const line = lines[last];
    const begin = firstInk(text, line);
    const inner = itemEnd(text, line);
    if (inner !== -1) {
      const depth = Math.min(4, Math.max(0, Math.floor((begin - line.start - least) / 2)));
      if (depth === 0 && items.length && /\d/.test(text[begin]) !== /\d/.test(items[0].marker)) break;
      items.push({ depth, marker: text.slice(begin, inner).trim(), parts: [{ start: inner, end: line.end }] });
    } else if (begin === line.end) {
      const next = lines[last + 1];
      const indent = next ? firstInk(text, next) - next.start : 0;
      const goesOn = next && (itemEnd(text, next) !== -1 || (indent >= 2 && next.start + indent < next.end));
      if (!goesOn) break;
    } else {
      if (begin === line.start && (text[begin] === "#" || repeats(text, begin, line.end) >= 3)) break;
      items.at(-1).parts.push({ start: begin, end: line.end });
    }
  }
  const isOrdered = /\d/.test(items[0].marker);
  const made = items.map(({ depth, marker, parts }) => ({ depth, marker, runs: inline(text, parts) }));
  return [{ kind: "list", isOrdered, items: made, runs: [] }, last];
}

function quote(text, lines, at, begin) {
  if (text[begin] !== ">") return null;
  const parts = [];
  let last = at;
  for (; last < lines.length; last += 1) {
    let from = firstInk(text, lines[last]);
    if (text[from] !== ">" || from === lines[last].end) break;
    while (from < lines[last].end && (text[from] === ">" || text[from] === " ")) from += 1;
    parts.push({ start: from, end: lines[last].end });
  }
  return [{ kind: "quote", runs: inline(text, parts) }, last];
}

function paragraph(text, lines, at) {
  let last = at + 1;
  for (; last < lines.length; last += 1) {
    const line = lines[last];
    const begin = firstInk(text, line);
    if (begin === line.end) break;
    const mark = text[begin];
    if (last === at + 1 && SETEXT.test(text.slice(begin, line.end))) {
      return [{ kind: "heading", level: mark === "=" ? 1 : 2, runs: inline(text, [lines[at]]) }, last + 1];
    }
    if (mark === ">" || itemEnd(text, line) !== -1 || rule(text, lines, last, begin)) break;
    if (mark === "#" && heading(text, lines, last, begin)) break;
    if ((mark === "`" || mark === "~") && repeats(text, begin, line.end) >= 3) break;
    if (table(text, lines, last)) break;
  }
  return [{ kind: "paragraph", runs: inline(text, lines.slice(at, last)) }, last];
}

// Lines that a page broke as paragraphs: one ends at an empty line, before a bullet, and after a short line that ends
// a sentence. Only headings, which the reader of PDF files marks, are syntax.
function reflow(text) {
  const lines = linesOf(text);
  const widest = lines.reduce((most, { start, end }) => Math.max(most, end - start), 0);
  const blocks = [];
  let runs = [];
  const close = () => {
    if (runs.length) blocks.push({ kind: "paragraph", runs });
    runs = [];
  };
  for (const line of lines) {
    const start = firstInk(text, line);
    const end = trimmedEnd(text, start, line.end);
    if (end === start) {
      close();
      continue;
    }
    const head = text[start] === "#" && heading(text, [line], 0, start);
    if (head || itemEnd(text, line) !== -1) close();
    if (head) {
      blocks.push(head[0]);
      continue;
    }
    const previous = runs.at(-1);
    if (previous && text[previous.end - 1] !== "-") previous.end += 1; // the line's end is drawn as a space
    runs.push({ start, end });
    if (end - start < widest * 0.75 && ".:!?".includes(text[end - 1])) close();
  }
  close();
  return blocks;
}

// Return the runs of text in some parts of lines, each with the styles and the link that hold for it.
export function inline(text, parts) {
  const joined = join(text, parts);
  const tokens = tokenize(joined.text);
  pair(tokens);
  const runs = [];
  const counts = { __proto__: null, strong: 0, em: 0, strike: 0 };
  let href = null;
  for (const token of tokens) {
    if (token.kind === "link") href = token.href;
    else if (token.kind === "end") href = null;
    else if (token.pair !== undefined) counts[STYLES[token.mark]] += token.pair;
    else {
      const styles = Object.keys(counts).filter((name) => counts[name] > 0);
      if (token.kind === "code") styles.push("code");
      for (const [start, end] of joined.sources(token.start, token.end)) {
        runs.push({ start, end, styles, href: token.href ?? href });
      }
    }
  }
  return merge(runs);
}

function join(text, parts) {
  const kept = [];
  let [joined, length] = [[], 0];
  parts.forEach(({ start, end }, place) => {
    const from = firstInk(text, { start, end });
    const until = trimmedEnd(text, from, end);
    const piece = text.slice(from, until) + (place < parts.length - 1 ? "\n" : "");
    kept.push({ at: length, from, until: until + (place < parts.length - 1 ? 1 : 0) });
    joined.push(piece);
    length += piece.length;
  });
  let first = 0;
  return {
    text: joined.join(""),
    // Asked in ascending order.
    sources(start, end) {
      while (first < kept.length - 1 && kept[first + 1].at <= start) first += 1;
      const found = [];
      for (let place = first; place < kept.length && kept[place].at < end; place += 1) {
        const { at, from, until } = kept[place];
        const [one, other] = [Math.max(start, at) - at + from, Math.min(end - at + from, until)];
        if (other > one) found.push([one, other]);
      }
      return found;
    },
  };
}

function tokenize(text) {
  const tokens = [];
  const without = new Set(); // lengths of backticks that have no end any more
  let [plain, linkEnd, afterLink] = [0, -1, -1];
  const flush = (to) => {
    if (to > plain) tokens.push({ kind: "text", start: plain, end: to });
  };
  for (let at = 0; at < text.length; ) {
    if (at === linkEnd) {
      flush(at);
      tokens.push({ kind: "end" });
      [at, plain, linkEnd] = [afterLink, afterLink, -1];
      continue;
    }
    const mark = text[at];
    if (mark === "\\" && at + 1 < text.length && /[!-/:-@[-`{-~]/.test(text[at + 1])) {
      flush(at);
      [plain, at] = [at + 1, at + 2];
    } else if (mark === "`") {
      const count = repeats(text, at, text.length);
      const stop = without.has(count) ? -1 : closing(text, at + count, count);
      if (stop === -1 || (linkEnd !== -1 && stop > linkEnd)) {
        if (stop === -1) without.add(count);
        at += count;
      } else {
        flush(at);
        tokens.push({ kind: "code", start: at + count, end: stop });
        at = plain = stop + count;
      }
    } else if (linkEnd === -1 && (mark === "[" || (mark === "!" && text[at + 1] === "["))) {
      const link = linkAt(text, mark === "!" ? at + 1 : at);
      if (!link) {
        at += 1;
        continue;
      }
      flush(at);
      tokens.push({ kind: "link", href: mark === "!" ? null : safe(link.target) });
      at = plain = link.start;
      [linkEnd, afterLink] = [link.end, link.after];
    } else if (linkEnd === -1 && mark === "h" && bareEnd(text, at) > at) {
      let stop = bareEnd(text, at);
      while (".,;:!?*_~".includes(text[stop - 1])) stop -= 1;
      flush(at);
      tokens.push({ kind: "text", start: at, end: stop, href: safe(text.slice(at, stop)) });
      at = plain = stop;
    } else if ("*_~".includes(mark)) {
      const found = MARKS.find((each) => text.startsWith(each, at));
      if (!found) {
        at += repeats(text, at, text.length);
        continue;
      }
      flush(at);
      const [before, after] = [text[at - 1] ?? " ", text[at + found.length] ?? " "];
      const isWord = (letter) => /[\p{L}\p{N}]/u.test(letter);
      const canOpen = /\S/.test(after) && (mark !== "_" || !isWord(before));
      const canClose = /\S/.test(before) && (mark !== "_" || !isWord(after));
      tokens.push({ kind: "delimiter", mark: found, start: at, end: at + found.length, canOpen, canClose });
      at = plain = at + found.length;
    } else at += 1;
  }
  flush(text.length);
  if (linkEnd !== -1) tokens.push({ kind: "end" });
  return tokens;
}

// Return the end of an address that begins at a place, or the place if none does.
function bareEnd(text, at) {
  BARE.lastIndex = at;
  return BARE.test(text) ? BARE.lastIndex : at;
}

function closing(text, from, count) {
  for (let at = text.indexOf("`", from); at !== -1; ) {
    const found = repeats(text, at, text.length);
    if (found === count) return at;
    at = text.indexOf("`", at + found);
  }
  return -1;
}

function linkAt(text, at) {
  let depth = 0;
  for (let place = at; place < Math.min(text.length, at + LINK_TEXT); place += 1) {
    if (text[place] === "\\") place += 1;
    else if (text[place] === "[") depth += 1;
    else if (text[place] === "]") depth -= 1;
    if (depth > 8) return null;
    if (depth === 0) return text[place + 1] === "(" ? target(text, at + 1, place) : null;
  }
  return null;
}

function target(text, start, end) {
  let depth = 0;
  for (let place = end + 1; place < Math.min(text.length, end + LINK_TARGET); place += 1) {
    if (text[place] === "\n") return null;
    if (text[place] === "(") depth += 1;
    if (text[place] === ")") depth -= 1;
    if (depth === 0) {
      const inner = text.slice(end + 2, place).trim();
      const leads = inner.startsWith("<") ? inner.slice(1, inner.indexOf(">")) : inner.split(/\s/)[0];
      return { start, end, after: place + 1, target: leads };
    }
  }
  return null;
}

// Only what a reader expects of a link; anything else stays text without one.
export function safe(address) {
  try {
    const { protocol, href } = new URL(address);
    return ["http:", "https:", "mailto:"].includes(protocol) ? href : null;
  } catch {
    return null;
  }
}

function pair(tokens) {
  const open = [];
  for (const token of tokens) {
    if (token.kind !== "delimiter") continue;
    const place = token.canClose ? open.findLastIndex(({ mark }) => mark === token.mark) : -1;
    if (place !== -1) {
      open[place].pair = 1;
      token.pair = -1;
      open.length = place;
    } else if (token.canOpen) {
      if (open.length === MOST_OPEN) open.shift();
      open.push(token);
    }
  }
}

function merge(runs) {
  const merged = [];
  for (const run of runs) {
    const last = merged.at(-1);
    const isSame = last && last.end === run.start && last.href === run.href && last.styles.join() === run.styles.join();
    if (isSame) last.end = run.end;
    else merged.push(run);
  }
  return merged;
}

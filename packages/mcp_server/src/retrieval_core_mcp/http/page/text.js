// Texts and places in them. The service counts code points, JavaScript counts UTF-16 units.

export const joined = (...parts) => parts.filter(Boolean).join(" · ");

// Return a function from places in code points, asked in ascending order, to places in UTF-16 units.
export function offsets(text) {
  let [points, units] = [0, 0];
  return (wanted) => {
    if (wanted < points) [points, units] = [0, 0];
    for (; points < wanted && units < text.length; points += 1) units += text.codePointAt(units) > 0xffff ? 2 : 1;
    return units;
  };
}

// Return spans of code points as spans of units, in order; one that begins inside another is left out.
export function unitSpans(text, spans) {
  const at = offsets(text);
  const found = [];
  let done = 0;
  for (const [start, end] of [...(spans ?? [])].sort((one, other) => one[0] - other[0])) {
    const [from, to] = [at(start), at(end)];
    if (from < done || to <= from) continue;
    found.push([from, to]);
    done = to;
  }
  return found;
}

export function shorten(text, most) {
  const points = [...text];
  return points.length > most ? `${points.slice(0, most).join("")}…` : text;
}

// Return spans cut at the edges of marks. Each piece lists the marks that cover it, in the order they were given.
// Pieces and marks are in units; pieces are in order and don't overlap, marks may.
export function cut(runs, marks) {
  const edges = [...new Set(marks.flatMap(({ start, end }) => [start, end]))].sort((one, other) => one - other);
  const opening = marks.map((mark, order) => ({ mark, order })).sort((one, other) => one.mark.start - other.mark.start);
  const pieces = [];
  let [edge, next, open] = [0, 0, []];
  for (const run of runs) {
    for (let from = run.start; from < run.end; ) {
      while (edge < edges.length && edges[edge] <= from) edge += 1;
      const to = Math.min(run.end, edges[edge] ?? run.end);
      while (next < opening.length && opening[next].mark.start <= from) open.push(opening[next++]);
      open = open.filter(({ mark }) => mark.end > from);
      const on = [...open].sort((one, other) => one.order - other.order).map(({ mark }) => mark);
      pieces.push({ ...run, start: from, end: to, on });
      from = to;
    }
  }
  return pieces;
}

const SVG = "http://www.w3.org/2000/svg";

// Draws a line between the places of each passage that both sides have, as long as these stand beside each other. What
// the lines tell is told in words at each passage, too.
export function connect(pair) {
  const picture = document.createElementNS(SVG, "svg");
  picture.setAttribute("class", "lines");
  picture.setAttribute("aria-hidden", "true");
  pair.append(picture);
  const draw = () => {
    if (!pair.isConnected) return;
    const [left, right] = pair.querySelectorAll("section");
    const others = new Map([...right.querySelectorAll("[data-key]")].map((entry) => [entry.dataset.key, entry]));
    picture.replaceChildren();
    const [own, one, other] = [pair, left, right].map((each) => each.getBoundingClientRect());
    const isReversed = one.left > other.left; // right to left
    const [from, to] = isReversed ? [one.left, other.right] : [one.right, other.left];
    if (isReversed ? from <= to : from >= to) return; // they stand below each other
    for (const entry of left.querySelectorAll("[data-key]")) {
      const beside = others.get(entry.dataset.key);
      if (!beside) continue;
      const [start, end] = [
        [from - own.left, middle(entry) - own.top],
        [to - own.left, middle(beside) - own.top],
      ];
      picture.append(line(entry.dataset.key, start, end));
    }
  };
  new ResizeObserver(draw).observe(pair); // which goes when the pair does
}

function middle(entry) {
  const first = entry.firstElementChild.getBoundingClientRect();
  return first.top + Math.min(first.height, 24) / 2;
}

function line(key, [x1, y1], [x2, y2]) {
  const made = document.createElementNS(SVG, "line");
  const ends = { x1: x1 + 4, y1, x2: x2 - 26, y2 };
  for (const [name, value] of Object.entries(ends)) made.setAttribute(name, String(value));
  made.setAttribute("class", y1 === y2 ? "is-level" : y2 < y1 ? "is-rising" : "is-falling");
  made.setAttribute("data-key", key);
  return made;
}

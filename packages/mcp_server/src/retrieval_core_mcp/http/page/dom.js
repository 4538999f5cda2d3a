// Elements from values. Text only ever becomes text: nothing here, and nothing that uses it, parses markup.

import { TEXT } from "./words.js";

const drawn = new WeakMap();

// Return an element: `h("p.small.soft", { id: "note" }, children)`. Properties can be left out; children can be lists.
export function h(kind, ...given) {
  const [tag, ...classes] = kind.split(".");
  const properties = given[0]?.constructor === Object ? given.shift() : {};
  const element = document.createElement(tag);
  if (classes.length) element.className = classes.join(" ");
  for (const [name, value] of Object.entries(properties)) {
    if (value == null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value" && tag === "input")
      element.defaultValue = value; // so what was typed since is known
    else if (name === "style") Object.assign(element.style, value);
    else if (name in element) element[name] = value;
    else element.setAttribute(name, value);
  }
  return fill(element, given);
}

// A text of documents, whose direction ends with it.
export const bdi = (text) => h("bdi", text);

export const searching = () => h("p.quiet", TEXT.searching);

export function fill(element, ...children) {
  const isShown = (child) => child != null && child !== false && child !== "";
  element.replaceChildren(...children.flat(Infinity).filter(isShown));
  return element;
}

// Draw a region anew if its key changed. What has an id keeps the focus, and what was typed if its value is the same.
export function draw(region, known, render) {
  const key = JSON.stringify(known);
  if (drawn.get(region) === key) return;
  drawn.set(region, key);
  const focused = region.contains(document.activeElement) ? document.activeElement.id : "";
  const isTyped = ({ value, defaultValue, type }) => value !== defaultValue && type !== "file";
  const typed = [...region.querySelectorAll("input[id]")].filter(isTyped);
  fill(region, render());
  for (const { id, value, defaultValue } of typed) {
    const next = document.getElementById(id);
    if (next?.defaultValue === defaultValue) next.value = value;
  }
  if (focused) document.getElementById(focused)?.focus();
}

// Draw the regions of an element, each anew only if its key changed: `parts` has a name, and a key and a function if it
// is drawn here. What stays is not moved, so pictures don't flicker and a selection is kept.
export function regions(element, parts) {
  const wanted = parts.filter(Boolean);
  const known = new Map([...element.children].map((each) => [each.dataset.region, each]));
  const names = new Set(wanted.map(([name]) => name));
  for (const [name, region] of known) if (!names.has(name)) region.remove();
  let next = element.firstElementChild;
  return wanted.map(([name, key, render]) => {
    const region = known.get(name) ?? h(`div.region-${name}`, { "data-region": name });
    if (region === next) next = next.nextElementSibling;
    else element.insertBefore(region, next);
    if (render) draw(region, key, render);
    return region;
  });
}

// A form of one text, which `act` gets without the blanks around it.
export function oneField(id, label, value, button, act) {
  const field = h("input", {
    type: "search",
    id,
    value,
    size: 34,
    "aria-label": label,
    placeholder: label,
    dir: "auto",
  });
  const onsubmit = (event) => {
    event.preventDefault();
    act(field.value.trim());
  };
  return h("form.row", { role: "search", onsubmit }, field, h("button", button));
}

export function say(text) {
  document.getElementById("status").textContent = text;
}

export function bar(share, kind) {
  const inlineSize = `${Math.max(0, Math.min(1, share)) * 100}%`;
  return h("span.bar", { "aria-hidden": "true" }, h("i", { class: kind, style: { inlineSize } }));
}

export function link(text, act, more) {
  return h("button.link", { type: "button", onclick: act, ...more }, text);
}

export function select(name, choices, chosen, act, more) {
  const options = choices.map(([value, text]) => h("option", { value, selected: value === chosen }, text));
  return h("select", { "aria-label": name, onchange: (event) => act?.(event.target.value), ...more }, options);
}

// A table of rows of cells; `numberCell` and `headCell` make those that are no plain ones.
export function table(name, titles, rows, kind) {
  const cell = (each) => (/^T[DH]$/.test(each?.tagName) ? each : h("td", each));
  const row = (cells) => h("tr", cells.map(cell));
  // A title stands where the cells below it stand: at the end, if they are numbers.
  const kindOf = (place) => rows[0]?.[place]?.className === "number" && "number";
  const head = titles.map((title, place) => h("th", { scope: "col", class: kindOf(place) }, title));
  const caption = h("caption.visually-hidden", name);
  const all = h("table", { class: kind }, caption, h("thead", h("tr", head)), h("tbody", rows.map(row)));
  return h("div.scroll", { tabIndex: 0, role: "region", "aria-label": name }, all);
}

export const numberCell = (text) => h("td.number", text);
export const headCell = (...children) => h("th", { scope: "row" }, children);

export function facts(rows) {
  const shown = rows.filter(([, value]) => value);
  return h(
    "dl.facts",
    shown.map(([name, value]) => [h("dt", name), h("dd", value)]),
  );
}

export function copyButton(label, textOf, copied = TEXT.copied) {
  return link(label, async ({ target }) => {
    const text = await navigator.clipboard.writeText(textOf()).then(
      () => copied,
      () => TEXT.notCopied,
    );
    say(text);
    target.textContent = text;
    setTimeout(() => fill(target, label), 4000);
  });
}

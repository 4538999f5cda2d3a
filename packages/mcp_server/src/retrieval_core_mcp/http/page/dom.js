// Elements from values. Text only ever becomes text: nothing here, and nothing that uses it, parses markup.

import { TEXT } from "./words.js";

const drawn = new WeakMap();
const isShown = (child) => child != null && child !== false && child !== "";

export function h(tag, properties, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value == null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.className = value;
    else if (name === "value" && tag === "input")
      element.defaultValue = value; // so what was typed since is known
    else if (name === "style") Object.assign(element.style, value);
    else if (name in element && !name.includes("-")) element[name] = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(4).filter(isShown));
  return element;
}

// A text of documents, whose direction ends with it.
export const bdi = (text) => h("bdi", {}, text);

export const searching = () => h("p", { class: "quiet" }, TEXT.searching);

export function fill(element, ...children) {
  element.replaceChildren(...children.flat(4).filter(isShown));
  return element;
}

// Draw a region anew if its key changed. What has an id keeps the focus, and what was typed if its value is the same.
export function draw(region, key, render) {
  if (drawn.get(region) === key) return false;
  drawn.set(region, key);
  const focused = region.contains(document.activeElement) ? document.activeElement.id : "";
  const typed = [...region.querySelectorAll("input[id]")].filter(({ value, defaultValue }) => value !== defaultValue);
  fill(region, render());
  for (const { id, value, defaultValue, type } of typed) {
    const next = document.getElementById(id);
    if (next && type !== "checkbox" && next.defaultValue === defaultValue) next.value = value;
  }
  if (focused) document.getElementById(focused)?.focus();
  return true;
}

// Draw the regions of an element, each anew only if its key changed: `parts` has a name, and a key and a function if it
// is drawn here. What stays is not moved, so pictures don't flicker and a selection is kept.
export function regions(element, parts) {
  const known = new Map([...element.children].map((each) => [each.dataset.region, each]));
  let next = element.firstElementChild;
  const drawnNow = parts.filter(Boolean).map(([name, key, render]) => {
    const region = known.get(name) ?? h("div", { class: `region-${name}`, "data-region": name });
    if (region === next) next = next.nextElementSibling;
    else element.insertBefore(region, next);
    if (render) draw(region, JSON.stringify(key), render);
    return region;
  });
  while (next) {
    const gone = next;
    next = next.nextElementSibling;
    gone.remove();
  }
  return drawnNow;
}

export function say(text) {
  document.getElementById("status").textContent = text;
}

export function bar(share, kind) {
  const width = `${Math.max(0, Math.min(1, share)) * 100}%`;
  const inner = h("i", { class: kind ?? "", style: { inlineSize: width } });
  return h("span", { class: "bar", "aria-hidden": "true" }, inner);
}

export function link(text, act, more = {}) {
  return h("button", { type: "button", class: "link", onclick: act, ...more }, text);
}

export function select(name, choices, chosen, act, more = {}) {
  const options = choices.map(([value, text]) => h("option", { value, selected: value === chosen }, text));
  return h("select", { "aria-label": name, onchange: (event) => act(event.target.value), ...more }, options);
}

// A table of rows of cells; `numberCell` and `headCell` make those that are no plain ones.
export function table(name, titles, rows, kind = "plain") {
  const isCell = (each) => each instanceof Element && ["TD", "TH"].includes(each.tagName);
  const row = (cells) => h("tr", {}, ...cells.map((each) => (isCell(each) ? each : h("td", {}, each))));
  const head = h("tr", {}, ...titles.map((title) => h("th", { scope: "col" }, title)));
  const caption = h("caption", { class: "visually-hidden" }, name);
  const all = h("table", { class: kind }, caption, h("thead", {}, head), h("tbody", {}, rows.map(row)));
  return h("div", { class: "scroll", tabIndex: 0, role: "region", "aria-label": name }, all);
}

export const numberCell = (text) => h("td", { class: "number" }, text);
export const headCell = (...children) => h("th", { scope: "row" }, ...children);

export function facts(rows) {
  const shown = rows.filter(([, value]) => value);
  const one = ([name, value]) => [h("dt", {}, name), h("dd", {}, value)];
  return h("dl", { class: "facts" }, shown.map(one));
}

export function copyButton(label, textOf, copied = TEXT.copied) {
  return link(label, async ({ target }) => {
    const text = await navigator.clipboard.writeText(textOf()).then(
      () => copied,
      () => TEXT.notCopied,
    );
    say(text);
    target.textContent = text;
  });
}

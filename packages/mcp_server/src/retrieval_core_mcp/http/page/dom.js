// Elements from values. Text only ever becomes text: nothing here, and nothing that uses it, parses markup.

import { TEXT } from "./words.js";

const drawn = new WeakMap();
const isShown = (child) => child !== null && child !== undefined && child !== false && child !== "";

export function h(tag, properties, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === undefined || value === null || value === false) continue;
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

export function table(name, titles, rows, kind = "plain") {
  const head = h(
    "thead",
    {},
    h(
      "tr",
      {},
      titles.map((title) => h("th", { scope: "col" }, title)),
    ),
  );
  const body = rows instanceof Element ? rows : h("tbody", {}, rows);
  const all = h("table", { class: kind }, h("caption", { class: "visually-hidden" }, name), head, body);
  return h("div", { class: "scroll", tabIndex: 0, role: "region", "aria-label": name }, all);
}

export function copyButton(label, textOf, more = {}) {
  return link(
    label,
    async ({ target }) => {
      const text = await navigator.clipboard.writeText(textOf()).then(
        () => TEXT.copied,
        () => TEXT.notCopied,
      );
      say(text);
      target.textContent = text;
    },
    more,
  );
}

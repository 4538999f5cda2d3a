// The page: draws the views that the address and the session name, anew whenever one of both has changed.

import { hideTip } from "./answer.js";
import { ask } from "./ask.js";
import { corpus, indexes, settings } from "./corpus.js";
import { draw, fill, h } from "./dom.js";
import { library } from "./library.js";
import { closeSource, showSource } from "./source.js";
import { CLOSED } from "./query.js";
import { addressOf, change, hasToken, keepToken, read, takeToken, wantsToken } from "./store.js";
import { TEXT } from "./words.js";

const main = document.getElementById("main");
const header = document.getElementById("corpus");
const menu = document.getElementById("settings");
const links = document.querySelectorAll("[data-view]");
let isFirst = true;

takeToken();
addEventListener("hashchange", takeToken);
addEventListener("changed", render);
addEventListener("keydown", (event) => {
  if (event.key === "Escape") {
    if (hideTip()) return;
    const open = document.querySelector("details.menu[open]");
    if (open) {
      open.open = false;
      open.firstElementChild.focus();
    } else if (read().chunk + read().doc) closeSource();
  }
  if (event.key === "/" && !event.target.closest?.("input, textarea, select")) {
    event.preventDefault();
    document.getElementById("question")?.select();
  }
});
addEventListener("pointerdown", ({ target }) => {
  for (const open of document.querySelectorAll("details.menu[open]")) if (!open.contains(target)) open.open = false;
});
for (const name of ["focusin", "pointerover"]) {
  addEventListener(name, ({ target }) => {
    for (const each of document.querySelectorAll(".is-quiet"))
      if (!each.contains(target)) each.classList.remove("is-quiet");
  });
}
for (const link of links) {
  link.addEventListener("click", (event) => {
    if (event.metaKey || event.ctrlKey) return;
    event.preventDefault();
    change({ view: link.dataset.view, ...CLOSED, find: "" });
  });
}
render();

function render() {
  const state = read();
  document.body.classList.toggle("is-refused", wantsToken());
  if (wantsToken()) {
    document.getElementById("source").hidden = true;
    if (!main.querySelector("#token")) fill(main, tokenForm());
    return;
  }
  const { view, q, mode, top, index, indexes: several } = state;
  for (const link of links) {
    link.ariaCurrent = link.dataset.view === view ? "page" : null;
    link.href = addressOf({ view: link.dataset.view, index, indexes: several });
  }
  const told = corpus(state);
  draw(header, [index, several, told?.textContent], () => told);
  const names = indexes().value?.indexes.map(({ name }) => name);
  draw(menu, [index, several, mode, top, names], () => settings(state));
  const isAsking = view === "ask";
  document.title = isAsking ? (q ? TEXT.titleOf(q) : TEXT.title) : TEXT.files;
  (isAsking ? ask : library)(main, state);
  showSource(state);
  if (isFirst && isAsking && !q) document.getElementById("question").focus();
  isFirst = false;
}

function tokenForm() {
  const field = h("input", { type: "password", autocomplete: "off", required: true, id: "token" });
  const keep = (event) => {
    event.preventDefault();
    fill(main);
    keepToken(field.value.trim());
  };
  setTimeout(() => field.focus());
  return h(
    "form",
    { onsubmit: keep },
    h("h1", TEXT.tokenTitle),
    hasToken() && h("p.notice", { role: "alert" }, TEXT.tokenRefused),
    h("p.quiet", TEXT.tokenHint),
    h("p", h("label", TEXT.token, " ", field), " ", h("button.main", TEXT.goOn)),
  );
}

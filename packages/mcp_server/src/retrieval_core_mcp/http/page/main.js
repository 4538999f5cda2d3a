// The page: draws the views that the address and the session name, anew whenever one of both has changed.

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
let isFirst = true;

takeToken();
addEventListener("hashchange", takeToken);
addEventListener("changed", render);
addEventListener("keydown", (event) => {
  const isTyping = event.target.closest?.("input, textarea, select");
  if (event.key === "Escape") {
    if (hideTip()) return;
    const open = document.querySelector("details.menu[open]");
    if (open) {
      open.open = false;
      open.firstElementChild.focus();
    } else if (read().chunk + read().doc) closeSource();
  }
  if (event.key === "/" && !isTyping) {
    event.preventDefault();
    document.getElementById("question")?.select();
  }
});
addEventListener("pointerdown", ({ target }) => {
  for (const open of document.querySelectorAll("details.menu[open]")) if (!open.contains(target)) open.open = false;
});
for (const name of ["focusin", "pointerover"]) {
  addEventListener(name, ({ target }) => target.closest?.(".cite") || document.body.classList.remove("without-tips"));
}
for (const link of document.querySelectorAll("[data-view]")) {
  link.addEventListener("click", (event) => {
    if (event.metaKey || event.ctrlKey) return;
    event.preventDefault();
    change({ view: link.dataset.view, ...CLOSED });
  });
}
render();

function render() {
  const state = read();
  document.body.classList.toggle("is-refused", wantsToken());
  if (wantsToken()) {
    document.getElementById("source").hidden = true;
    document.body.classList.remove("with-source");
    if (!main.querySelector("#token")) fill(main, tokenForm());
    return;
  }
  const all = indexes();
  for (const link of document.querySelectorAll("[data-view]")) {
    if (link.dataset.view === state.view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
    link.href = addressOf({ view: link.dataset.view, index: state.index, indexes: state.indexes });
  }
  const told = corpus(state);
  draw(header, JSON.stringify([state.index, state.indexes, told?.map(({ textContent }) => textContent)]), () => [told]);
  draw(
    menu,
    JSON.stringify([state.index, state.indexes, state.mode, state.top, all.value?.indexes.map(({ name }) => name)]),
    () => settings(state),
  );
  document.title = titleOf(state);
  (state.view === "index" ? library : ask)(main, state);
  showSource(state);
  if (isFirst && state.view === "ask" && !state.q) document.getElementById("question").focus();
  isFirst = false;
}

// Hide the quote that is shown, until another thing is pointed at or focused.
function hideTip() {
  const isShown = document.querySelector(".cite:hover, .cite:focus-within");
  if (!isShown || document.body.classList.contains("without-tips")) return false;
  document.body.classList.add("without-tips");
  return true;
}

function titleOf({ view, q }) {
  if (view === "index") return TEXT.files;
  return q ? TEXT.titleOf(q) : TEXT.title;
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
    h("h1", {}, TEXT.tokenTitle),
    hasToken() && h("p", { class: "notice", role: "alert" }, TEXT.tokenRefused),
    h("p", { class: "quiet" }, TEXT.tokenHint),
    h(
      "p",
      {},
      h("label", { htmlFor: "token" }, TEXT.token, " "),
      field,
      " ",
      h("button", { class: "main" }, TEXT.goOn),
    ),
  );
}

import { get, hasToken, keepToken, takeToken } from "./api.js";
import { ask } from "./ask.js";
import { fill, h } from "./dom.js";
import { library } from "./library.js";
import { closeSource, showSource } from "./source.js";
import { addressOf, change, read, several } from "./state.js";

const main = document.getElementById("main");
const which = document.getElementById("which");
let names = [];
let isRefused = false;

takeToken();
addEventListener("hashchange", () => takeToken() && start());
addEventListener("popstate", () => dispatchEvent(new Event("changed")));
addEventListener("changed", show);
addEventListener("unauthorized", askForToken);
addEventListener("keydown", (event) => {
  const typing = event.target.closest?.("input, textarea, select");
  if (event.key === "Escape" && read().chunk + read().doc) closeSource();
  if (event.key === "/" && !typing) {
    event.preventDefault();
    document.getElementById("question")?.focus();
  }
});
for (const link of document.querySelectorAll("[data-view]")) {
  link.addEventListener("click", (event) => {
    if (event.metaKey || event.ctrlKey) return;
    event.preventDefault();
    change({ view: link.dataset.view, chunk: "", doc: "", of: "" });
  });
}
which.addEventListener("change", choose);
start();

async function start() {
  try {
    const { indexes } = await get("/v1/indexes");
    names = indexes.map(({ name }) => name);
    which.parentElement.hidden = names.length < 2;
    isRefused = false;
    show({ detail: "again" });
  } catch (problem) {
    if (problem.status !== 401) fill(main, h("h1", {}, "Nothing to ask"), h("p", { class: "notice", role: "alert" }, problem.message), h("p", {}, h("button", { onclick: start }, "Try again")));
  }
}

// Whatever is shown, a token that is missing, wrong or no longer valid is asked for.
function askForToken() {
  if (isRefused && main.querySelector("#token")) return;
  isRefused = true;
  document.getElementById("source").hidden = true;
  document.body.classList.remove("with-source");
  fill(main, tokenForm());
}

function show(event) {
  if (isRefused) return;
  const state = read();
  const again = event?.detail === "again";
  for (const link of document.querySelectorAll("[data-view]")) {
    const current = link.dataset.view === state.view;
    if (current) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
    link.href = addressOf({ view: link.dataset.view, index: state.index, indexes: state.indexes });
  }
  const asked = several(state).length ? several(state) : [state.index || names[0]];
  const focused = which.contains(document.activeElement) && document.activeElement.value;
  fill(which, names.map((name) => h("label", {}, h("input", { type: "checkbox", value: name, checked: asked.includes(name) }), " ", h("bdi", {}, name))));
  if (focused) which.querySelector(`[value="${CSS.escape(focused)}"]`)?.focus();
  which.previousElementSibling.textContent = asked.length > 1 ? (asked.length === names.length ? "All indexes" : `${asked.length} indexes`) : `Index: ${asked[0]}`;
  document.title = state.view === "index" ? "The index" : state.q ? `${state.q} – the documents` : "Ask the documents";
  (state.view === "index" ? library : ask)(main, state, again);
  showSource(state, again);
}

// One index, or several that are asked as one; the last one cannot be left out.
function choose(event) {
  const alone = (name) => /[\s:]/.test(name);  // whose name cannot stand before an id
  const { value: last, checked } = event.target;
  const chosen = [...which.querySelectorAll(":checked")].map(({ value }) => value).filter((name) => (checked && (alone(last) || alone(name)) ? name === last : true));
  if (!chosen.length) event.target.checked = true;
  else change({ index: chosen.length > 1 || chosen[0] === names[0] ? "" : chosen[0], indexes: chosen.length > 1 ? chosen.join(" ") : "", chunk: "", doc: "", of: "", filters: "" });
}

function tokenForm() {
  const field = h("input", { type: "password", autocomplete: "off", required: true, id: "token" });
  const keep = (event) => {
    event.preventDefault();
    keepToken(field.value.trim());
    fill(main);
    start();
  };
  return h("form", { onsubmit: keep }, h("h1", {}, "This service needs a token"),
    hasToken() && h("p", { class: "notice", role: "alert" }, "The token of this tab was not accepted."),
    h("p", { class: "quiet" }, "Whoever runs it gives you one. It is kept until you close this tab."),
    h("p", {}, h("label", { htmlFor: "token" }, "Token "), field, " ", h("button", { class: "main" }, "Go on")));
}

import { get, keepToken, takeToken } from "./api.js";
import { ask } from "./ask.js";
import { fill, h } from "./dom.js";
import { library } from "./library.js";
import { closeSource, showSource } from "./source.js";
import { addressOf, change, read } from "./state.js";

const main = document.getElementById("main");
const which = document.getElementById("which");

takeToken();
addEventListener("popstate", () => dispatchEvent(new Event("changed")));
addEventListener("changed", show);
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
    change({ view: link.dataset.view, chunk: "", doc: "" });
  });
}
which.addEventListener("change", () => change({ index: which.selectedIndex ? which.value : "", chunk: "", doc: "", filters: "" }));
start();

async function start() {
  try {
    const { indexes } = await get("/v1/indexes");
    fill(which, indexes.map(({ name }) => h("option", {}, name)));
    which.parentElement.hidden = indexes.length < 2;
    show();
  } catch (problem) {
    if (problem.status === 401) fill(main, tokenForm());
    else fill(main, h("h1", {}, "Nothing to ask"), h("p", { class: "notice", role: "alert" }, problem.message), h("p", {}, h("button", { onclick: start }, "Try again")));
  }
}

function show(event) {
  const state = read();
  const again = event?.detail === "again";
  for (const link of document.querySelectorAll("[data-view]")) {
    const current = link.dataset.view === state.view;
    if (current) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
    link.href = addressOf({ view: link.dataset.view, index: state.index });
  }
  which.value = state.index || which.options[0]?.value || "";
  document.title = state.view === "index" ? "The index" : state.q ? `${state.q} – the documents` : "Ask the documents";
  (state.view === "index" ? library : ask)(main, state, again);
  showSource(state, again);
}

function tokenForm() {
  const field = h("input", { type: "password", autocomplete: "off", required: true, id: "token" });
  const keep = (event) => {
    event.preventDefault();
    keepToken(field.value.trim());
    start();
  };
  return h("form", { onsubmit: keep }, h("h1", {}, "This service needs a token"),
    h("p", { class: "quiet" }, "Whoever runs it gives you one. It is kept until you close this tab."),
    h("p", {}, h("label", { htmlFor: "token" }, "Token "), field, " ", h("button", { class: "main" }, "Go on")));
}

import { post } from "./api.js";
import { fill, h, shortNumber } from "./dom.js";
import { notices, problems } from "./passages.js";
import { copy } from "./source.js";
import { openChunk, question } from "./state.js";

const ROLES = { __proto__: null, primary: "hit", parent: "parent", neighbor: "around a hit", sibling: "of the same section" };
let budget = "";

// What a language model would be shown: how the budget is spent, on what, and what had no room.
export async function context(panel, state, signal) {
  const field = h("input", { type: "number", min: 1, max: 1_000_000, value: budget, placeholder: "as configured", "aria-label": "Tokens at most", style: { inlineSize: "9rem" } });
  const body = h("div", {}, h("p", { class: "quiet" }, "Choosing…"));
  const submit = (event) => {
    event.preventDefault();
    budget = field.value;
    load();
  };
  fill(panel, h("form", { class: "settings", onsubmit: submit }, h("label", {}, "Tokens at most ", field), h("button", {}, "Choose")), body);
  await load();

  async function load() {
    try {
      show(await post("/v1/context", question(state, { max_tokens: budget ? Number(budget) : undefined }), signal));
    } catch (problem) {
      if (problem.name !== "AbortError") fill(body, problems(problem));
    }
  }

  function show(pack) {
    const kept = pack.ledger.filter(({ outcome }) => outcome !== "dropped" && outcome !== "omitted");
    const share = (tokens) => `${(tokens / pack.max_tokens) * 100}%`;
    const text = h("pre", { class: "pack", dir: "auto", tabIndex: 0, "aria-label": "The text" }, pack.context_pack);
    fill(body, notices(pack), h("p", {}, h("strong", { class: "number" }, shortNumber(pack.token_count)), ` of ${shortNumber(pack.max_tokens)} tokens`),
      h("div", { class: "budget", role: "img", "aria-label": `${pack.token_count} of ${pack.max_tokens} tokens are used` }, kept.map((each) => h("i", { class: each.role, title: `${each.id}: ${each.tokens}`, style: { inlineSize: share(each.tokens ?? 0) } }))),
      h("p", { class: "small" }, pack.note),
      h("p", { class: "actions" }, h("button", { onclick: (event) => copy(event.target, pack.context_pack) }, "Copy the text")), text,
      h("h2", { style: { fontSize: "1rem", marginBlock: "24px 8px" } }, "What was considered"),
      h("div", { class: "scroll" }, h("table", { class: "plain" }, h("thead", {}, h("tr", {}, ["passage", "as", "tokens", "outcome"].map((name) => h("th", { scope: "col" }, name)))),
        h("tbody", {}, pack.ledger.slice(0, 200).map((each) => h("tr", {}, h("td", {}, h("button", { class: "link", onclick: () => openChunk(each.id) }, h("bdi", {}, each.id))), h("td", {}, ROLES[each.role] ?? each.role), h("td", { class: "number" }, shortNumber(each.tokens)), h("td", {}, [each.outcome, each.reason].filter(Boolean).join(": ")))))),
      pack.ledger.length > 200 && h("p", { class: "small soft" }, `and ${pack.ledger.length - 200} more`)));
  }
}

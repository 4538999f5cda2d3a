// What is behind a result: why these results, the context of a language model, and two settings beside each other.

import { post } from "./api.js";
import { bdi, copyButton, h, link, numberCell, searching, table } from "./dom.js";
import { compare } from "./compare.js";
import { questionOf } from "./query.js";
import { fallbacks, openChunk, problems, searched } from "./results.js";
import { once } from "./store.js";
import { MODES, ROLES, TEXT, shortNumber } from "./words.js";
import { why } from "./why.js";

const MOST_ROWS = 200;
let budget = "";

export function inspect(state) {
  if (state.tab === "why") return searchedOr(state, (found) => why(state, found));
  return state.tab === "context" ? context(state) : compare(state);
}

function searchedOr(state, render) {
  const record = searched(state);
  if (record.problem) return problems(record.problem);
  return record.value ? [fallbacks(record.value), render(record.value)] : searching();
}

export const contextKey = () => budget;

function context(state) {
  const asked = questionOf(state, { max_tokens: budget ? Number(budget) : undefined });
  const record = once("context", asked, (signal) => post("/v1/context", asked, signal));
  const field = h("input", {
    type: "number",
    id: "budget",
    min: 1,
    max: 1_000_000,
    value: budget,
    placeholder: MODES[""],
    "aria-label": TEXT.budget,
    style: { inlineSize: "9rem" },
  });
  const submit = (event) => {
    event.preventDefault();
    budget = field.value;
    dispatchEvent(new Event("changed"));
  };
  const form = h(
    "form",
    { class: "settings", onsubmit: submit },
    h("label", {}, TEXT.budget, " ", field),
    h("button", {}, TEXT.apply),
  );
  if (record.problem) return [form, problems(record.problem)];
  return [form, record.value ? pack(state, record.value) : searching()];
}

function pack(state, { ledger, max_tokens: most, token_count: tokens, context_pack: text, note, degraded }) {
  const kept = ledger.filter(({ outcome }) => outcome !== "dropped" && outcome !== "omitted");
  const share = (each) => `${((each.tokens ?? 0) / most) * 100}%`;
  const bars = kept.map((each) =>
    h("i", { class: each.role, title: `${each.id}: ${each.tokens}`, style: { inlineSize: share(each) } }),
  );
  const row = (each) => [
    link(bdi(each.id), () => openChunk(state, each.id)),
    ROLES[each.role] ?? each.role,
    numberCell(shortNumber(each.tokens)),
    [each.outcome, each.reason].filter(Boolean).join(": "),
  ];
  return [
    fallbacks({ degraded }),
    h("p", {}, h("strong", { class: "number" }, shortNumber(tokens)), TEXT.ofTokens(most)),
    h("div", { class: "budget", role: "img", "aria-label": `${tokens}${TEXT.ofTokens(most)}` }, bars),
    note && h("p", { class: "small" }, note),
    h(
      "p",
      { class: "actions" },
      copyButton(TEXT.copy, () => text),
    ),
    h("pre", { class: "pack", dir: "auto", tabIndex: 0, "aria-label": TEXT.contextText }, text),
    h("h2", { class: "minor" }, TEXT.considered),
    table(TEXT.considered, TEXT.contextColumns, ledger.slice(0, MOST_ROWS).map(row)),
    ledger.length > MOST_ROWS && h("p", { class: "small soft" }, TEXT.andMore(ledger.length - MOST_ROWS)),
  ];
}

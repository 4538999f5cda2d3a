// What is behind a result: why these results, the context of a language model, and two settings beside each other.

import { post } from "./api.js";
import { bdi, copyButton, h, link, numberCell, table } from "./dom.js";
import { compare } from "./compare.js";
import { questionOf } from "./query.js";
import { fallbacks, openChunk, outcome, searched } from "./results.js";
import { changed, once, revisionOf } from "./store.js";
import { MODES, ROLES, TEXT, shortNumber } from "./words.js";
import { why, whyKey } from "./why.js";

const MOST_ROWS = 200;
let budget = "";

export const inspectKey = () => [budget, whyKey(), revisionOf("search", "context", "named")];

export function inspect(state) {
  if (state.tab === "context") return context(state);
  if (state.tab === "compare") return compare(state);
  return outcome(searched(state), (found) => [fallbacks(found), why(state, found)]);
}

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
  });
  const onsubmit = (event) => {
    event.preventDefault();
    budget = field.value;
    changed();
  };
  const form = h("form.row.small.soft", { onsubmit }, h("label", TEXT.budget, " ", field), h("button", TEXT.apply));
  return [form, outcome(record, (found) => pack(state, found))];
}

function pack(state, found) {
  const { ledger, max_tokens: most, token_count: tokens, context_pack: text, note } = found;
  const bars = ledger
    .filter((each) => !["dropped", "omitted"].includes(each.outcome))
    .map(({ id, role, tokens = 0 }) =>
      h("i", { class: role, title: `${id}: ${tokens}`, style: { inlineSize: `${(tokens / most) * 100}%` } }),
    );
  const row = (each) => [
    link(bdi(each.id), () => openChunk(state, each.id)),
    ROLES[each.role] ?? each.role,
    numberCell(shortNumber(each.tokens)),
    [each.outcome, each.reason].filter(Boolean).join(": "),
  ];
  return [
    fallbacks(found),
    h("p", h("strong.number", shortNumber(tokens)), TEXT.ofTokens(most)),
    h("div.bar.budget", { role: "img", "aria-label": `${tokens}${TEXT.ofTokens(most)}` }, bars),
    note && h("p.small", note),
    h(
      "p",
      copyButton(TEXT.copy, () => text),
    ),
    h("pre.pack", { dir: "auto", tabIndex: 0, "aria-label": TEXT.contextText }, text),
    h("h2", TEXT.considered),
    table(TEXT.considered, TEXT.contextColumns, ledger.slice(0, MOST_ROWS).map(row)),
    ledger.length > MOST_ROWS && h("p.small.soft", TEXT.andMore(ledger.length - MOST_ROWS)),
  ];
}

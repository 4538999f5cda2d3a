import { fill, h, shortNumber } from "./dom.js";
import { explained, problems, scores, search } from "./passages.js";
import { question, several, sourceIndex } from "./state.js";
import { timeline } from "./timeline.js";

const MEANING = {
  version: "looks which state the index is in", cache: "looks for an answer that is kept", semantic_cache: "looks for the answer to a question that means the same", transform: "rewrites the question",
  embed: "turns the question into a vector", dense: "searches by meaning", lexical: "searches by words", hybrid: "searches by both", fuse: "puts both orders into one", merge: "puts the orders of all indexes into one", fetch: "reads the passages",
  rerank: "orders the best anew", threshold: "leaves out what is not near enough", diversify: "leaves out what repeats", expand: "adds what stands around", filter: "leaves out what is off the subject",
};

// The run of a question as a timeline, and what became of a passage that was expected.
export async function why(panel, state, signal) {
  fill(panel, h("p", { class: "quiet" }, "Looking…"));
  try {
    const found = await explained(state, signal);
    fill(panel, summary(found), timeline(found, MEANING, happened), whyNot(state, signal));
  } catch (problem) {
    if (problem.name !== "AbortError") fill(panel, problems(problem));
  }
}

function summary(found) {
  const told = found.relevance;
  return [
    told && h("p", {}, `How likely the passages are on the question's subject: ${Math.round(told.value * 100)} %. `, h("span", { class: "soft" }, told.explanation ?? "")),
    found.from_cache && h("p", {}, "What was found had been kept from before, so nothing had to be searched."),
    h("p", { class: "small soft" }, `${found.execution.latency_ms} ms in all`),
  ];
}

function happened(stage) {
  const told = [];
  if (stage.error) told.push(h("span", { class: "notice" }, stage.error));
  for (const [place, { milliseconds, error }] of (stage.failed ?? []).entries()) {
    if (error !== stage.error || place < stage.failed.length - 1) told.push(`attempt ${place + 1} failed after ${shortNumber(milliseconds)} ms: ${error}`);
  }
  if (stage.attempts > 1) told.push(`asked ${stage.attempts} times`);
  if (stage.decision) told.push(stage.decision);
  if (stage.dropped?.length) told.push(h("details", {}, h("summary", {}, `${stage.dropped.length} dropped`), h("ul", {}, stage.dropped.slice(0, 50).map((each) => h("li", {}, typeof each === "string" ? each : [each.id ?? each.chunk_id, each.reason].filter(Boolean).join(": "))))));
  return told.length ? told.flatMap((each, place) => (place ? [" · ", each] : [each])) : h("span", { class: "soft" }, MEANING[stage.stage.split(": ").at(-1)] ?? "");
}

export function whyNot(state, signal, given = "") {
  const field = h("input", { id: "expected", value: given, size: 34, "aria-label": "Id of a passage", placeholder: "id of a passage, such as notes.md#0" });
  const told = h("div", { role: "status" });
  const look = async (event) => {
    event?.preventDefault();
    if (!field.value.trim()) return;
    try {
      const found = await search(question(state, { chunk_id: field.value.trim(), indexes: undefined, index: sourceIndex(state) || several(state)[0] }), signal);
      fill(told, h("p", {}, found.why), found.expected && scores(found.expected, found));
    } catch (problem) {
      if (problem.name !== "AbortError") fill(told, problems(problem));
    }
  };
  if (given) look();
  return h("form", { onsubmit: look }, h("h2", { style: { marginBlock: "28px 8px", fontSize: "1rem" } }, "Why not another passage?"),
    h("p", { class: "small soft" }, "Every passage of an opened document has this question beside it, too.", several(state).length > 1 && ` It is looked for in ${sourceIndex(state) || several(state)[0]} alone.`),
    h("div", { class: "filter-row" }, field, h("button", {}, "Look")), told);
}

import { get } from "./api.js";
import { fill, h, shortNumber } from "./dom.js";
import { explained, problems, scores, search, without } from "./passages.js";
import { change, question, several, sourceIndex } from "./state.js";
import { timeline } from "./timeline.js";

const MEANING = {
  __proto__: null,
  version: "looks which state the index is in", cache: "looks for an answer that is kept", semantic_cache: "looks for the answer to a question that means the same", transform: "rewrites the question",
  embed: "turns the question into a vector", dense: "searches by meaning", lexical: "searches by words", hybrid: "searches by both", fuse: "puts both orders into one", merge: "puts the orders of all indexes into one", fetch: "reads the passages",
  rerank: "orders the best anew", threshold: "leaves out what is not near enough", diversify: "leaves out what repeats", expand: "adds what stands around", filter: "leaves out what is off the subject",
};

// The run of a question as a timeline, and what became of a passage that was expected.
export async function why(panel, state, signal) {
  fill(panel, h("p", { class: "quiet" }, "Looking…"));
  try {
    const found = await explained(state, signal);
    fill(panel, without(found), summary(found), timeline(found, MEANING, happened), whyNot(state, signal));
  } catch (problem) {
    if (problem.name !== "AbortError") fill(panel, problems(problem));
  }
}

function summary(found) {
  const told = found.relevance;
  return [
    told && h("p", {}, `How likely the passages are on the question's subject: ${Math.round(told.value * 100)} %. `, h("span", { class: "soft" }, told.explanation ?? "")),
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
  if (stage.dropped?.length) told.push(h("details", {}, h("summary", {}, `${stage.dropped.length} dropped`), h("ul", {}, stage.dropped.slice(0, 50).map((each) => h("li", {}, typeof each === "string" ? each : [each.id ?? each.chunk_id, each.reason].filter(Boolean).join(": ")))), stage.dropped.length > 50 && h("p", {}, `and ${shortNumber(stage.dropped.length - 50)} more`)));
  return told.length ? told.flatMap((each, place) => (place ? [" · ", each] : [each])) : h("span", { class: "soft" }, MEANING[stage.stage.split(": ").at(-1)] ?? "");
}

// What to do with what names no passage: it may name a document, whose passages have the question beside them.
async function instead(name, state, problem) {
  const { documents } = await get("/v1/documents", { index: sourceIndex(state) || several(state)[0], name, limit: 6 }).catch(() => ({ documents: [] }));
  if (!documents.length) return problems(problem);
  return [h("p", {}, "That is no passage. Open its document, and ask beside one of its passages:"),
    h("ul", {}, documents.map(({ id }) => h("li", {}, h("button", { class: "link", type: "button", onclick: () => change({ doc: id, chunk: "", of: sourceIndex(state) || several(state)[0] || "" }) }, h("bdi", {}, id)))))];
}

export function whyNot(state, signal, given = "") {
  const field = h("input", { id: "expected", value: given, size: 34, "aria-label": "A passage, or its document", placeholder: "a document, or a passage such as notes.md#0", dir: "auto" });
  const told = h("div", { role: "status" });
  const look = async (event) => {
    event?.preventDefault();
    if (!field.value.trim()) return;
    try {
      const found = await search(question(state, { chunk_id: field.value.trim(), indexes: undefined, index: sourceIndex(state) || several(state)[0] }), signal);
      fill(told, h("p", {}, found.why), found.expected && scores(found.expected, found));
    } catch (problem) {
      if (problem.name !== "AbortError") fill(told, problem.status === 404 ? await instead(field.value.trim(), state, problem) : problems(problem));
    }
  };
  if (given) look();
  return h("form", { onsubmit: look }, h("h2", { style: { marginBlock: "28px 8px", fontSize: "1rem" } }, "Why not another passage?"),
    h("p", { class: "small soft" }, "Every passage of an opened document has this question beside it, too.", several(state).length > 1 && ` It is looked for in ${sourceIndex(state) || several(state)[0]} alone.`),
    h("div", { class: "filter-row" }, field, h("button", {}, "Look")), told);
}

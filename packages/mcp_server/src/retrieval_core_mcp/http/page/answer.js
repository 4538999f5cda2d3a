import { Problem, stream } from "./api.js";
import { fill, h, offsets, say } from "./dom.js";
import { pages, problems, without } from "./passages.js";
import { change, openChunk, question } from "./state.js";

const KINDS = { __proto__: null, extracted: "In the documents' own words; no language model is configured.", abstained: "The documents don't seem to contain the answer.", generated: "" };
const PROBLEMS = { __proto__: null, unsupported: "no passage supports it", unknown: "it cites a passage that does not exist", contradicted: "a passage says something else" };
const MOST_PROBLEMS = 10;
let history = [];
let last = null;

export function forgetAnswer() {
  last?.stopper.abort();
  last = null;
}

// Ends the answer to another question than the one that is shown now.
export function leaveAnswer(state) {
  if (last && ["q", "index", "indexes", "mode", "top", "filters"].some((name) => last.state[name] !== state[name])) forgetAnswer();
}

// The answer to a question, asked once: a tab that is left does not end it, another question does.
function answered(state) {
  const asked = question(state, history.length ? { history } : {});
  const key = JSON.stringify(asked);
  if (last?.key === key) return last;
  forgetAnswer();
  const one = { key, state, stopper: new AbortController(), written: "", passages: null, done: null, problem: null, isOver: false, show: () => {} };
  const take = (event) => {
    if (event.type === "retrieval_done") one.passages = event.passages ?? [];
    else if (event.type === "answer_chunk") one.written += event.content;
    else if (event.type === "error") throw new Problem(503, [event.reason]);
    else if (event.type === "done") one.done = event.answer;
    one.show();
  };
  stream("/v1/answer", asked, take, one.stopper.signal)
    .then(() => { if (!one.done) throw new Problem(0, ["The connection was lost before the answer was complete."]); })
    .catch((problem) => { one.problem = problem; })
    .finally(() => {
      one.isOver = true;
      one.show();
    });
  last = one;
  return one;
}

// An answer as it comes, with its sources beside it; the turns before are asked with it.
export async function answer(panel, state, signal) {
  const text = h("div", { class: "answer", dir: "auto" });
  const sources = h("div", {});
  const state_of = h("p", { class: "quiet", role: "status" }, "Searching…");
  let one;
  try {
    one = answered(state);
  } catch (problem) {
    fill(panel, problems(problem));
    return;
  }
  const stop = h("button", { onclick: () => one.stopper.abort() }, "Stop");
  fill(panel, turns(), text, h("p", { class: "actions" }, stop), state_of, sources);
  let listed = null;
  const show = () => {
    if (signal.aborted) return;
    if (one.passages !== listed) {
      listed = one.passages;
      state_of.textContent = "Writing…";
      fill(sources, list(listed));
    }
    text.textContent = one.written;
    if (!one.isOver) return;
    stop.remove();
    if (one.problem === null) finished(one.done);
    else broken(one.problem, one.written);
  };
  one.show = show;
  show();

  function broken(problem, written) {
    const isStopped = problem.name === "AbortError";
    state_of.textContent = isStopped ? (written ? "Stopped. This is what was written until then." : "Stopped.") : written ? "It breaks off here." : "";
    if (!isStopped) state_of.after(...problems(problem));
  }

  function finished(told) {
    fill(text, withMarks(told));
    fill(sources, list(told.sources));
    state_of.textContent = KINDS[told.kind] ?? "";
    state_of.after(...doubts(told), ...without(told));
    say("The answer is complete");
    panel.append(next(told));
  }

  function next(told) {
    const field = h("input", { type: "search", "aria-label": "Ask on", placeholder: "Ask on", size: 40, dir: "auto" });
    const on = (event) => {
      event.preventDefault();
      if (!field.value.trim()) return;
      history = [...history, { role: "user", content: state.q }, { role: "assistant", content: told.text }].slice(-20);
      change({ q: field.value.trim(), chunk: "", doc: "" });
    };
    return h("form", { onsubmit: on, class: "filter-row", style: { marginBlockStart: "24px" } }, field, h("button", {}, "Ask on"));
  }
}

// How far the answer can be relied on, what is to be said of it, and each sentence that no passage supports.
function doubts(told) {
  const found = (told.sentences ?? []).map((sentence) => [sentence, problemOf(sentence)]).filter(([, problem]) => problem);
  return [
    told.note && h("p", { class: "notice" }, told.note),
    told.confidence && h("p", { class: "small soft confidence" }, `Confidence ${told.confidence.value.toFixed(2)}. ${told.confidence.explanation ?? ""}`),
    ...found.slice(0, MOST_PROBLEMS).map(([sentence, problem]) => h("p", { class: "notice problem" }, h("q", { dir: "auto" }, short(sentence.text)), `: ${PROBLEMS[problem] ?? problem}.`)),
    found.length > MOST_PROBLEMS && h("p", { class: "small soft" }, `and ${found.length - MOST_PROBLEMS} more sentences`),
  ].filter(Boolean);
}

function problemOf(sentence) {
  if (sentence.check?.verdict === "contradicted") return "contradicted";
  return (sentence.attributions ?? []).find(({ problem }) => problem)?.problem ?? (sentence.needs_source ? "unsupported" : null);
}

function turns() {
  if (!history.length) return null;
  const forget = () => {
    history = [];
    document.querySelector(".turns")?.remove();
    say("Begun anew");
  };
  return h("details", { class: "turns small" }, h("summary", {}, `After ${history.length / 2} earlier question${history.length > 2 ? "s" : ""}`),
    history.map(({ role, content }) => h("p", { class: role === "user" ? "" : "soft", dir: "auto" }, content)), h("button", { onclick: forget }, "Begin anew"));
}

// The text with a button at each mark, which opens the passage that the words before it are from.
function withMarks(told) {
  const marks = (told.sentences ?? []).flatMap((sentence) => (sentence.attributions ?? []).map((each) => ({ ...each, sentence })));
  const spans = marks.map((mark) => ({ mark, span: mark.marker })).filter(({ span }) => span).sort((one, other) => one.span[0] - other.span[0]);
  const at = offsets(told.text);
  const parts = [];
  let done = 0;
  for (const { mark, span } of spans) {
    const [from, to] = [at(span[0]), at(span[1])];
    if (from < done) continue;
    const id = mark.citation?.chunk_ids?.[0] ?? told.sources?.find(({ number }) => number === mark.number)?.chunk_ids?.[0];
    parts.push(told.text.slice(done, from));
    if (mark.problem) parts.push(h("span", { class: "none", title: PROBLEMS[mark.problem] ?? mark.problem }, told.text.slice(from, to)));
    else parts.push(id ? h("sup", {}, h("button", { "aria-label": `Source ${mark.number}`, onclick: () => openChunk(id) }, `[${mark.number}]`)) : told.text.slice(from, to));
    done = to;
  }
  return [...parts, told.text.slice(done)];
}

function list(found) {
  if (!found?.length) return null;
  return [h("h2", { style: { fontSize: "1rem", marginBlock: "24px 0" } }, "Sources"), h("ol", { class: "sources" }, found.map((source) => h("li", { value: source.number },
    h("button", { class: "link", onclick: () => openChunk(source.chunk_ids[0]) }, h("bdi", {}, source.title || source.document_id)),
    h("span", { class: "place" }, [" ", source.section_path?.join(" › "), pages(source.page_span, source.source ?? source.document_id)].filter(Boolean).join(" ")),
    (source.quotes ?? []).slice(0, 3).map((quote) => h("q", { dir: "auto" }, short(quote.text))))))];
}

function short(text) {
  const points = [...text];
  return points.length > 280 ? `${points.slice(0, 280).join("")}…` : text;
}

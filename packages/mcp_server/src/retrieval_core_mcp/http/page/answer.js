import { Problem, stream } from "./api.js";
import { fill, h, offsets, say } from "./dom.js";
import { pages, problems, without } from "./passages.js";
import { change, openChunk, question } from "./state.js";

const KINDS = { extracted: "In the documents' own words; no language model is configured.", abstained: "The documents do not seem to tell that.", generated: "" };
let history = [];

// An answer as it comes, with its sources beside it; the turns before are asked with it.
export async function answer(panel, state, signal) {
  const stopper = new AbortController();
  signal.addEventListener("abort", () => stopper.abort());
  const text = h("div", { class: "answer", dir: "auto" });
  const sources = h("div", {});
  const state_of = h("p", { class: "quiet", role: "status" }, "Searching…");
  const stop = h("button", { onclick: () => stopper.abort() }, "Stop");
  fill(panel, turns(), text, h("p", { class: "actions" }, stop), state_of, sources);
  let written = "";
  let done = null;
  try {
    await stream("/v1/answer", question(state, history.length ? { history } : {}), (event) => {
      if (event.type === "retrieval_done") {
        state_of.textContent = "Writing…";
        fill(sources, list(event.passages));
      } else if (event.type === "answer_chunk") {
        written += event.content;
        text.textContent = written;
      } else if (event.type === "error") {
        throw new Problem(503, [event.reason]);
      } else if (event.type === "done") {
        done = event.answer;
      }
    }, stopper.signal);
    if (!done) throw new Problem(0, ["The connection was lost before the answer was complete."]);
    finished(done);
  } catch (problem) {
    if (signal.aborted) return;
    state_of.textContent = problem.name === "AbortError" ? (written ? "Stopped. This is what was written until then." : "Stopped.") : written ? "It breaks off here." : "";
    if (problem.name !== "AbortError") state_of.after(...problems(problem));
  }
  stop.remove();

  function finished(told) {
    fill(text, withMarks(told));
    fill(sources, list(told.sources));
    state_of.textContent = KINDS[told.kind] ?? "";
    state_of.after(...without(told));
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
    parts.push(id ? h("sup", {}, h("button", { "aria-label": `Source ${mark.number}`, onclick: () => openChunk(id) }, `[${mark.number}]`)) : told.text.slice(from, to));
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

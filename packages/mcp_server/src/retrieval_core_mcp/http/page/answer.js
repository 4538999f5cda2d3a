// The answer to a question, asked once, with its citations, its doubts and the line of trust.

import { Problem, stream } from "./api.js";
import { bdi, copyButton, h, say } from "./dom.js";
import { opening, questionOf } from "./query.js";
import { reading } from "./reading.js";
import { fallbacks, nameOf, openChunk, problems } from "./results.js";
import { once, turnsOf } from "./store.js";
import { shorten } from "./text.js";
import { copyOf, kindOf, marksOf, summaryOfDoubts, trustOf } from "./verdict.js";
import { DOUBTS, FAILURES, TEXT, citationOf } from "./words.js";

const MOST_QUOTED = 600;

// Return the record of an answer: its value has `written`, the `sentences` of it that are complete, `passages`, and at
// the end `done`.
export function answered(state) {
  const history = turnsOf(state.talk);
  const asked = questionOf(state, history.length ? { history } : {});
  return once("answer", asked, async (signal, keep) => {
    const made = { written: "", sentences: [] };
    const take = (event) => {
      if (event.type === "retrieval_done") made.passages = event.passages;
      else if (event.type === "answer_chunk") made.written += event.content;
      else if (event.type === "citation") made.sentences.push(event);
      else if (event.type === "error") made.error = event.reason;
      else if (event.type === "done") made.done = event.answer;
      keep(made);
    };
    await stream("/v1/answer", asked, take, signal);
    if (!made.done) throw new Problem("interrupted", [made.error ?? FAILURES.interrupted]);
    say(TEXT.complete);
  });
}

export function numbersOf(record) {
  const sources = record?.value?.done?.sources ?? [];
  return new Map(sources.flatMap(({ number, chunk_ids: ids }) => ids.map((id) => [id, number])));
}

// Draw an answer. `found` are the results below it, which show their failures.
export function answer(state, { value = {}, problem, isOver, stop }, found = {}) {
  const { written = "", sentences, passages, done } = value;
  // As high as a short answer from the beginning, so the results below it stay. No answer is one sentence.
  const isBrief = found.relevance?.unlikely || done?.kind === "abstained";
  const told = (words) => words && h("p.quiet", { role: "status" }, words);
  const begun = () => [
    text(state, { kind: "begun", text: written, sentences }, passages),
    !isOver && h("div.actions", h("button", { id: "stop", onclick: stop }, TEXT.stop), told(TEXT.answering)),
    problem && [told(problem.isCancelled ? TEXT.stopped : written && TEXT.brokenOff), problems(problem)],
  ];
  return h(
    isBrief ? "section.answered" : "section.answered.is-roomy",
    { "aria-label": TEXT.answer },
    turns(state),
    done ? finished(state, done, found) : begun(),
  );
}

function finished(state, done, found) {
  const failed = fallbacks(done, found.degraded);
  if (done.kind === "abstained") return [h("div.answer", TEXT.noAnswer(found.relevance?.unknown ?? [])), failed];
  const { relevance, confidence } = done;
  const reasons = [
    relevance?.value != null && TEXT.relevance(relevance.value),
    confidence?.explanation || relevance?.explanation,
  ].filter(Boolean);
  const doubts = summaryOfDoubts(done);
  return [
    text(state, done, done.passages),
    [kindOf(done), done.error].map((each) => each && h("p.quiet.small", each)),
    done.note && h("p.notice", done.note),
    h(
      "div.row.trust.small.soft",
      doubts && [h("strong.problem", doubts), " · "],
      h("span.confidence", trustOf(done)),
      reasons.length > 0 && tip(h("button.chip", { "aria-label": TEXT.whyTrusted }, "?"), reasons.join(" ")),
      copyButton(TEXT.copyAnswer, () => copyOf(done, (source) => indexOf(state, source))),
    ),
    failed,
  ];
}

// The text of an answer. Only the numbers that the service names as sources are drawn as such: it may quote others.
function text(state, answer, passages) {
  const doubt = ({ problem, reason, quote }, inner, isFirst) => {
    const kind = `span.doubt.is-${problem}`;
    if (!isFirst) return h(kind, inner);
    return tip(h(kind, { tabIndex: 0, role: "note" }, inner), [h("span.problem", reason), quote && quoted(quote)]);
  };
  const draw = { doubt, chip: (mark, _inner, isFirst) => isFirst && chip(state, mark) };
  const shown = reading(answer.text, { marks: marksOf(answer, passages), draw, level: 2 });
  return h(`div.answer.is-${answer.kind}`, { dir: "auto" }, shown);
}

const indexOf = (state, { chunk_ids: [id] }) => opening(state, id ?? "").of;

// The number of a source. It can be of none: there is no such passage, or it supports nothing.
function chip(state, { number, source, problem }) {
  const doubt = DOUBTS[problem];
  const kind = `button.chip${problem ? ".none" : ""}${source ? "" : ".is-invented"}`;
  const quote = source?.quotes?.[0];
  const more = {
    "aria-label": source ? TEXT.openSource(number, nameOf(source)) : `[${number}] ${doubt}`,
    onclick: source && (() => openChunk(state, source.chunk_ids[0], undefined, quote?.span?.join("-"))),
  };
  return tip(h(kind, more, `[${number}]`), [
    source && h("span.small.soft", bdi(citationOf({ ...source, index: indexOf(state, source) }))),
    quote && quoted(quote.text),
    doubt && h("span.problem", doubt),
  ]);
}

function quoted(text) {
  return h("div.quoted", { dir: "auto" }, reading(shorten(text, MOST_QUOTED), { isBare: true }));
}

// Hide the quote that is shown, until another thing is pointed at or focused.
export function hideTip() {
  const shown = document.querySelectorAll(".cite:is(:hover, :focus-within):not(.is-quiet)");
  for (const each of shown) each.classList.add("is-quiet");
  return shown.length > 0;
}

let tips = 0;

function tip(button, told) {
  tips += 1;
  const id = `tip-${tips}`;
  button.setAttribute("aria-describedby", id);
  return h("span.cite", button, h("span.tip", { role: "tooltip", id }, told));
}

function turns(state) {
  const told = turnsOf(state.talk);
  const one = ({ role, content }) => h(role === "user" ? "p" : "p.soft", { dir: "auto" }, content);
  return told.length > 0 && h("details.small", h("summary", TEXT.earlier(told.length / 2)), told.map(one));
}

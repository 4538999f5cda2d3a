// The answer to a question, asked once, with its citations, its doubts and the line of trust.

import { Problem, stream } from "./api.js";
import { copyButton, h, say } from "./dom.js";
import { opening, questionOf } from "./query.js";
import { reading } from "./reading.js";
import { fallbacks, nameOf, openChunk, problems } from "./results.js";
import { once, turnsOf } from "./store.js";
import { shorten } from "./text.js";
import { copyOf, kindOf, marksOf, summaryOfDoubts, trustOf } from "./verdict.js";
import { DOUBTS, FAILURES, TEXT, citationOf } from "./words.js";

const MOST_QUOTED = 600;

// Return the record of an answer: its value has `written`, the `sentences` of it that are complete, `passages`,
// `relevance`, and at the end `done` and `took`.
export function answered(state) {
  const history = turnsOf(state.talk);
  const asked = questionOf(state, history.length ? { history } : {});
  return once("answer", asked, async (signal, keep) => {
    const began = performance.now();
    let made = { written: "", sentences: [], passages: null, relevance: null, done: null };
    await stream(
      "/v1/answer",
      asked,
      (event) => {
        if (event.type === "retrieval_done") {
          made = { ...made, passages: event.passages ?? [], relevance: event.relevance ?? null };
        } else if (event.type === "answer_chunk") made = { ...made, written: made.written + event.content };
        else if (event.type === "citation") made = { ...made, sentences: [...made.sentences, event] };
        else if (event.type === "error") made = { ...made, error: event.reason };
        else if (event.type === "done") made = { ...made, done: event.answer, took: performance.now() - began };
        else return;
        keep(made);
      },
      signal,
    );
    if (!made.done) throw new Problem("interrupted", [made.error ?? FAILURES.interrupted]);
    say(TEXT.complete);
  });
}

export function numbersOf(record) {
  const sources = record?.value?.done?.sources ?? [];
  return new Map(sources.flatMap(({ number, chunk_ids: ids }) => ids.map((id) => [id, number])));
}

// Draw an answer. `found` are the results below it, which show their failures.
export function answer(state, record, found = {}) {
  const { written = "", sentences, done, passages } = record.value ?? {};
  // As high as a short answer from the beginning, so the results below it stay. No answer is one sentence.
  const isBrief = found.relevance?.unlikely || done?.kind === "abstained";
  const box = (...inside) =>
    h("section", { class: `answered${isBrief ? "" : " is-roomy"}`, "aria-label": TEXT.answer }, turns(state), inside);
  if (done) return box(finished(state, record.value, found));
  const isWaiting = !record.isOver;
  const stop = h(
    "p",
    { class: "actions" },
    h("button", { type: "button", id: "stop", onclick: record.stop }, TEXT.stop),
    h("span", { class: "quiet", role: "status" }, TEXT.answering),
  );
  const end = record.problem && (record.problem.isCancelled ? TEXT.stopped : written && TEXT.brokenOff);
  return box(
    h("div", { class: "answer", dir: "auto" }, draft(state, { text: written, sentences }, passages)),
    isWaiting && stop,
    end && h("p", { class: "quiet", role: "status" }, end),
    record.problem && problems(record.problem),
  );
}

function finished(state, { done, passages, relevance, took }, { degraded, relevance: judged }) {
  if (done.kind === "abstained")
    return [h("div", { class: "answer" }, TEXT.noAnswer(judged?.unknown ?? [])), fallbacks(done, degraded)];
  const trust = trustOf(done, { relevance: relevance?.value, milliseconds: took });
  // What is known of the results is in Why.
  const explanation = (done.confidence?.explanation ?? "").replace(relevance?.explanation ?? "", "").trim();
  const doubts = summaryOfDoubts(done);
  const note = [kindOf(done), done.error].filter(Boolean);
  return [
    h("div", { class: `answer is-${done.kind}`, dir: "auto" }, text(state, done, passages ?? [])),
    note.map((each) => h("p", { class: "quiet small" }, each)),
    done.note && h("p", { class: "notice" }, done.note),
    h(
      "div",
      { class: "trust small soft" },
      doubts && [h("strong", { class: "problem" }, doubts), " · "],
      h("span", { class: "confidence" }, trust.join(" · ")),
      explanation &&
        tip(h("button", { type: "button", class: "chip", "aria-label": TEXT.whyTrusted }, "?"), explanation),
      h("span", { class: "grow" }),
      copyButton(TEXT.copyAnswer, () => copyOf(done, (source) => indexOf(state, source))),
    ),
    fallbacks(done, degraded),
  ];
}

// Only the numbers that the service names as sources are drawn as such: a text may quote others, such as "[3]".
function draft(state, begun, passages) {
  const draw = { chip: (mark, _inner, { isFirst }) => isFirst && chip(state, mark) };
  const marks = marksOf(begun, passages ?? []).filter(({ kind }) => kind === "chip");
  return reading(begun.text, { marks, draw, level: 2 });
}

function text(state, done, passages) {
  const draw = {
    doubt(mark, inner, { isLast }) {
      const kind = `doubt is-${mark.problem}`;
      if (!isLast) return h("span", { class: kind }, inner);
      const reason = [h("span", { class: "problem" }, mark.reason), mark.quote && quoted(mark.quote)];
      return tip(h("span", { class: kind, tabIndex: 0, role: "note" }, inner), reason);
    },
    invented: (mark, _inner, { isFirst }) => isFirst && invented(mark),
    chip: (mark, _inner, { isFirst }) => isFirst && chip(state, mark),
  };
  return reading(done.text, { marks: marksOf(done, passages), draw, level: 2 });
}

// A number that is no source: there is no such passage, or it supports nothing.
function invented({ number, problem }) {
  const told = DOUBTS[problem] ?? DOUBTS.unknown;
  const kind = `chip none${told === DOUBTS.unknown ? " is-invented" : ""}`;
  return tip(h("button", { type: "button", class: kind, "aria-label": `[${number}] ${told}` }, `[${number}]`), told);
}

const indexOf = (state, { chunk_ids: [id] }) => opening(state, id ?? "").of;

function chip(state, { number, source, problem }) {
  const quote = source.quotes?.[0];
  const label = TEXT.openSource(number, nameOf(source));
  const at = quote?.span ? quote.span.join("-") : "";
  const button = h(
    "button",
    {
      type: "button",
      class: `chip${problem ? " none" : ""}`,
      "aria-label": label,
      onclick: () => openChunk(state, source.chunk_ids[0], undefined, at),
    },
    `[${number}]`,
  );
  return tip(button, [
    h("span", { class: "place" }, h("bdi", {}, citationOf({ ...source, index: indexOf(state, source) }))),
    quote && quoted(quote.text),
    problem && h("span", { class: "problem" }, DOUBTS[problem]),
  ]);
}

function quoted(text) {
  return h("div", { class: "quoted", dir: "auto" }, reading(shorten(text, MOST_QUOTED), { isBare: true }));
}

let tips = 0;

function tip(button, told) {
  tips += 1;
  const id = `tip-${tips}`;
  button.setAttribute("aria-describedby", id);
  return h("span", { class: "cite" }, button, h("span", { class: "tip", role: "tooltip", id }, told));
}

function turns(state) {
  const told = turnsOf(state.talk);
  if (!told.length) return null;
  return h(
    "details",
    { class: "turns small" },
    h("summary", {}, TEXT.earlier(told.length / 2)),
    told.map(({ role, content }) => h("p", { class: role === "user" ? "" : "soft", dir: "auto" }, content)),
  );
}

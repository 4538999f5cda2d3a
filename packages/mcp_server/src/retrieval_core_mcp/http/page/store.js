// The one store: what is asked is in the address, what came of it is in the session. Views draw both.

import { Problem, authorize, get } from "./api.js";
import { searchOf, stateOf } from "./query.js";

const TOKEN = "retrieval-token";
const TALK = "retrieval-talk-";
const MOST_KEPT = 60;
const MOST_TURNS = 20;
const kept = new Map();
const revisions = new Map();
let isRefused = false;
let isAwaited = false;

authorize(
  () => sessionStorage.getItem(TOKEN),
  () => {
    isRefused = true;
    changed();
  },
);
addEventListener("popstate", changed);

// `retrieval open` passes its token behind the #, which no server sees; it stays in this tab only.
export function takeToken() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given === null) return;
  keepToken(given);
  history.replaceState(null, "", location.pathname + location.search);
}

export function keepToken(token) {
  sessionStorage.setItem(TOKEN, token);
  isRefused = false;
  forget();
}

export const wantsToken = () => isRefused;
export const hasToken = () => Boolean(sessionStorage.getItem(TOKEN));

export const read = () => stateOf(location.search);
export const addressOf = (state) => searchOf(state) || location.pathname;

export function change(values) {
  const next = addressOf({ ...read(), ...values });
  if (next === addressOf(read())) return;
  history.pushState(null, "", next);
  for (const record of kept.values()) {
    if (kept.size <= MOST_KEPT) break; // only here, so nothing goes that is drawn now
    if (record.isOver) drop(record);
  }
  changed();
}

export function changed() {
  if (isAwaited) return;
  isAwaited = true;
  queueMicrotask(() => {
    isAwaited = false;
    dispatchEvent(new Event("changed"));
  });
}

// Return what became of something that is asked once: `{ value, problem, isOver, stop }`. `make` gets a signal and a
// function that keeps a value so far. A view that goes away doesn't end it.
export function once(name, asked, make) {
  const key = JSON.stringify([name, asked]);
  const known = kept.get(key);
  if (known) {
    kept.delete(key);
    kept.set(key, known); // the last that was used is the last to go
    return known;
  }
  const stopper = new AbortController();
  const record = { name, key, problem: null, isOver: false, revision: 0, stop: () => stopper.abort() };
  const tell = (values) => {
    Object.assign(record, values);
    record.revision += 1;
    revise(name);
    changed();
  };
  kept.set(key, record);
  (async () => {
    try {
      const value = await make(stopper.signal, (soFar) => tell({ value: soFar }));
      tell({ value: value ?? record.value, isOver: true });
    } catch (error) {
      tell({ problem: Problem.of(error), isOver: true });
    }
  })();
  return record;
}

export function fetched(name, path, query = {}) {
  return once(name, [path, query], (signal) => get(path, query, signal));
}

export function drop(record) {
  if (kept.get(record.key) === record) kept.delete(record.key);
  record.stop();
  if (record.value?.picture) URL.revokeObjectURL(record.value.picture);
}

export function revisionOf(...names) {
  return names.reduce((sum, name) => sum + (revisions.get(name) ?? 0), 0);
}

function revise(name) {
  revisions.set(name, revisionOf(name) + 1);
}

// Forget what was asked under some names, or all, so that it is asked again.
export function forget(...names) {
  for (const record of kept.values()) {
    if (names.length && !names.includes(record.name)) continue;
    drop(record);
    revise(record.name);
  }
  changed();
}

// The turns of a conversation, which `talk` in the address names. A reload keeps them, another tab doesn't see them.
export function turnsOf(talk) {
  try {
    return JSON.parse(sessionStorage.getItem(TALK + talk)) ?? [];
  } catch {
    return [];
  }
}

// Keep a conversation with one more turn and return its id. Each turn has its own id, so Back shows the one before.
export function addTurn(talk, question, answer) {
  const turns = [...turnsOf(talk), { role: "user", content: question }, { role: "assistant", content: answer }];
  const id = crypto.getRandomValues(new Uint32Array(2)).join("-");
  try {
    sessionStorage.setItem(TALK + id, JSON.stringify(turns.slice(-MOST_TURNS)));
  } catch {
    return ""; // the tab's storage is full
  }
  return id;
}

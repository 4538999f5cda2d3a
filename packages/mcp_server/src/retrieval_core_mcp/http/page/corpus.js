// What is searched: the indexes, their size, state and fields, each asked once; and the header that names it.

import { get, part } from "./api.js";
import { bdi, h, link, select } from "./dom.js";
import { CLOSED, mergeFields, several } from "./query.js";
import { change, forget, once } from "./store.js";
import { MODES, TEXT, chunks, documents } from "./words.js";

const AGAIN_AFTER = 5_000;
const LAST_AFTER = 300_000;

// Return the record of the indexes. While one is being indexed and the tab is visible, it is read again: every few
// seconds, more rarely while nothing changes, and after about a quarter of an hour without a change no more.
export function indexes() {
  return once("indexes", [], async (signal, keep) => {
    let found = await get("/v1/indexes", {}, signal);
    let [told, pause] = ["", AGAIN_AFTER];
    while (found.indexes.some(isIndexing) && !signal.aborted) {
      const isNew = told !== JSON.stringify(found);
      pause = isNew ? AGAIN_AFTER : pause * 1.5;
      if (pause > LAST_AFTER) return { ...found, isStuck: true };
      if (isNew) keep(found);
      told = JSON.stringify(found);
      await new Promise((resolve) => setTimeout(resolve, pause));
      if (document.hidden)
        await new Promise((resolve) => addEventListener("visibilitychange", resolve, { once: true }));
      found = await get("/v1/indexes", {}, signal).catch(() => found);
    }
    return found;
  });
}

function isIndexing({ points_count: total, indexed_vectors_count: embedded, vector_size: width }) {
  return width > 0 && total > 0 && embedded < total;
}

export function asked(state, all) {
  if (several(state).length) return several(state);
  return [state.index || all[0]?.name].filter(Boolean);
}

export function contents(name) {
  return once("contents", [name], (signal) => get(`/v1/indexes/${part(name)}/fields`, {}, signal));
}

export function forgetContents() {
  forget("indexes", "contents", "documents", "search", "answer");
}

// Return the fields of all indexes that a state asks, or null while they are not known.
export function fieldsOf(state) {
  const all = indexes();
  if (!all.value) return { fields: null, problem: all.problem };
  const records = asked(state, all.value.indexes).map(contents);
  const problem = records.find((record) => record.problem)?.problem ?? null;
  if (problem || records.some(({ value }) => !value)) return { fields: null, problem };
  return { fields: mergeFields(records.flatMap(({ value }) => value.fields)), problem: null };
}

export function unusable(info) {
  if (info?.status === "red") return TEXT.red;
  return info?.points_count === 0 ? TEXT.empty : "";
}

export function notice(state) {
  const all = indexes().value?.indexes ?? [];
  const told = unusable(all.find(({ name }) => name === asked(state, all)[0]));
  return told && h("p", { class: "notice" }, told);
}

export function corpus(state) {
  const all = indexes().value?.indexes ?? [];
  const names = asked(state, all);
  const infos = all.filter(({ name }) => names.includes(name));
  if (!infos.length) return null;
  const sum = (values) =>
    values.every((value) => value != null) ? values.reduce((one, other) => one + other, 0) : null;
  const found = sum(names.map((name) => contents(name).value?.documents));
  const total = sum(infos.map(({ points_count: number }) => number));
  const waiting = infos.filter(isIndexing);
  const embedded = sum(waiting.map(({ indexed_vectors_count: number }) => number));
  const wanted = sum(waiting.map(({ points_count: number }) => number));
  const facts = [
    [found !== null && documents(found)],
    [total !== null && chunks(total), "wide"],
    [waiting.length > 0 && TEXT.embedding(`${Math.floor((embedded / wanted) * 100)}%`, indexes().value.isStuck)],
  ].filter(([text]) => text);
  const told = facts.map(([text, kind], place) => h("span", { class: kind }, `${place ? " ·" : ""} ${text}`));
  const which = () =>
    h("span", {}, " ", link(TEXT.ofIndexes(names.length, all.length), openSettings, { class: "link small" }));
  const name = h("strong", {}, bdi(corpusName(names, all)));
  return [name, ...(all.length > 1 ? [which()] : []), h("span", { class: "soft" }, told)];
}

function openSettings() {
  const menu = document.querySelector("details.menu");
  menu.open = true;
  menu.querySelector("fieldset input")?.focus();
}

export function corpusName(names, all) {
  if (names.length === 1) return contents(names[0]).value?.name ?? names[0];
  return names.length === all.length ? TEXT.allIndexes : TEXT.someIndexes(names.length);
}

export function settings(state) {
  const all = indexes().value?.indexes ?? [];
  const names = asked(state, all);
  const mode = select(TEXT.searchBy, Object.entries(MODES), state.mode, (value) => change({ mode: value }), {
    id: "mode",
  });
  const top = h("input", {
    type: "number",
    id: "top",
    min: 1,
    max: 100,
    value: state.top,
    placeholder: "5",
    "aria-label": TEXT.resultCount,
    onchange: ({ target }) => target.checkValidity() && change({ top: target.value }),
  });
  const box = ({ name }) =>
    h(
      "label",
      {},
      h("input", {
        type: "checkbox",
        id: `index-${name}`,
        value: name,
        checked: names.includes(name),
        onchange: (event) => choose(event, all),
      }),
      " ",
      bdi(name),
    );
  return [
    h("label", {}, TEXT.searchBy, " ", mode),
    h("label", {}, TEXT.resultCount, " ", top),
    all.length > 1 && h("fieldset", { id: "which" }, h("legend", {}, TEXT.chosenIndexes), all.map(box)),
  ];
}

// One index, or several that are searched as one; the last one can't be left out.
function choose({ target }, all) {
  const isAlone = (name) => /[\s:]/.test(name); // whose name can't stand before an id
  const { value: last, checked } = target;
  const boxes = [...target.closest("fieldset").querySelectorAll(":checked")].map(({ value }) => value);
  const chosen = boxes.filter((name) => !(checked && (isAlone(last) || isAlone(name))) || name === last);
  if (!chosen.length) {
    target.checked = true;
    return;
  }
  const one = chosen.length === 1 && chosen[0] !== all[0].name ? chosen[0] : "";
  change({ index: one, indexes: chosen.length > 1 ? chosen.join(" ") : "", ...CLOSED, filters: "", talk: "" });
}

// The public API of the service. Whatever fails is a `Problem`.

import { FAILURES } from "./words.js";

const KINDS = {
  __proto__: null,
  400: "request",
  401: "token",
  403: "token",
  404: "missing",
  422: "request",
  429: "busy",
  503: "busy",
};

// The one error of the page. `kind` is one of: unreachable, interrupted, unreadable, cancelled, token, missing,
// request, busy, failed. `messages` are for people, the most important first.
export class Problem extends Error {
  constructor(kind, messages = [FAILURES[kind]], status = 0) {
    super(messages[0]);
    this.name = "Problem";
    this.kind = kind;
    this.messages = messages;
    this.status = status;
  }

  get isCancelled() {
    return this.kind === "cancelled";
  }

  get canRetry() {
    return ["unreachable", "interrupted", "busy", "failed"].includes(this.kind);
  }

  // Return what was thrown as a problem: a request that was aborted is cancelled, all else is unreadable.
  static of(error, otherwise = "unreadable") {
    if (error instanceof Problem) return error;
    return new Problem(error?.name === "AbortError" ? "cancelled" : otherwise);
  }
}

let token = () => "";
let refuse = () => {};

// Say where the token comes from, and what happens if the service refuses it.
export function authorize(read, refused) {
  [token, refuse] = [read, refused];
}

async function request(path, { headers, ...options } = {}) {
  const given = token();
  let response;
  try {
    const all = { ...(given ? { Authorization: `Bearer ${given}` } : {}), ...headers };
    response = await fetch(path, { ...options, headers: all, cache: "no-store" });
  } catch (error) {
    throw Problem.of(error, "unreachable");
  }
  if (response.ok) return response;
  const told = await response.json().catch(() => null);
  const messages = told?.errors?.length ? told.errors : [FAILURES.status(response.status)];
  const problem = new Problem(KINDS[response.status] ?? "failed", messages, response.status);
  if (response.status === 401) refuse(problem);
  throw problem;
}

async function json(response) {
  try {
    return await response.json();
  } catch (error) {
    throw Problem.of(error);
  }
}

export async function get(path, query = {}, signal) {
  return json(await request(address(path, query), { signal }));
}

export async function post(path, body, signal) {
  const headers = { "Content-Type": "application/json" };
  return json(await request(path, { method: "POST", body: JSON.stringify(without(body)), headers, signal }));
}

export async function remove(path, query) {
  return json(await request(address(path, query), { method: "DELETE" }));
}

export async function picture(path, query, signal) {
  const response = await request(address(path, query), { signal });
  try {
    return URL.createObjectURL(await response.blob());
  } catch (error) {
    throw Problem.of(error, "interrupted");
  }
}

// Call `take` with each event of a stream, until it ends. The body is an object, or a file.
export async function stream(path, body, take, signal) {
  const isFile = body instanceof Blob;
  const headers = { "Content-Type": isFile ? "application/octet-stream" : "application/json" };
  const content = isFile ? body : JSON.stringify(without(body));
  const response = await request(path, { method: "POST", body: content, headers, signal });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const part = await reader.read().catch((error) => {
      throw Problem.of(error, "interrupted");
    });
    if (part.done) return;
    const blocks = (rest + part.value).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const event = eventOf(block);
      if (event) take(event);
    }
  }
}

export function eventOf(block) {
  const lines = block.split("\n").filter((line) => line.startsWith("data: "));
  if (!lines.length) return null;
  try {
    return JSON.parse(lines.map((line) => line.slice(6)).join("\n"));
  } catch (error) {
    throw Problem.of(error);
  }
}

export function address(path, query) {
  const parameters = new URLSearchParams(Object.entries(without(query)));
  return parameters.size ? `${path}?${parameters}` : path;
}

function without(values) {
  const isGiven = ([, value]) => value != null && value !== "";
  return Object.fromEntries(Object.entries(values).filter(isGiven));
}

export const part = encodeURIComponent;

// The public API of the service. Whatever fails is a `Problem`.

import { FAILURES } from "./words.js";

const KINDS = { 400: "request", 401: "token", 403: "token", 404: "missing", 422: "request", 429: "busy", 503: "busy" };

// The one error of the page. `kind` is one of: unreachable, interrupted, unreadable, cancelled, token, missing,
// request, busy, failed. `messages` are for people, the most important first.
export class Problem extends Error {
  constructor(kind, messages = [FAILURES[kind]]) {
    super(messages[0]);
    this.name = "Problem";
    this.kind = kind;
    this.messages = messages;
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

const failing = (kind) => (error) => {
  throw Problem.of(error, kind);
};

let token = () => "";
let refuse = () => {};

// Say where the token comes from, and what happens if the service refuses it.
export function authorize(read, refused) {
  [token, refuse] = [read, refused];
}

// The body is an object, or a file.
async function request(path, { body, ...options }) {
  const headers = {};
  if (token()) headers.Authorization = `Bearer ${token()}`;
  const all = { ...options, headers, cache: "no-store" };
  if (body) {
    const isFile = body instanceof Blob;
    headers["Content-Type"] = isFile ? "application/octet-stream" : "application/json";
    Object.assign(all, { method: "POST", body: isFile ? body : JSON.stringify(without(body)) });
  }
  const response = await fetch(path, all).catch(failing("unreachable"));
  if (response.ok) return response;
  const told = await response.json().catch(() => null);
  if (response.status === 401) refuse();
  const messages = told?.errors?.length ? told.errors : [FAILURES.status(response.status)];
  throw new Problem(KINDS[response.status] ?? "failed", messages);
}

async function json(path, options) {
  const response = await request(path, options);
  return response.json().catch(failing("unreadable"));
}

export const get = (path, query, signal) => json(address(path, query), { signal });
export const post = (path, body, signal) => json(path, { body, signal });
export const remove = (path, query) => json(address(path, query), { method: "DELETE" });

export async function picture(path, query, signal) {
  const response = await request(address(path, query), { signal });
  return URL.createObjectURL(await response.blob().catch(failing("interrupted")));
}

// Call `take` with each event of a stream, until it ends.
export async function stream(path, body, take, signal) {
  const response = await request(path, { body, signal });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read().catch(failing("interrupted"));
    if (done) return;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    blocks.map(eventOf).filter(Boolean).forEach(take);
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

export function address(path, query = {}) {
  const parameters = new URLSearchParams(without(query));
  return parameters.size ? `${path}?${parameters}` : path;
}

export function without(values) {
  const isGiven = ([, value]) => value != null && value !== "";
  return Object.fromEntries(Object.entries(values).filter(isGiven));
}

export const part = encodeURIComponent;

// The public API of the service, and what goes wrong with it, in words for the page.

const TOKEN = "retrieval-token";

// `retrieval open` hands its token over behind the #, which no server sees; it stays in this tab alone.
export function takeToken() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given === null) return false;
  sessionStorage.setItem(TOKEN, given);
  history.replaceState(history.state, "", location.pathname + location.search);
  return true;
}

export function hasToken() {
  return Boolean(sessionStorage.getItem(TOKEN));
}

export function keepToken(token) {
  sessionStorage.setItem(TOKEN, token);
}

export class Problem extends Error {
  constructor(status, messages) {
    super(messages[0]);
    this.status = status;
    this.messages = messages;
  }
}

function headers(more) {
  const token = sessionStorage.getItem(TOKEN);
  return { ...(token ? { Authorization: `Bearer ${token}` } : {}), ...more };
}

async function request(path, options) {
  let response;
  try {
    response = await fetch(path, { ...options, headers: headers(options?.headers), cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, ["The service cannot be reached. It may have ended: look at the window that it was started in."]);
  }
  if (response.ok) return response;
  if (response.status === 401) dispatchEvent(new Event("unauthorized"));
  let messages = [`The service answered with ${response.status}.`];
  try {
    const told = await response.json();
    if (told.errors?.length) messages = told.errors;
  } catch {
    // What is no JSON has nothing to tell.
  }
  throw new Problem(response.status, messages);
}

export async function get(path, query = {}, signal) {
  return (await request(address(path, query), { signal })).json();
}

export async function post(path, body, signal) {
  const content = JSON.stringify(without(body));
  const response = await request(path, { method: "POST", body: content, headers: { "Content-Type": "application/json" }, signal });
  return response.json();
}

export async function remove(path, query) {
  return (await request(address(path, query), { method: "DELETE" })).json();
}

export async function picture(path, query, signal) {
  return URL.createObjectURL(await (await request(address(path, query), { signal })).blob());
}

// Calls `take` with each event of a stream, until it ends or the signal says stop. The body is an object, or a file.
export async function stream(path, body, take, signal) {
  const [content, kind] = body instanceof Blob ? [body, "application/octet-stream"] : [JSON.stringify(without(body)), "application/json"];
  const response = await request(path, { method: "POST", body: content, headers: { "Content-Type": kind }, signal });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    let part;
    try {
      part = await reader.read();
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Problem(0, ["The connection was lost before the answer was complete."]);
    }
    if (part.done) return;
    rest += part.value;
    const blocks = rest.split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const data = block.split("\n").filter((line) => line.startsWith("data: ")).map((line) => line.slice(6)).join("\n");
      if (data) take(JSON.parse(data));
    }
  }
}

export function address(path, query) {
  const parameters = new URLSearchParams(Object.entries(without(query)));
  return parameters.size ? `${path}?${parameters}` : path;
}

function without(values) {
  return Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined && value !== null && value !== ""));
}

export const part = encodeURIComponent;

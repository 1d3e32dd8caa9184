// The admin API: requests with the token of the user, to the broker that the user has chosen. Both are kept for this tab only.

const kept = (key) => ({
  get: () => sessionStorage.getItem(key),
  set: (text) => sessionStorage.setItem(key, text),
  forget: () => sessionStorage.removeItem(key),
});

export const token = kept("barid.token");

/** The name of the broker that answers; `null`: the one that serves the dashboard; `ALL`: that one, but the overview is of all. */
export const broker = kept("barid.broker");
export const ALL = "*";

/** Why a request failed, as a sentence. `status` is 0 if there was no answer. */
export class Problem extends Error {
  constructor(status, sentence) {
    super(sentence);
    this.status = status;
  }
}

/** A path with names in it, which are percent-encoded: path`/v1/tenants/${tenant}`. */
export function path(parts, ...names) {
  const encoded = names.map((name) => {
    // A browser would remove such a segment, and ask for something else.
    if (name === "." || name === "..") throw new Problem(0, `a browser cannot ask for the name "${name}": use the commands of barid`);
    return encodeURIComponent(name);
  });
  return parts.reduce((text, part, place) => text + encoded[place - 1] + part);
}

/** Adds a query. Parameters that are empty are left out. */
export function query(base, parameters) {
  const given = Object.entries(parameters).filter(([, value]) => value != null && value !== "");
  return given.length === 0 ? base : `${base}?${new URLSearchParams(given)}`;
}

async function ask(method, target, { body, signal, headers = {}, of = broker.get() } = {}) {
  if (of != null && of !== ALL) headers["Barid-Broker"] = of;
  const shown = token.get();
  if (shown) headers.Authorization = `Bearer ${shown}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(target, { method, headers, signal, body: body === undefined ? undefined : JSON.stringify(body), cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, "the broker does not answer");
  }
  if (response.ok) return response;
  const refused = await response.json().catch(() => ({}));
  throw new Problem(response.status, refused.error ?? `the broker answered ${response.status}`);
}

/** Reads something; of another broker than the chosen one, if it is named. */
export async function get(target, signal, of) {
  return (await ask("GET", target, { signal, of })).json();
}

/** Reads a page of a list for a table: the rows are the `member` of the answer. */
export async function page(target, member, signal) {
  const answer = await get(target, signal);
  return { rows: answer[member], more: answer.next != null };
}

/** Reads something; `null` if it does not exist. */
export async function find(target, signal, of) {
  try {
    return await get(target, signal, of);
  } catch (problem) {
    if (problem.status === 404) return null;
    throw problem;
  }
}

/** The cluster as the broker that serves the dashboard sees it; `null`: there is none. For tokens of the whole broker. */
export async function clusterOf(signal) {
  const { cluster: name } = await get("/v1/broker", signal, null);
  return name == null ? null : get("/v1/cluster", signal, null);
}

/** Changes something. Returns the answer, or `null` if it has no body. */
export async function send(method, target, body, headers) {
  const text = await (await ask(method, target, { body, headers })).text();
  return text ? JSON.parse(text) : null;
}

/** Follows server-sent events until the signal: `seen` gets the name and the data of each. */
export async function follow(target, seen, signal) {
  const reader = (await ask("GET", target, { signal })).body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) throw new Problem(0, "the broker has ended the stream");
    const events = (text + value).split("\n\n");
    text = events.pop();
    for (const event of events) {
      const lines = event.split("\n");
      const of = (name) => lines.find((line) => line.startsWith(name))?.slice(name.length);
      const data = of("data: ");
      if (data !== undefined) seen(of("event: "), JSON.parse(data));
    }
  }
}

/** Does something now and then again, while the page is visible and until the signal. */
export function every(milliseconds, signal, act) {
  const run = async () => {
    if (!document.hidden) await act();
    if (!signal.aborted) timer = setTimeout(run, milliseconds);
  };
  let timer = null;
  signal.addEventListener("abort", () => clearTimeout(timer));
  return run();
}

// A stream of events that the user starts and stops.

import { follow, path, query } from "./api.js";
import { button } from "./dom.js";

/**
 * A button that follows a stream, and stops on the second press or with the signal.
 *
 * - `words`: the label while it does not follow, and while it does.
 * - `target`: returns the path of the stream.
 * - `begin`: is called before the first event; `seen`: gets the name and the data of each event.
 */
export function follower({ words: [start, stop], target, begin, seen, signal }) {
  let running = null;
  signal.addEventListener("abort", () => running?.abort());
  const control = button(start, async () => {
    if (running) {
      running.abort();
      return;
    }
    running = new AbortController();
    begin();
    control.textContent = stop;
    control.disabled = false;
    try {
      await follow(target(), seen, running.signal);
    } catch (problem) {
      if (problem.name !== "AbortError") throw problem;
    } finally {
      running = null;
      control.textContent = start;
    }
  });
  return control;
}

/** The stream of the messages that match a topic filter, at most so many each second. */
export const messagesOf = (tenant, filter, rate) => query(path`/v1/tenants/${tenant}/messages`, { filter, rate });

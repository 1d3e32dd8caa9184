// A stream of messages that the user starts and stops.

import { follow, path, query } from "./api.js";
import { button } from "./dom.js";

/**
 * A button that follows the messages of a topic filter, and stops on the second press or with the signal.
 *
 * - `words`: the label while it does not follow, and while it does.
 * - `filter`: the input with the topic filter; `rate`: the maximum number of messages each second.
 * - `begin`: is called before the first event; `seen`: gets the name and the data of each event.
 */
export function follower({ words: [start, stop], tenant, filter, rate, begin, seen, signal }) {
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
      await follow(query(path`/v1/tenants/${tenant}/messages`, { filter: filter.value, rate }), seen, running.signal);
    } catch (problem) {
      if (problem.name !== "AbortError") throw problem;
    } finally {
      running = null;
      control.textContent = start;
    }
  });
  return control;
}

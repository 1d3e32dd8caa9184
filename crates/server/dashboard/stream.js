// A stream of events that the user starts and stops.

import { follow, path, query } from "./api.js";
import { button, el } from "./dom.js";
import { number } from "./format.js";

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

/**
 * The newest items of a stream, in a list, and a sentence that counts them.
 *
 * - `most`: the number of items that stay in the list.
 * - `waiting`: the sentence before the first item; `items`: what follows their number.
 */
export function newest({ list, most, waiting, items }) {
  const status = el("p", { role: "status" });
  let count = 0, skipped = 0;
  const tell = () => {
    status.textContent = `${number(count)} ${items}${skipped ? `; ${number(skipped)} more were too many to show` : ""}`;
  };
  return {
    status,
    begin() {
      [count, skipped] = [0, 0];
      list.replaceChildren();
      status.textContent = waiting;
    },
    /** Shows an item, which is counted unless it only explains others. */
    add(element, isCounted = true) {
      if (isCounted) count += 1;
      list.prepend(element);
      if (list.childElementCount > most) list.lastChild.remove();
      tell();
    },
    skip(more) {
      skipped += more;
      tell();
    },
  };
}

/** The stream of the messages that match a topic filter, at most so many each second. */
export const messagesOf = (tenant, filter, rate) => query(path`/v1/tenants/${tenant}/messages`, { filter, rate });

// What happens in the broker: who comes and goes, what is denied, what operators change.

import { query } from "../api.js";
import { choice, el, field, named, section, visible } from "../dom.js";
import { number } from "../format.js";
import { follower } from "../stream.js";

/** Number of events that stay on the page. */
const SHOWN = 200;

/** Maximum number of events each second. */
const RATE = 100;

const KINDS = [["", "all"], ["connected,disconnected", "clients that come and go"], ["denied", "denials"], ["changed", "changes of operators"], ["member,shard", "brokers and shards"]];

/** The members that have columns of their own. */
const COLUMNS = ["at", "tenant", "client"];

export async function show(main, { tenant, isOfBroker, signal }) {
  const where = choice({}, [...(isOfBroker() ? [["", "all tenants"]] : []), [tenant, visible(tenant)]], isOfBroker() ? "" : tenant);
  const kinds = choice({}, KINDS, "");
  const status = el("p", { role: "status" });
  const rows = el("tbody", {});
  let count = 0, skipped = 0;

  function seen(kind, data) {
    if (kind === "skipped") skipped += data.events;
    else {
      count += 1;
      rows.prepend(row(kind, data));
      if (rows.childElementCount > SHOWN) rows.lastChild.remove();
    }
    status.textContent = `${number(count)} events${skipped ? `; ${number(skipped)} more were too many to show` : ""}`;
  }

  const begin = () => {
    [count, skipped] = [0, 0];
    rows.replaceChildren();
    status.textContent = "Waiting for events.";
  };
  const target = () => query("/v1/events", { rate: RATE, tenant: where.value || undefined, kinds: kinds.value || undefined });
  const control = follower({ words: ["Follow", "Stop"], target, begin, seen, signal });
  const head = el("thead", {}, el("tr", {}, ["Time", "What", "Tenant", "Client", "Details"].map((title) => el("th", { scope: "col" }, title))));
  main.append(section("As they happen",
    el("div", { class: "inline" }, field("Of", where), field("Kinds", kinds), control),
    status,
    el("div", { class: "scrolled", tabindex: "0", role: "region", "aria-label": "Events" }, el("table", {}, head, rows))));
  // Whoever opens the view wants to see them.
  control.click();
}

function row(kind, data) {
  const details = Object.entries(data).filter(([name, value]) => !COLUMNS.includes(name) && value != null).map(([name, value]) => `${name}: ${value}`).join(", ");
  return el("tr", {},
    el("td", {}, (data.at ?? "").slice(11, 23)),
    el("td", {}, kind),
    el("td", {}, data.tenant == null ? "–" : named(data.tenant)),
    el("td", {}, data.client == null ? "–" : named(data.client)),
    el("td", {}, visible(details)));
}

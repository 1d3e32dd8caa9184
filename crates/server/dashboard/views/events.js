// What happens in the broker: who comes and goes, what is denied, what operators change.

import { query } from "../api.js";
import { choice, el, field, named, section, visible } from "../dom.js";
import { follower, newest } from "../stream.js";

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
  const rows = el("tbody", {});
  const events = newest({ list: rows, most: SHOWN, waiting: "Waiting for events.", items: "events" });
  const seen = (kind, data) => (kind === "skipped" ? events.skip(data.events) : events.add(row(kind, data)));
  const target = () => query("/v1/events", { rate: RATE, tenant: where.value || undefined, kinds: kinds.value || undefined });
  const control = follower({ words: ["Follow", "Stop"], target, begin: events.begin, seen, signal });
  const head = el("thead", {}, el("tr", {}, ["Time", "What", "Tenant", "Client", "Details"].map((title) => el("th", { scope: "col" }, title))));
  main.append(section("As they happen",
    el("div", { class: "inline" }, field("Of", where), field("Kinds", kinds), control),
    events.status,
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

// Sessions, with and without a client, and what waits in them.

import { find, page, path, query, send } from "../api.js";
import { button, el, facts, named, section, sure, tell } from "../dom.js";
import { bytes, duration, number, time } from "../format.js";
import { table } from "../table.js";

const LISTED = 10000;

export async function show(main, around) {
  if (around.names[0] != null) return one(main, around, around.names[0]);
  const { tenant, link, signal } = around;
  const sessions = table({
    caption: "Sessions",
    search: "Search sessions",
    empty: "There are no sessions.",
    columns: [
      { title: "Client", of: (one) => one.client, show: (one) => el("a", { href: link("sessions", tenant, one.client) }, named(one.client)) },
      { title: "Connected", of: (one) => (one.connected ? "yes" : "no") },
      { title: "User", of: (one) => one.user, show: (one) => (one.user == null ? "–" : named(one.user)) },
      { title: "Durability", of: (one) => one.durability },
      { title: "Subscriptions", of: (one) => one.subscriptions, number: true },
      { title: "Waiting", of: (one) => one.queued_messages, show: (one) => number(one.queued_messages), number: true },
      { title: "Bytes", of: (one) => one.queued_bytes, show: (one) => bytes(one.queued_bytes), number: true },
      { title: "Waiting since", of: (one) => one.oldest_queued_at, show: (one) => time(one.oldest_queued_at) },
      { title: "In flight", of: (one) => one.in_flight, number: true },
    ],
    load: () => page(query(path`/v1/tenants/${tenant}/sessions`, { limit: LISTED }), "sessions", signal),
  });
  main.append(sessions.element);
  await sessions.refresh();
}

async function one(main, { tenant, link, may, signal }, name) {
  const found = await find(path`/v1/tenants/${tenant}/sessions/${name}`, signal);
  main.append(el("p", { class: "path" }, el("a", { href: link("sessions", tenant) }, "Sessions"), " › ", named(name)));
  if (found == null) {
    main.append(el("p", {}, "There is no such session."));
    return;
  }
  const end = async () => {
    if (!(await sure(`The session of ${name} ends, with ${number(found.queued_messages)} waiting messages and its subscriptions.`, "End the session"))) return;
    await send("DELETE", path`/v1/tenants/${tenant}/sessions/${name}`);
    tell(`The session of ${name} was ended.`);
    location.hash = link("sessions", tenant);
  };
  main.append(
    facts(
      ["Client", found.connected ? el("a", { href: link("client", tenant, "mqtt", name) }, "connected") : "not connected"],
      ["Protocol", found.protocol && `MQTT ${found.protocol}`],
      ["User", found.user && named(found.user)],
      ["Durability", found.durability === "local" ? "waiting messages are on disk" : "waiting messages are in memory only"],
      ["Lasts", found.expiry_seconds == null ? "for ever" : `${duration(found.expiry_seconds)} without a client`],
      ["Ends", found.expires_at && time(found.expires_at)],
      ["Waiting", `${number(found.queued_messages)} messages (${bytes(found.queued_bytes)})`],
      ["Waiting since", found.oldest_queued_at && time(found.oldest_queued_at)],
      ["In flight", number(found.in_flight)],
      ["Not released", found.unreleased ? number(found.unreleased) : null],
      ["Will", found.will && will(found.will)]),
    el("div", { class: "actions" },
      may("operator") && button("End the session", end, { class: "danger" }),
      el("a", { class: "button", href: link("why", tenant, name) }, "Why not delivered?")),
    section("Subscriptions", subscriptions(found.subscriptions)));
}

/** The subscriptions of a session. */
export function subscriptions(all) {
  if (all.length === 0) return el("p", {}, "It has subscribed to nothing.");
  const row = (one) => el("tr", {}, el("th", { scope: "row" }, named(one.filter)), el("td", {}, String(one.qos)),
    el("td", {}, [one.no_local && "no local", one.retain_as_published && "retain as published", one.identifier != null && `identifier ${one.identifier}`].filter(Boolean).join(", ") || "–"));
  return el("div", { class: "scrolled" }, el("table", {},
    el("thead", {}, el("tr", {}, ["Topic filter", "QoS", "Options"].map((title) => el("th", { scope: "col" }, title)))), el("tbody", {}, all.map(row))));
}

/** The will of a client. */
export function will({ topic, delay_seconds }) {
  return [named(topic), delay_seconds ? `, ${duration(delay_seconds)} after the connection` : ""];
}

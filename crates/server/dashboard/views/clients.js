// Who is connected, over MQTT and AMQP.

import { page, path, query } from "../api.js";
import { el, named } from "../dom.js";
import { number, time } from "../format.js";
import { table } from "../table.js";

/** Number of clients that are listed; further ones are found by search. */
const LISTED = 10000;

export async function show(main, { tenant, link, signal }) {
  const clients = table({
    caption: "Clients that are connected",
    search: "Search client identifiers",
    searches: true,
    empty: "No client is connected.",
    key: (one) => `${one.protocol} ${one.connection}`,
    columns: [
      {
        title: "Client",
        of: (one) => one.client,
        show: (one) => el("a", { href: link("client", tenant, one.protocol.toLowerCase(), one.protocol === "MQTT" ? one.client : String(one.connection)) }, named(one.client)),
      },
      { title: "User", of: (one) => one.user ?? one.key, show: (one) => (one.user ?? one.key) == null ? "–" : named(one.user ?? one.key) },
      { title: "Protocol", of: (one) => `${one.protocol} ${one.version}`, show: (one) => `${one.protocol}\u00a0${one.version}` },
      { title: "Address", of: (one) => one.address },
      { title: "Listener", of: (one) => one.listener },
      { title: "Connected", of: (one) => one.connected_at, show: (one) => time(one.connected_at) },
      { title: "Subscriptions", of: (one) => one.subscriptions, show: (one) => number(one.subscriptions), number: true },
      { title: "In flight", of: (one) => one.in_flight, show: (one) => number(one.in_flight), number: true },
      { title: "Waiting", of: (one) => one.queued_messages, show: (one) => number(one.queued_messages), number: true },
    ],
    load: (search) => page(query(path`/v1/tenants/${tenant}/clients`, { limit: LISTED, search }), "clients", signal),
  });
  main.append(clients.element);
  await clients.refresh();
}

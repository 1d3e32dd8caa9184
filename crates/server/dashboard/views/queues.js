// Queues, topics and their subscriptions.

import { get, path, query, send } from "../api.js";
import { choice, el, field, form, named, section, tell } from "../dom.js";
import { bytes, number, time } from "../format.js";
import { table } from "../table.js";

const LISTED = 10000;

export async function show(main, { tenant, link, may, again, signal }) {
  const count = (title, name) => ({ title, of: (one) => one.counts?.[name], show: (one) => number(one.counts?.[name]), number: true });
  const entities = table({
    caption: "Queues and subscriptions of topics",
    search: "Search queues",
    empty: "There are no queues.",
    columns: [
      { title: "Name", of: (one) => one.path.join("/"), show: (one) => el("a", { href: link("queue", tenant, ...one.path) }, named(one.path.join(" › "))) },
      count("Active", "active"),
      count("Locked", "locked"),
      count("Deferred", "deferred"),
      count("Scheduled", "scheduled"),
      count("Dead letters", "dead_lettered"),
      count("Sessions", "sessions"),
      { title: "Bytes", of: (one) => one.counts?.bytes, show: (one) => bytes(one.counts?.bytes), number: true },
      { title: "Receivers", of: (one) => one.receivers, show: (one) => number(one.receivers), number: true },
      { title: "Oldest", of: (one) => one.counts?.oldest_enqueued_at, show: (one) => time(one.counts?.oldest_enqueued_at) },
    ],
    load: async () => {
      const [{ queues, next }, { topics }] = await Promise.all([
        get(query(path`/v1/tenants/${tenant}/queues`, { limit: LISTED }), signal),
        get(query(path`/v1/tenants/${tenant}/topics`, { limit: LISTED }), signal),
      ]);
      const of = async (topic) => {
        const { subscriptions } = await get(query(path`/v1/tenants/${tenant}/topics/${topic.name}/subscriptions`, { limit: LISTED }), signal);
        const rows = subscriptions.map((one) => ({ ...one, path: [topic.name, one.name] }));
        return rows.length ? rows : [{ path: [topic.name] }];
      };
      const subscribed = await Promise.all(topics.map(of));
      return { rows: [...queues.map((one) => ({ ...one, path: [one.name] })), ...subscribed.flat()], more: next != null };
    },
  });
  const create = async ({ kind, name, properties }, element) => {
    const target = kind === "queue" ? path`/v1/tenants/${tenant}/queues/${name}` : path`/v1/tenants/${tenant}/topics/${name}`;
    await send("PUT", target, properties.trim() ? JSON.parse(properties) : {}, { "If-None-Match": "*" });
    element.reset();
    tell(`The ${kind} ${name} was created.`);
    again();
  };
  main.append(entities.element);
  if (may("operator")) {
    main.append(section("Create", form(create, "Create",
      field("Kind", choice({ name: "kind" }, ["queue", "topic"])),
      field("Name", el("input", { name: "name", required: true, spellcheck: "false" })),
      field("Properties", el("textarea", { name: "properties", rows: 3, placeholder: '{"RequiresSession": true}', spellcheck: "false" }), "An object of JSON; empty: the defaults."))));
  }
  await entities.refresh();
}

// The brokers of the cluster, as this one sees them.

import { every, find, path, send } from "../api.js";
import { choice, el, facts, field, form, named, section, sure, tell } from "../dom.js";
import { bytes, number, time } from "../format.js";
import { table } from "../table.js";

export async function show(main, { may, signal }) {
  const cluster = await find("/v1/cluster", signal);
  if (cluster == null) {
    main.append(el("p", {}, "This broker does not belong to a cluster."));
    return;
  }
  const problems = el("ul", { class: "problems", role: "status" });
  const members = table({
    caption: "Other brokers",
    empty: "There are no other brokers.",
    columns: [
      { title: "Broker", of: (one) => one.name, show: (one) => named(one.name) },
      { title: "State", of: (one) => one.state, show: (one) => el("span", { class: one.state === "up" ? "good" : "problem" }, one.state) },
      { title: "Since", of: (one) => one.since, show: (one) => time(one.since) },
      { title: "Address", of: (one) => one.address },
      { title: "Hears this one", of: (one) => (one.hears_us ? "yes" : "no") },
      { title: "Same data", of: (one) => ({ true: "yes", false: "no", null: "–" })[one.replicas.are_same] },
      { title: "Clock ahead", of: (one) => one.clock_ahead, show: (one) => (one.clock_ahead == null ? "–" : `${number(one.clock_ahead)} ms`), number: true },
      { title: "Other settings", of: (one) => one.other_settings.join(", ") || "–" },
      { title: "Filters", of: (one) => one.filters, show: (one) => number(one.filters), number: true },
      { title: "Sent", of: (one) => one.link?.messages, show: (one) => number(one.link?.messages), number: true },
      { title: "Lost", of: (one) => one.link?.lost, show: (one) => number(one.link?.lost), number: true },
      { title: "Waiting", of: (one) => one.link?.waiting, show: (one) => bytes(one.link?.waiting), number: true },
      { title: "Version", of: (one) => one.software },
    ],
    load: async () => {
      const now = await find("/v1/cluster", signal);
      const wrong = [];
      if (now?.has_quorum === false) {
        wrong.push(["No more than half of the brokers hear this one: it does not read from MQTT clients."]);
      } else if (now?.takes_clients === false) {
        wrong.push(["This broker takes no clients yet: it waits until all others hear it, and it them."]);
      }
      wrong.push(...(now?.problems ?? []).map((one) => [`no link to ${one.address}: `, named(one.reason)]));
      problems.replaceChildren(...wrong.map((parts) => el("li", { class: "problem" }, ...parts)));
      return { rows: now?.members ?? [] };
    },
  });
  main.append(facts(["Cluster", named(cluster.cluster)], ["This broker", named(cluster.broker)], ["Address", cluster.address], ["Topic filters of its sessions", number(cluster.filters)]),
    problems, section("Other brokers", members.element));
  await members.refresh();
  every(5000, signal, () => members.refresh().catch(() => {}));
  if ((await find("/v1/cluster/slots", signal)) != null) {
    main.append(await slots([cluster.broker, ...cluster.members.map((one) => one.name)], may("admin"), signal));
  }
}

/** Which broker has which slots, and a form that moves one. */
async function slots(brokers, mayMove, signal) {
  const counts = el("p", {});
  const list = table({
    caption: "Slots",
    search: "Search slots",
    empty: "There are no slots.",
    columns: [
      { title: "Slot", of: (one) => one.slot, number: true },
      { title: "Broker", of: (one) => one.broker, show: (one) => named(one.broker) },
      { title: "State", of: (one) => one.moving_to ?? one.state, show: (one) => (one.moving_to == null
        ? el("span", { class: one.state === "up" ? "good" : "problem" }, one.state) : el("span", {}, "moving to ", named(one.moving_to))) },
      { title: "Moves", of: (one) => one.generation, number: true },
    ],
    load: async () => {
      const rows = (await find("/v1/cluster/slots", signal))?.slots ?? [];
      const byBroker = [...Map.groupBy(rows, (one) => one.broker)];
      counts.replaceChildren("Sessions that outlive their connections belong to slots, and so do the queues and keys of each tenant. ",
        ...byBroker.flatMap(([broker, all]) => [named(broker), ` has ${number(all.length)}. `]));
      return { rows };
    },
  });
  await list.refresh();
  const move = async ({ slot, broker }) => {
    if (!(await sure(`Slot ${slot} goes to ${broker}: its clients are disconnected, and no broker takes messages for a moment.`, "Move"))) return;
    const moved = await send("PATCH", path`/v1/cluster/slots/${slot}`, { broker });
    tell(`Slot ${slot} is at ${moved.broker}, with ${number(moved.sessions)} sessions. No broker took messages for ${number(moved.held_ms)} ms.`);
    await list.refresh();
  };
  return section("Slots", counts, list.element, mayMove && form(move, "Move",
    field("Slot", el("input", { name: "slot", type: "number", min: 0, required: true })),
    field("To", choice({ name: "broker" }, brokers))));
}

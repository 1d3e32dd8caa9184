// Rates, connections, drops, memory and disk, now and in the last hours.

import { every, find, get, query } from "../api.js";
import { chart } from "../chart.js";
import { choice, el, field, named, section } from "../dom.js";
import { about, byteRate, bytes, duration, number, rate, share } from "../format.js";
import { table } from "../table.js";

/** What is kept: for an hour every 5 s, for a day every 2 min. */
const SPANS = [["5", "last hour"], ["120", "last day"]];

export async function show(main, { link, isOfBroker, ownTenant, signal, names: [chosen] }) {
  const tenant = chosen ?? ownTenant();
  let step = SPANS[0][0];
  const cards = el("div", { class: "cards" });
  const charts = {
    messages: chart("MQTT messages", rate),
    bytes: chart("MQTT bytes", byteRate),
    connections: chart("Connections", number),
    dropped: chart("Dropped messages", rate),
    ...(tenant == null && { cpu: chart("CPU", share), memory: chart("Memory", bytes) }),
  };
  const span = choice({ onchange: (event) => ((step = event.target.value), update()) }, SPANS, step);
  const tenants = tenant == null && table({
    caption: "Tenants",
    search: "Search tenants",
    empty: "There are no tenants.",
    columns: [
      { title: "Tenant", of: (one) => one.name, show: (one) => el("a", { href: link("overview", one.name) }, named(one.name)) },
      { title: "Connections", of: (one) => one.connections, show: (one) => number(one.connections), number: true },
      { title: "Messages in", of: (one) => one.rates?.messages_in, show: (one) => rate(one.rates?.messages_in), number: true },
      { title: "Messages out", of: (one) => one.rates?.messages_out, show: (one) => rate(one.rates?.messages_out), number: true },
      { title: "Dropped", of: (one) => one.rates?.dropped, show: (one) => rate(one.rates?.dropped), number: true },
      { title: "Sessions", of: (one) => one.sessions, show: (one) => number(one.sessions), number: true },
      { title: "Retained", of: (one) => one.retained_messages, show: (one) => number(one.retained_messages), number: true },
    ],
    load: async () => ({ rows: (await get("/v1/tenants", signal)).tenants }),
  });
  main.append(
    tenant != null && isOfBroker() ? el("p", {}, "Tenant ", named(tenant), " · ", el("a", { href: link("overview") }, "the whole broker")) : "",
    cards, field("Charts of the", span), el("div", { class: "charts" }, Object.values(charts).map((one) => one.figure)),
    tenants ? section("Tenants", tenants.element) : "");

  async function update() {
    const { values, step_seconds, until } = await get(query("/v1/history", { tenant, step }), signal);
    const line = (name, value) => ({ name, values: values[value] });
    const draw = (one, ...lines) => one?.draw(lines, step_seconds, until);
    draw(charts.messages, line("in", "messages_in"), line("out", "messages_out"));
    draw(charts.bytes, line("in", "bytes_in"), line("out", "bytes_out"));
    draw(charts.connections, line("clients", "connections"));
    draw(charts.dropped, line("dropped", "dropped"));
    draw(charts.cpu, line("of one processor", "cpu"));
    draw(charts.memory, line("resident", "resident_bytes"));
    await count(values);
  }

  async function count(values) {
    const last = (name) => values[name]?.at(-1);
    const shown = [
      ["Connections", about(last("connections"))],
      ["Messages in", rate(last("messages_in"))],
      ["Messages out", rate(last("messages_out"))],
      ["Dropped", rate(last("dropped"))],
    ];
    const broker = tenant == null && (await find("/v1/broker", signal));
    if (broker) {
      shown.push(["CPU", share(last("cpu"))], ["Memory", bytes(broker.resident_bytes)],
        ["Disk", bytes(broker.disk_bytes)], ["Disk free", bytes(broker.disk_free_bytes)],
        ["Running for", duration((new Date(broker.now) - new Date(broker.started_at)) / 1000)], ["Version", broker.version]);
    }
    cards.replaceChildren(...shown.map(([name, value]) => el("div", { class: "card" }, el("span", {}, name), el("strong", {}, value))));
  }

  if (tenants) await tenants.refresh();
  await update();
  every(5000, signal, () => update().catch(() => {}));
  if (tenants) every(15000, signal, () => tenants.refresh().catch(() => {}));
}

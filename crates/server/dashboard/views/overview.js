// Rates, connections, drops, memory and disk, now and in the last hours.

import { ALL, broker, clusterOf, every, find, get, query } from "../api.js";
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
  const cluster = isOfBroker() ? await clusterOf(signal) : null;
  // This broker is asked without its name.
  const all = cluster == null ? [null] : [null, ...cluster.members.filter((one) => one.state === "up").map((one) => one.name)];
  const brokers = tenant == null && all.length > 1 && table({
    caption: "Brokers",
    empty: "There are no brokers.",
    columns: [
      { title: "Broker", of: (one) => one.name, show: (one) => named(one.name) },
      { title: "Connections", of: (one) => one.connections, show: (one) => about(one.connections), number: true },
      { title: "Messages in", of: (one) => one.messages_in, show: (one) => rate(one.messages_in), number: true },
      { title: "Messages out", of: (one) => one.messages_out, show: (one) => rate(one.messages_out), number: true },
      { title: "Dropped", of: (one) => one.dropped, show: (one) => rate(one.dropped), number: true },
      { title: "CPU", of: (one) => one.cpu, show: (one) => share(one.cpu), number: true },
      { title: "Memory", of: (one) => one.resident_bytes, show: (one) => bytes(one.resident_bytes), number: true },
      { title: "Disk free", of: (one) => one.disk_free_bytes, show: (one) => bytes(one.disk_free_bytes), number: true },
    ],
    load: async () => ({ rows: await Promise.all(all.map(describe)) }),
  });
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
    brokers ? section("Brokers", brokers.element) : "",
    tenants ? section("Tenants", tenants.element) : "");

  /** What a broker does now. */
  async function describe(of) {
    const [{ values }, one] = await Promise.all([get(query("/v1/history", { step: SPANS[0][0] }), signal, of), get("/v1/broker", signal, of)]);
    const now = Object.fromEntries(Object.entries(values).map(([name, history]) => [name, history.at(-1)]));
    return { ...now, name: one.broker, disk_free_bytes: one.disk_free_bytes };
  }

  /** The history of the chosen broker, or the sum of all. */
  async function history() {
    const ask = (of) => get(query("/v1/history", { tenant, step }), signal, of);
    if (broker.get() !== ALL) return ask();
    const answers = await Promise.all(all.map((of) => ask(of)));
    // The last values are of the same moment, to a few seconds.
    const sum = (name) => {
      const lines = answers.map(({ values }) => values[name] ?? []);
      const length = Math.max(...lines.map((line) => line.length));
      return Array.from({ length }, (_, at) => lines.reduce((total, line) => total + (line.at(at - length) ?? 0), 0));
    };
    const names = Object.keys(answers[0].values);
    return { ...answers[0], values: Object.fromEntries(names.map((name) => [name, sum(name)])) };
  }

  async function update() {
    const { values, step_seconds, until } = await history();
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
    if (broker.get() === ALL) shown.push(["Brokers", number(all.length)]);
    const one = tenant == null && (await find("/v1/broker", signal));
    if (one && broker.get() === ALL) {
      shown.push(["CPU", share(last("cpu"))], ["Memory", bytes(last("resident_bytes"))]);
    } else if (one) {
      shown.push(["CPU", share(last("cpu"))], ["Memory", bytes(one.resident_bytes)],
        ["Disk", bytes(one.disk_bytes)], ["Disk free", bytes(one.disk_free_bytes)],
        ["Running for", duration((new Date(one.now) - new Date(one.started_at)) / 1000)], ["Version", one.version]);
    }
    cards.replaceChildren(...shown.map(([name, value]) => el("div", { class: "card" }, el("span", {}, name), el("strong", {}, value))));
  }

  if (tenants) await tenants.refresh();
  await brokers?.refresh?.();
  await update();
  every(5000, signal, () => update().catch(() => {}));
  if (brokers) every(5000, signal, () => brokers.refresh().catch(() => {}));
  if (tenants) every(15000, signal, () => tenants.refresh().catch(() => {}));
}

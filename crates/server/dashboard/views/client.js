// One client: what it is, what it has subscribed to, its packets; it can be disconnected and banned.

import { every, find, get, path, query, send } from "../api.js";
import { button, choice, el, facts, field, form, named, section, sure, tell } from "../dom.js";
import { byteRate, bytes, duration, number, rate, time } from "../format.js";
import { subscriptions, will } from "./sessions.js";
import { trace } from "./trace.js";

export async function show(main, { tenant, names: [protocol, name], may, link, again, signal }) {
  const isMqtt = protocol === "mqtt";
  const look = () => (isMqtt ? find(path`/v1/tenants/${tenant}/clients/${name}`, signal) : ofAmqp(tenant, name, signal));
  const found = await look();
  if (found == null) {
    main.append(el("p", {}, "The client ", named(name), " is not connected any more. ", el("a", { href: link("clients", tenant) }, "All clients")));
    return;
  }
  const [received, sent] = [el("span", {}), el("span", {})];
  let last = null;
  const traffic = (now) => {
    const seconds = last && (performance.now() - last.at) / 1000;
    const write = (element, messages, size) => {
      const passed = `${number(now[messages])} messages, ${bytes(now[size])}`;
      element.textContent = last == null ? passed : `${passed}; ${rate((now[messages] - last[messages]) / seconds)}, ${byteRate((now[size] - last[size]) / seconds)}`;
    };
    write(received, "received_messages", "received_bytes");
    write(sent, "sent_messages", "sent_bytes");
    last = { ...now, at: performance.now() };
  };
  const disconnect = async () => {
    const target = isMqtt ? path`/v1/tenants/${tenant}/clients/${name}` : path`/v1/tenants/${tenant}/amqp-connections/${name}`;
    await send("DELETE", target);
    tell(`${found.client} was disconnected`);
    location.hash = link("clients", tenant);
  };
  main.append(
    el("p", { class: "path" }, el("a", { href: link("clients", tenant) }, "Clients"), " › ", named(found.client)),
    facts(
      ["Client", named(found.client)],
      ["User", found.user && named(found.user)],
      ["Key", found.key && named(found.key)],
      ["Protocol", `${found.protocol} ${found.version}`],
      ["Address", found.address],
      ["Listener", found.listener],
      ["Connected", time(found.connected_at)],
      ["Keep alive", found.keep_alive != null && (found.keep_alive ? duration(found.keep_alive) : "off")],
      ["Session lasts", isMqtt && (found.expiry_seconds == null ? "for ever" : found.expiry_seconds ? `${duration(found.expiry_seconds)} longer` : "as long as the connection")],
      ["In flight", isMqtt && number(found.in_flight)],
      ["Waiting", isMqtt && `${number(found.queued_messages)} (${bytes(found.queued_bytes)})`],
      ["Received", received],
      ["Sent", sent],
      ["Will", found.will && will(found.will)]),
    el("div", { class: "actions" },
      may("operator") && button("Disconnect", disconnect, { class: "danger" }),
      isMqtt && el("a", { class: "button", href: link("sessions", tenant, name) }, "Session"),
      isMqtt && el("a", { class: "button", href: link("why", tenant, name) }, "Why not delivered?")));
  traffic(found);
  const follow = async () => {
    const now = await look();
    if (now?.connection === found.connection) traffic(now);
  };
  every(2000, signal, () => follow().catch(() => {}));
  if (isMqtt) main.append(section("Subscriptions", subscriptions(found.subscriptions)));
  if (may("operator")) main.append(trace(tenant, found.client, isMqtt, signal), ban(tenant, found, again));
}

/** A client of AMQP, by the number of its connection. */
async function ofAmqp(tenant, number, signal) {
  const after = `amqp/${BigInt(number) - 1n}`;
  const { clients } = await get(query(path`/v1/tenants/${tenant}/clients`, { protocol: "amqp", limit: 1, after }), signal);
  return clients.find((one) => String(one.connection) === number) ?? null;
}

function ban(tenant, found, again) {
  const host = found.address.replace(/:\d+$/, "").replace(/^\[|\]$/g, "");
  const whom = [["client", "this client identifier"], ...(found.user ? [["user", "this user"]] : []), ["address", `the address ${host}`]];
  const banned = async ({ by, seconds, reason }) => {
    if (!(await sure("A banned client is disconnected and cannot connect again.", "Ban"))) return;
    const what = { client: { client: found.client, tenant }, user: { user: found.user }, address: { address: host, tenant } }[by];
    await send("POST", "/v1/bans", { ...what, reason, ...(seconds && { for_seconds: Number(seconds) }) });
    tell("The ban is in force.");
    again();
  };
  return section("Ban", form(banned, "Ban",
    field("Ban", choice({ name: "by" }, whom, "client")),
    field("For seconds", el("input", { name: "seconds", type: "number", min: 1 }), "Empty: until somebody ends it."),
    field("Reason", el("input", { name: "reason", maxlength: 256 }))));
}

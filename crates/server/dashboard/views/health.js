// Whether the broker is well: disk, certificate, descriptors, threads, shards.

import { every, get, path } from "../api.js";
import { el, named, section } from "../dom.js";
import { bytes, duration, number, time } from "../format.js";
import { table } from "../table.js";

const DAY = 86400;

/** Share of the file descriptors, and days of a certificate, from which on there is something to do. */
const DESCRIPTORS = 0.8, CERTIFICATE = 14;

export async function show(main, { signal, tenant, names: [about = tenant] }) {
  const list = el("ul", { class: "checks" });
  const shards = table({
    caption: "Shards of the data directory",
    empty: "There are no shards.",
    columns: [
      { title: "Shard", of: (one) => one.shard, number: true },
      { title: "State", of: (one) => one.state },
      { title: "Commits", of: (one) => one.commits, show: (one) => number(one.commits), number: true },
      { title: "Not committed yet", of: (one) => one.pending_bytes, show: (one) => bytes(one.pending_bytes), number: true },
    ],
    load: async () => ({ rows: (await get("/v1/shards", signal)).shards }),
  });
  const { back_ends } = await get(path`/v1/tenants/${about}/logins`, signal);
  main.append(list, section("Shards", shards.element),
    section("Logins", el("p", {}, "Users of the tenant ", named(about), " are looked up in: ", back_ends.length ? named(back_ends.join(", then ")) : "nothing, any client may connect", ".")));

  async function update() {
    const broker = await get("/v1/broker", signal);
    list.replaceChildren(...checks(broker).map(([isWell, name, said]) =>
      el("li", { class: isWell ? "good" : "problem" }, el("strong", {}, isWell ? "✓ " : "! ", name), ": ", said)));
    await shards.refresh();
  }
  await update();
  every(5000, signal, () => update().catch(() => {}));
}

/** Each check: whether all is well, its name, and what it says. */
function checks(broker) {
  const now = new Date(broker.now);
  const expires = broker.certificate_expires_at && (new Date(broker.certificate_expires_at) - now) / 1000;
  const off = Math.abs(now - Date.now()) / 1000;
  const used = broker.open_descriptors / broker.max_descriptors;
  return [
    [!broker.disk_refuses, "Disk", [broker.disk_refuses ? "full or broken: nothing durable is accepted. " : "", `${bytes(broker.disk_free_bytes)} free, ${bytes(broker.disk_bytes)} used by Barid`]],
    [broker.closed_shards === 0, "Shards", broker.closed_shards ? `${number(broker.closed_shards)} closed: sessions and keys in them are away` : "all are open"],
    [expires == null || expires > CERTIFICATE * DAY, "Certificate", expires == null ? "the broker has none" : expires < 0 ? "has expired" : [`expires in ${duration(expires)}: `, time(broker.certificate_expires_at)]],
    [!(used > DESCRIPTORS), "File descriptors", `${number(broker.open_descriptors)} of ${number(broker.max_descriptors)}`],
    [broker.longest_turn_seconds < 0.1, "Threads", `one connection has kept others waiting for ${Math.round(broker.longest_turn_seconds * 1000)} ms at most in the last minute`],
    [broker.tenants < broker.max_tenants, "Tenants", `${number(broker.tenants)} of ${number(broker.max_tenants)}`],
    [off < 5, "Clock", off < 5 ? "agrees with that of this browser" : `differs from that of this browser by ${duration(off)}`],
  ];
}

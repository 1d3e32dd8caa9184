// Tenants: their users, rights, quotas and bans, and the tokens of the admin API.

import { find, get, page, path, query, send } from "../api.js";
import { button, choice, el, field, form, named, payload, section, sure, tell } from "../dom.js";
import { number, time } from "../format.js";
import { table } from "../table.js";

const LISTED = 10000;

export async function show(main, around) {
  if (around.names[0] != null) return one(main, around, around.names[0]);
  const { link, may, isOfBroker, again, signal } = around;
  const tenants = table({
    caption: "Tenants",
    search: "Search tenants",
    empty: "There are no tenants.",
    columns: [
      { title: "Tenant", of: (one) => one.name, show: (one) => el("a", { href: link("tenants", one.name) }, named(one.name)) },
      { title: "Connections", of: (one) => one.connections, show: (one) => number(one.connections), number: true },
      { title: "Sessions", of: (one) => one.sessions, show: (one) => number(one.sessions), number: true },
      { title: "Retained", of: (one) => one.retained_messages, show: (one) => number(one.retained_messages), number: true },
      { title: "Refused by quotas", of: refused, show: (one) => number(refused(one)), number: true },
      { title: "Settings", of: (one) => (one.has_settings ? "its own" : "those of the configuration") },
    ],
    load: () => page(query("/v1/tenants", { limit: LISTED }), "tenants", signal),
  });
  const create = async ({ name }) => {
    await send("PATCH", path`/v1/tenants/${name}`, {});
    location.hash = link("tenants", name);
  };
  main.append(tenants.element);
  if (may("admin") && isOfBroker()) {
    main.append(section("Give a tenant settings of its own", form(create, "Create", field("Tenant", el("input", { name: "name", required: true, spellcheck: "false" })))));
  }
  await tenants.refresh();
  if (may("admin")) main.append(await tokens(around));
  main.append(await bans(around, null, again));
}

const refused = (one) => Object.values(one.quotas).reduce((sum, quota) => sum + (quota.refused ?? 0), 0);

async function one(main, around, name) {
  const { link, may, isOfBroker, again, signal } = around;
  const found = await find(path`/v1/tenants/${name}`, signal);
  main.append(el("p", { class: "path" }, el("a", { href: link("tenants") }, "Tenants"), " › ", named(name)));
  if (found == null) {
    main.append(el("p", {}, "There is no such tenant."));
    return;
  }
  const quotas = table({
    caption: "Quotas",
    search: "Search quotas",
    empty: "The tenant only has settings; nobody uses it.",
    columns: [
      { title: "Limit", of: ([limit]) => limit },
      { title: "Value", of: ([, quota]) => quota.limit, show: ([, quota]) => (quota.limit ? number(quota.limit) : "no limit"), number: true },
      { title: "Used", of: ([, quota]) => quota.used, show: ([, quota]) => use(quota), number: true },
      { title: "Refused", of: ([, quota]) => quota.refused, show: ([, quota]) => number(quota.refused), number: true },
      { title: "Throttled for", of: ([, quota]) => quota.throttled_seconds, show: ([, quota]) => (quota.throttled_seconds == null ? "–" : `${number(quota.throttled_seconds)} s`), number: true },
    ],
    load: async () => ({ rows: Object.entries((await get(path`/v1/tenants/${name}`, signal)).quotas) }),
  });
  main.append(
    el("p", {}, el("a", { href: link("clients", name) }, `${number(found.connections)} connections`), ", ",
      el("a", { href: link("sessions", name) }, `${number(found.sessions)} sessions`), ", ", `${number(found.retained_messages)} retained messages`),
    section("Quotas", quotas.element), settings(found, name, may("admin") && isOfBroker(), again), await users(around, name), await bans(around, name, again));
  await quotas.refresh();
}

/** How much of a quota is used, as a number and as a bar. */
function use({ used, limit }) {
  if (used == null) return "–";
  if (!limit) return number(used);
  return [number(used), " ", el("meter", { min: 0, max: limit, value: used, high: limit * 0.9, title: `${Math.round((100 * used) / limit)} %` })];
}

function settings(found, name, mayChange, again) {
  if (found.problem) return section("Settings", el("p", { class: "problem" }, found.problem));
  const text = JSON.stringify(found.settings ?? {}, null, 2);
  if (!mayChange) return section("Settings", payload(text));
  const save = async ({ text: changed }) => {
    await send("PUT", path`/v1/tenants/${name}`, JSON.parse(changed));
    tell(`The settings of ${name} are in force.`);
    again();
  };
  const remove = async () => {
    if (!(await sure(`The settings of ${name} are removed; those of the configuration apply.`, "Remove"))) return;
    await send("DELETE", path`/v1/tenants/${name}`);
    tell(`The settings of ${name} were removed.`);
    again();
  };
  return section("Settings", form(save, "Save",
    field("Settings", el("textarea", { name: "text", rows: Math.min(20, text.split("\n").length + 2), spellcheck: "false" }, text),
      "rules, auth and limits, as JSON. Users that are connected are affected at once.")),
  found.has_settings && el("div", { class: "actions" }, button("Remove the settings", remove, { class: "danger" })));
}

// ---------------------------------------------------------------------------------------------------------- users

async function users({ may, again, signal }, tenant) {
  const own = (user) => user.slice(tenant.length + 1);
  const at = (user) => path`/v1/users/${tenant}/${own(user)}`;
  const able = (one) => button(one.disabled ? "Enable" : "Disable", async () => {
    await send("PATCH", at(one.user), { disabled: !one.disabled });
    await list.refresh();
  });
  const remove = (one) => button("Remove", async () => {
    if (!(await sure(`The user ${one.user} is removed.`, "Remove"))) return;
    await send("DELETE", at(one.user));
    await list.refresh();
  }, { class: "danger" });
  const rights = (one) => JSON.stringify(Object.fromEntries(["rules", "publish", "subscribe", "state", "limits"].filter((name) => one[name] != null).map((name) => [name, one[name]])));
  const list = table({
    caption: "Users in the broker's own store",
    search: "Search users",
    empty: "There are no users in the broker's own store.",
    columns: [
      { title: "User", of: (one) => one.user, show: (one) => named(one.user) },
      { title: "May log in", of: (one) => (one.disabled ? "no" : "yes") },
      { title: "Rights and limits", of: rights, show: (one) => el("code", { class: "long" }, named(rights(one))) },
      { title: "Note", of: (one) => one.note, show: (one) => named(one.note ?? "–") },
      { title: "Created", of: (one) => one.created_at, show: (one) => time(one.created_at) },
      ...(may("admin") ? [{ title: "Change", of: () => "", show: (one) => [able(one), " ", remove(one)] }] : []),
    ],
    load: () => page(query("/v1/users", { tenant, limit: LISTED }), "users", signal),
  });
  await list.refresh();
  const create = async ({ client, password, publish, subscribe, note }) => {
    const filters = (text) => (text.trim() ? text.split(",").map((one) => one.trim()) : undefined);
    const user = { password, publish: filters(publish), subscribe: filters(subscribe), ...(note && { note }) };
    await send("PUT", path`/v1/users/${tenant}/${client}`, user, { "If-None-Match": "*" });
    tell(`The user ${tenant}/${client} was created.`);
    again();
  };
  const making = may("admin") && form(create, "Create",
    field("User", el("input", { name: "client", required: true, spellcheck: "false", autocomplete: "off" }), `Without ${tenant}/ before it.`),
    field("Password", el("input", { name: "password", type: "password", required: true, autocomplete: "new-password" })),
    field("May publish to", el("input", { name: "publish", spellcheck: "false" }), "Topic filters, separated by commas; empty: everything."),
    field("May subscribe to", el("input", { name: "subscribe", spellcheck: "false" }), "Topic filters, separated by commas; empty: everything."),
    field("Note", el("input", { name: "note" })));
  return section("Users", list.element, making && el("details", {}, el("summary", {}, "Create a user"), making));
}

// ----------------------------------------------------------------------------------------------------------- bans

async function bans({ may, ownTenant, signal }, tenant, again) {
  const whom = (one) => one.user ?? one.client ?? one.address;
  const list = table({
    caption: "Bans",
    search: "Search bans",
    empty: "Nobody is banned.",
    key: (one) => one.id,
    columns: [
      { title: "Who", of: whom, show: (one) => [one.user ? "user " : one.client ? "client " : "address ", named(whom(one))] },
      { title: "Tenant", of: (one) => one.tenant, show: (one) => named(one.tenant ?? "–") },
      { title: "Reason", of: (one) => one.reason, show: (one) => named(one.reason ?? "–") },
      { title: "Until", of: (one) => one.until, show: (one) => (one.until ? time(one.until) : "somebody ends it") },
      ...(may("operator") ? [{ title: "Change", of: () => "", show: (one) => button("End", async () => {
        await send("DELETE", path`/v1/bans/${one.id}`);
        await list.refresh();
      }) }] : []),
    ],
    load: () => page(query("/v1/bans", { tenant, limit: LISTED }), "bans", signal),
  });
  const create = async ({ kind, value, seconds, reason }) => {
    const scope = tenant ?? ownTenant();
    await send("POST", "/v1/bans", { [kind]: value, ...(kind !== "user" && scope && { tenant: scope }), reason, ...(seconds && { for_seconds: Number(seconds) }) });
    tell(`The ban of ${value} is in force.`);
    again();
  };
  const kinds = [["user", "user, as tenant/client"], ["address", "address or network"], ...(tenant ?? ownTenant() ? [["client", "client identifier"]] : [])];
  const making = may("operator") && form(create, "Ban",
    field("Ban a", choice({ name: "kind" }, kinds)), field("Name or address", el("input", { name: "value", required: true, spellcheck: "false" })),
    field("For seconds", el("input", { name: "seconds", type: "number", min: 1 }), "Empty: until somebody ends it."), field("Reason", el("input", { name: "reason", maxlength: 256 })));
  await list.refresh();
  return section("Bans", list.element, making && el("details", {}, el("summary", {}, "Ban somebody"), making));
}

// --------------------------------------------------------------------------------------------------------- tokens

async function tokens({ ownTenant, signal }) {
  const made = el("div", { "aria-live": "polite" });
  const list = table({
    caption: "Tokens of the admin API",
    search: "Search tokens",
    empty: "There are no tokens: every program on this machine may do everything.",
    columns: [
      { title: "Token", of: (one) => one.id },
      { title: "Role", of: (one) => one.role },
      { title: "Tenant", of: (one) => one.tenant, show: (one) => named(one.tenant ?? "all") },
      { title: "Note", of: (one) => one.note, show: (one) => named(one.note || "–") },
      { title: "Created", of: (one) => one.created_at, show: (one) => time(one.created_at) },
      { title: "Until", of: (one) => one.until, show: (one) => (one.until ? time(one.until) : "somebody revokes it") },
      { title: "Change", of: () => "", show: (one) => button("Revoke", async () => {
        if (!(await sure(`Programs with the token ${one.id} are refused at once.`, "Revoke"))) return;
        await send("DELETE", path`/v1/tokens/${one.id}`);
        await list.refresh();
      }, { class: "danger" }) },
    ],
    load: async () => ({ rows: (await get("/v1/tokens", signal)).tokens }),
  });
  const create = async ({ role, tenant, note, seconds }) => {
    const answer = await send("POST", "/v1/tokens", { role, ...(tenant && { tenant }), ...(note && { note }), ...(seconds && { for_seconds: Number(seconds) }) });
    made.replaceChildren(el("p", {}, "Copy the token now; nobody can see it again:"), payload(answer.token));
    await list.refresh();
  };
  const tenant = el("input", { name: "tenant", spellcheck: "false", value: ownTenant() ?? "", readonly: ownTenant() != null });
  await list.refresh();
  return section("Tokens", list.element, made, el("details", {}, el("summary", {}, "Create a token"), form(create, "Create",
    field("Role", choice({ name: "role" }, ["viewer", "operator", "admin"])),
    field("Tenant", tenant, "Empty: the whole broker."), field("Note", el("input", { name: "note", maxlength: 256 })),
    field("For seconds", el("input", { name: "seconds", type: "number", min: 1 }), "Empty: until somebody revokes it."))));
}

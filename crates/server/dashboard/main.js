// The frame around the views: log-in, navigation, tenants, themes.

import { ALL, broker, clusterOf, get, query, token } from "./api.js";
import { button, choice, el, field, form, named, visible } from "./dom.js";
import * as bindings from "./views/bindings.js";
import * as client from "./views/client.js";
import * as clients from "./views/clients.js";
import * as cluster from "./views/cluster.js";
import * as events from "./views/events.js";
import * as health from "./views/health.js";
import * as overview from "./views/overview.js";
import * as queue from "./views/queue.js";
import * as queues from "./views/queues.js";
import * as sessions from "./views/sessions.js";
import * as state from "./views/state.js";
import * as tenants from "./views/tenants.js";
import * as topics from "./views/topics.js";
import * as trying from "./views/try.js";
import * as why from "./views/why.js";

/** The views by their names in the address: `#/client/acme/mqtt/sensor-7`. Those without a title are not in the navigation. */
const VIEWS = {
  overview: { title: "Overview", view: overview },
  tenants: { title: "Tenants", view: tenants },
  clients: { title: "Clients", view: clients, ofTenant: true },
  client: { view: client, ofTenant: true, under: "clients" },
  topics: { title: "Topics", view: topics, ofTenant: true },
  sessions: { title: "Sessions", view: sessions, ofTenant: true },
  why: { title: "Why not delivered?", view: why, ofTenant: true },
  queues: { title: "Queues", view: queues, ofTenant: true },
  queue: { view: queue, ofTenant: true, under: "queues" },
  state: { title: "State store", view: state, ofTenant: true },
  bindings: { title: "Bindings", view: bindings, ofTenant: true },
  try: { title: "Try it", view: trying, ofTenant: true },
  events: { title: "Events", view: events, ofTenant: true },
  cluster: { title: "Cluster", view: cluster, ofBroker: true },
  health: { title: "Health", view: health, ofBroker: true },
};

const ROLES = ["viewer", "operator", "admin"];
const THEME = "barid.theme";

let requester = null;
let tenant = null;
let leaving = new AbortController();

/** What the views need of their surroundings. */
const around = {
  /** Whether the token has at least this role. */
  may: (role) => ROLES.indexOf(requester.role) >= ROLES.indexOf(role),
  /** Whether the token is for the whole broker. */
  isOfBroker: () => requester.tenant == null,
  /** The tenant of the token, if it is for one only. */
  ownTenant: () => requester.tenant,
  link: (view, ...names) => `#/${[view, ...names].map(encodeURIComponent).join("/")}`,
  /** Shows the view again, after a change. */
  again: () => show(),
};

// ---------------------------------------------------------------------------------------------------------- frame

function frame() {
  const themes = choice({ "aria-label": "Theme", onchange: (event) => setTheme(event.target.value) },
    [["", "System theme"], ["light", "Light"], ["dark", "Dark"]], localStorage.getItem(THEME) ?? "");
  const places = el("select", { id: "tenant", "aria-label": "Tenant", onchange: (event) => choose(event.target.value) });
  const brokers = el("select", { id: "broker", "aria-label": "Broker", hidden: true, onchange: (event) => ask(event.target.value) });
  const out = button("Log out", () => {
    token.forget();
    login();
  });
  document.body.replaceChildren(
    el("a", { class: "skip", href: "#view", onclick: (event) => (event.preventDefault(), document.getElementById("view").focus()) }, "To the contents"),
    el("header", {}, el("a", { class: "brand", href: "#/overview" }, el("img", { src: "icon.svg", alt: "", width: 28, height: 28 }), "Barid"),
      places, brokers, el("span", { id: "who" }), themes, requester.token && out),
    el("nav", { "aria-label": "Views" }, el("ul", { id: "views" })),
    el("main", { id: "view", tabindex: "-1" }),
    el("div", { id: "told", role: "status", "aria-live": "polite" }));
  document.getElementById("who").textContent = requester.token ? `${requester.role}, token ${requester.token}` : "no token is needed";
}

function setTheme(name) {
  name ? localStorage.setItem(THEME, name) : localStorage.removeItem(THEME);
  document.documentElement.dataset.theme = name;
}

async function loadTenants() {
  const { tenants: all, next } = await get(query("/v1/tenants", { limit: 1000 }));
  const names = all.map((one) => one.name);
  tenant ??= names.includes("default") ? "default" : (names[0] ?? null);
  if (tenant != null && !names.includes(tenant)) names.unshift(tenant);
  const options = names.map((name) => el("option", { value: name, selected: name === tenant }, visible(name)));
  if (next != null) options.push(el("option", { disabled: true }, "… search among the tenants for more"));
  document.getElementById("tenant").replaceChildren(...options);
}

/** Lists the brokers of the cluster, if there is one. */
async function loadBrokers() {
  const cluster = around.isOfBroker() ? await clusterOf() : null;
  if (cluster == null) return broker.forget();
  const others = cluster.members.filter((one) => one.state !== "left").map((one) => one.name);
  const options = [[cluster.broker, `${cluster.broker} (this one)`], ...others.sort().map((name) => [name, name]), [ALL, "all brokers"]];
  if (!options.some(([name]) => name === broker.get())) broker.set(cluster.broker);
  const chosen = broker.get();
  const places = document.getElementById("broker");
  places.replaceChildren(...options.map(([name, told]) => el("option", { value: name, selected: name === chosen }, visible(told))));
  places.hidden = others.length === 0;
}

/** Shows the same view as another broker has it. */
async function ask(name) {
  name ? broker.set(name) : broker.forget();
  await loadTenants().catch(() => {});
  await show();
}

/** Shows the same view of another tenant. */
function choose(name) {
  tenant = name;
  const [view] = route();
  location.hash = around.link(VIEWS[view]?.ofTenant ? (VIEWS[view].under ?? view) : "clients", name);
}

function navigate(current) {
  const shown = VIEWS[current].under ?? current;
  const items = Object.entries(VIEWS).filter(([, one]) => one.title && !(one.ofBroker && !around.isOfBroker()));
  document.getElementById("views").replaceChildren(...items.map(([name, one]) => el("li", {},
    el("a", { href: one.ofTenant ? around.link(name, tenant ?? "default") : around.link(name), "aria-current": name === shown && "page" }, one.title))));
}

// --------------------------------------------------------------------------------------------------------- views

/** The view in the address, and the names behind it. */
function route() {
  try {
    const [name, ...names] = location.hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
    return [Object.hasOwn(VIEWS, name) ? name : "overview", ...names];
  } catch {
    return ["overview"];
  }
}

async function show() {
  leaving.abort();
  leaving = new AbortController();
  const { signal } = leaving;
  const [name, ...names] = route();
  const { view, title, ofTenant, under } = VIEWS[name];
  if (ofTenant && names[0]) tenant = names[0];
  const main = el("main", { id: "view", tabindex: "-1" });
  document.getElementById("view").replaceWith(main);
  navigate(name);
  const places = document.getElementById("tenant");
  if ([...places.options].some((option) => option.value === tenant)) places.value = tenant;
  const heading = title ?? VIEWS[under].title;
  document.title = `${heading} · Barid`;
  main.append(el("h1", {}, heading, ofTenant && [" ", el("small", {}, "of ", named(tenant ?? "default"))]));
  main.focus({ preventScroll: true });
  try {
    await view.show(main, { ...around, tenant: tenant ?? "default", names: ofTenant ? names.slice(1) : names, signal });
  } catch (problem) {
    if (problem.name === "AbortError" || signal.aborted) return;
    if (problem.status === 401) return login("The token has ended or was revoked.");
    main.append(el("p", { class: "problem", role: "alert" }, visible(problem.message)),
      button("Try again", show));
  }
}

// --------------------------------------------------------------------------------------------------------- log-in

function login(sentence) {
  leaving.abort();
  document.title = "Log in · Barid";
  const entered = async ({ token: text }) => {
    token.set(text.trim());
    await start();
  };
  document.body.replaceChildren(el("main", { id: "login" },
    el("h1", {}, el("img", { src: "icon.svg", alt: "", width: 40, height: 40 }), "Barid"),
    sentence && el("p", { class: "problem", role: "alert" }, sentence),
    form(entered, "Log in",
      field("Token", el("input", { name: "token", type: "password", required: true, autofocus: true, autocomplete: "off", spellcheck: "false" }),
        "barid token create makes one. It is kept for this tab only."))),
    el("div", { id: "told", role: "status", "aria-live": "polite" }));
  document.querySelector("input").focus();
}

async function start() {
  try {
    requester = await get("/v1/requester", undefined, null);
  } catch (problem) {
    if (problem.status !== 401) {
      document.body.replaceChildren(el("main", { id: "login" }, el("p", { class: "problem", role: "alert" }, problem.message), button("Try again", start)));
      return;
    }
    const wasWrong = token.get() != null;
    token.forget();
    login(wasWrong ? "The token is wrong, has ended or was revoked." : null);
    return;
  }
  tenant = requester.tenant;
  frame();
  await loadBrokers();
  await loadTenants().catch(() => broker.forget());
  await show();
}

addEventListener("hashchange", () => requester && document.getElementById("view") && show());
setTheme(localStorage.getItem(THEME) ?? "");
start();

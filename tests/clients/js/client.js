// mqtt.js against the broker that pytest has started: the environment says where and how.
//
// MQTT_URL       such as ws://localhost:8083/mqtt
// MQTT_VERSION   4 (3.1.1) or 5
// MQTT_CA        PEM file of the authority to trust, for mqtts and wss

import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import mqtt from "mqtt";

export const VERSION = Number(process.env.MQTT_VERSION);
export const V5 = VERSION === 5;
export const TENANTS = ["acme", "globex"];

const CA = process.env.MQTT_CA && readFileSync(process.env.MQTT_CA);
const SECONDS = 15;

/** A name no other test uses. */
export const unique = (prefix) => prefix + randomUUID().replaceAll("-", "").slice(0, 16);

/** Connects; `tenant` makes the user name. What arrives is kept for `receive`. */
export async function connect(t, { tenant, ...options } = {}) {
  const client = mqtt.connect(process.env.MQTT_URL, {
    protocolVersion: VERSION,
    clientId: unique("js"),
    reconnectPeriod: 0,
    ca: CA,
    ...(tenant && { username: `${tenant}/browser` }),
    ...options,
  });
  t.after(() => client.endAsync(true));
  [client.connack] = await event(client, "connect");
  client.arrived = [];
  client.on("message", (topic, payload, packet) => client.arrived.push({ topic, payload, packet }));
  client.on("error", (error) => (client.failure = error));
  return client;
}

/** A client that does not subscribe anew by itself, so that only the broker's session can bring messages. */
export const resuming = { clean: false, resubscribe: false, ...(V5 && { properties: { sessionExpiryInterval: 60 } }) };

/** The next message, or an error when none comes. */
export async function receive(client, seconds = SECONDS) {
  for (const until = Date.now() + seconds * 1000; client.arrived.length === 0; await sleep(2)) {
    if (client.failure) throw client.failure;
    if (Date.now() > until) throw new Error("no message came in time");
  }
  return client.arrived.shift();
}

/** The payloads of the next messages, as text. */
export async function texts(client, count) {
  const received = [];
  while (received.length < count) received.push((await receive(client)).payload.toString());
  return received;
}

/** Whether nothing arrives for a while. */
export async function silent(client, seconds = 0.2) {
  await sleep(seconds * 1000);
  return client.arrived.length === 0;
}

/** An event of a client, or an error when it does not come. */
export const event = (client, name) => once(client, name, { signal: AbortSignal.timeout(SECONDS * 1000) });

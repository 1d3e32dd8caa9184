// Microsoft's SDK for JavaScript against the broker that pytest has started: the environment says where and how.
//
// SERVICE_BUS    the connection string
// SB_WEBSOCKET   set: over secure WebSocket
// SB_ENTITIES    what the paths of the entities of entities.json begin with

import { ServiceBusClient } from "@azure/service-bus";
import { setTimeout as sleep } from "node:timers/promises";
import WebSocket from "ws";

export { sleep };
export const path = (name) => `${process.env.SB_ENTITIES}/${name}`;

/** A client that does not try again, so that a test sees what fails. */
export function connect(t, { timeoutInMs = 10_000, connectionString = process.env.SERVICE_BUS, ...options } = {}) {
  const client = new ServiceBusClient(connectionString, {
    retryOptions: { maxRetries: 0, timeoutInMs },
    ...(process.env.SB_WEBSOCKET && { webSocketOptions: { webSocket: WebSocket } }),
    ...options,
  });
  t.after(() => client.close());
  return client;
}

/** Sends one message after the other; `properties` are for all of them. */
export async function send(client, name, bodies, properties = {}) {
  const sender = client.createSender(path(name));
  for (const body of bodies) await sender.sendMessages({ body, ...properties });
  await sender.close();
}

/** So many messages; a receive call may return fewer. */
export async function take(receiver, count, seconds = 15) {
  const messages = [];
  for (const until = Date.now() + seconds * 1000; messages.length < count; ) {
    const left = until - Date.now();
    if (left <= 0) throw new Error(`${messages.length} of ${count} messages in time`);
    messages.push(...(await receiver.receiveMessages(count - messages.length, { maxWaitTimeInMs: left })));
  }
  return messages;
}

/** The bodies of the next messages, which are completed. */
export async function complete(receiver, count) {
  const messages = await take(receiver, count);
  for (const message of messages) await receiver.completeMessage(message);
  return bodies(messages);
}

/** What is left of an entity, whose messages have some time to go. */
export async function left(client, name) {
  for (const until = Date.now() + 15_000; ; await sleep(50)) {
    const receiver = client.createReceiver(path(name)), found = await receiver.peekMessages(5);
    await receiver.close();
    if (found.length === 0 || Date.now() > until) return found;
  }
}

export const bodies = (messages) => messages.map((message) => message.body);
export const silent = async (receiver, ms = 400) => (await receiver.receiveMessages(1, { maxWaitTimeInMs: ms })).length === 0;
export const after = (ms) => new Date(Date.now() + ms);

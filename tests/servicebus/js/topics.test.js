// Topics, and rules that change while messages flow.

import assert from "node:assert/strict";
import { test } from "node:test";
import { bodies, complete, connect, path, send, silent, take } from "./client.js";

async function rules(manager) {
  const found = [];
  for await (const rule of manager.listRules()) found.push(rule);
  return found;
}

test("rules are listed, made and removed", async (t) => {
  const client = connect(t), manager = client.createRuleManager(path("rules"), "changing");
  const receiver = client.createReceiver(path("rules"), "changing");
  const [standard, ...none] = await rules(manager);
  assert.deepEqual([standard.name, none], ["$Default", []]);
  await send(client, "rules", ["with the default rule"]);
  assert.deepEqual(await complete(receiver, 1), ["with the default rule"]);

  await manager.deleteRule("$Default");
  await send(client, "rules", ["with no rule"]);
  await manager.createRule("red", { sqlExpression: "colour = 'red'" });
  await manager.createRule("label", { subject: "important", applicationProperties: { kind: "x" } });
  await send(client, "rules", ["red"], { applicationProperties: { colour: "red" } });
  await send(client, "rules", ["blue"], { applicationProperties: { colour: "blue" } });
  await send(client, "rules", ["labelled"], { subject: "important", applicationProperties: { kind: "x" } });
  await send(client, "rules", ["of another kind"], { subject: "important" });
  assert.deepEqual(await complete(receiver, 2), ["red", "labelled"]);
  assert(await silent(receiver));

  const listed = Object.fromEntries((await rules(manager)).map((rule) => [rule.name, rule.filter]));
  assert.deepEqual(Object.keys(listed).sort(), ["label", "red"]);
  assert.equal(listed.red.sqlExpression, "colour = 'red'");
  assert.equal(listed.label.subject, "important");
  assert.deepEqual({ ...listed.label.applicationProperties }, { kind: "x" });

  const other = client.createReceiver(path("rules"), "other");
  assert.equal((await take(other, 6)).length, 6, "the other subscription is as it was");
});

test("a rule may change messages", async (t) => {
  const client = connect(t), manager = client.createRuleManager(path("actions"), "s");
  await manager.deleteRule("$Default");
  await manager.createRule("raise", { sqlExpression: "price > 100" }, { sqlExpression: "SET checked = TRUE; SET price = price * 2" });
  await send(client, "actions", ["cheap"], { applicationProperties: { price: 5 } });
  await send(client, "actions", ["dear"], { applicationProperties: { price: 500 } });
  const [message] = await take(client.createReceiver(path("actions"), "s"), 1);
  assert.equal(message.body, "dear");
  assert.deepEqual([message.applicationProperties.checked, Number(message.applicationProperties.price)], [true, 1000]);
  const [rule] = await rules(manager);
  assert.equal(rule.action.sqlExpression, "SET checked = TRUE; SET price = price * 2");
});

test("correlation filters compare every property that they name", async (t) => {
  const client = connect(t), manager = client.createRuleManager(path("correlated"), "s");
  const wanted = {
    correlationId: "c", messageId: "m", to: "t", replyTo: "r", subject: "l", sessionId: "s", replyToSessionId: "rs", contentType: "ct",
  };
  await manager.deleteRule("$Default");
  await manager.createRule("all", wanted);
  await send(client, "correlated", ["wanted"], wanted);
  for (const name of Object.keys(wanted)) await send(client, "correlated", [`other ${name}`], { ...wanted, [name]: "other" });
  const receiver = client.createReceiver(path("correlated"), "s");
  assert.deepEqual(bodies(await take(receiver, 1)), ["wanted"]);
  assert(await silent(receiver));
  const [rule] = await rules(manager);
  for (const [name, value] of Object.entries(wanted)) assert.equal(rule.filter[name], value, name);
});

test("rules that cannot be", async (t) => {
  const client = connect(t), manager = client.createRuleManager(path("wrong"), "s");
  await assert.rejects(manager.createRule("bad", { sqlExpression: "colour = = 'red'" }));
  await assert.rejects(manager.createRule("$Default", { sqlExpression: "1 = 1" }), { code: "MessagingEntityAlreadyExists" });
  await assert.rejects(manager.deleteRule("not there"), { code: "MessagingEntityNotFound" });
  assert.deepEqual((await rules(manager)).map((rule) => rule.name), ["$Default"]);
});

test("a subscription with sessions", async (t) => {
  const client = connect(t);
  await send(client, "sessions", ["a", "b"], { sessionId: "one" });
  await send(client, "sessions", ["no session"]);
  const receiver = await client.acceptNextSession(path("sessions"), "s");
  assert.equal(receiver.sessionId, "one");
  assert.deepEqual(await complete(receiver, 2), ["a", "b"]);
  const [dead] = await take(client.createReceiver(path("sessions"), "s", { subQueueType: "deadLetter" }), 1);
  assert.deepEqual([dead.body, dead.deadLetterReason], ["no session", "Session ID is null"]);
});

// ServiceBusAdministrationClient. SERVICE_BUS names the address for administration, which has TLS.

import assert from "node:assert/strict";
import { test } from "node:test";
import { ServiceBusAdministrationClient } from "@azure/service-bus";

const connect = () => new ServiceBusAdministrationClient(process.env.SERVICE_BUS, { retryOptions: { maxRetries: 0 } });
const collect = async (list) => {
  const all = [];
  for await (const one of list) all.push(one);
  return all;
};

test("a queue is made, found, changed and deleted", async () => {
  const client = connect();
  const made = await client.createQueue("js/Queue", { requiresSession: true, lockDuration: "PT5S", userMetadata: "<&>" });
  assert.equal(made.name, "js/Queue");
  const queue = await client.getQueue("js/queue");
  assert.deepEqual([queue.name, queue.requiresSession, queue.lockDuration, queue.userMetadata], ["js/Queue", true, "PT5S", "<&>"]);
  queue.maxDeliveryCount = 3;
  assert.equal((await client.updateQueue(queue)).maxDeliveryCount, 3);
  assert.equal(await client.queueExists("js/queue"), true);
  await assert.rejects(client.createQueue("js/Queue"), { code: "MessageEntityAlreadyExistsError" });
  const counts = await client.getQueueRuntimeProperties("js/Queue");
  assert.deepEqual([counts.totalMessageCount, counts.activeMessageCount, counts.sizeInBytes], [0, 0, 0]);
  await client.deleteQueue("js/Queue");
  assert.equal(await client.queueExists("js/queue"), false);
  await assert.rejects(client.getQueue("js/Queue"), { code: "MessageEntityNotFoundError" });
});

test("a topic has subscriptions, and these have rules", async () => {
  const client = connect(), at = new Date("2026-07-05T11:12:13.000Z");
  await client.createTopic("js-topic", { autoDeleteOnIdle: "PT1H" });
  assert.equal((await client.getTopic("js-topic")).autoDeleteOnIdle, "PT1H");
  const defaultRuleOptions = { name: "first", filter: { sqlExpression: "a = 1" } };
  await client.createSubscription("js-topic", "one", { defaultRuleOptions });
  await client.createSubscription("js-topic", "two");
  assert.deepEqual((await collect(client.listSubscriptions("js-topic"))).map((one) => one.subscriptionName), ["one", "two"]);
  const applicationProperties = { number: 7, text: "x", truth: false, at };
  const filter = { subject: "s", applicationProperties };
  await client.createRule("js-topic", "one", "second", filter, { sqlExpression: "SET b = 2" });
  const rules = await collect(client.listRules("js-topic", "one"));
  assert.deepEqual(rules.map((rule) => rule.name), ["first", "second"]);
  assert.equal(rules[0].filter.sqlExpression, "a = 1");
  const found = await client.getRule("js-topic", "one", "second");
  assert.deepEqual([found.filter.subject, found.filter.applicationProperties, found.action.sqlExpression], ["s", applicationProperties, "SET b = 2"]);
  await client.updateRule("js-topic", "one", { ...found, filter: { sqlExpression: "c = 3" } });
  assert.equal((await client.getRule("js-topic", "one", "second")).filter.sqlExpression, "c = 3");
  await client.deleteRule("js-topic", "one", "first");
  assert.equal((await client.getTopicRuntimeProperties("js-topic")).subscriptionCount, 2);
  assert.equal((await client.getSubscriptionRuntimeProperties("js-topic", "two")).totalMessageCount, 0);
  await client.deleteSubscription("js-topic", "two");
  assert.equal(await client.subscriptionExists("js-topic", "two"), false);
  await client.deleteTopic("js-topic");
});

test("an entity forwards to another one", async () => {
  const client = connect();
  await client.createQueue("js-target");
  const queue = await client.createQueue("js-source", { forwardTo: "js-target", forwardDeadLetteredMessagesTo: "js-target" });
  assert.match(queue.forwardTo, /\/js-target$/);
  assert.match((await client.getQueue("js-source")).forwardDeadLetteredMessagesTo, /\/js-target$/);
});

test("lists have pages", async () => {
  const client = connect(), names = Array.from({ length: 120 }, (_, number) => `js-page-${String(number).padStart(3, "0")}`);
  for (const name of names) await client.createQueue(name);
  const listed = (await collect(client.listQueues())).map((queue) => queue.name).filter((name) => name.startsWith("js-page"));
  assert.deepEqual(listed, names);
  const [page] = await collect(client.listQueuesRuntimeProperties().byPage({ maxPageSize: 50 }));
  assert.equal(page.length, 50);
});

test("who has no right is told", async () => {
  const client = new ServiceBusAdministrationClient(process.env.SERVICE_BUS.replace(/SharedAccessKey=[^;]*/, "SharedAccessKey=wrong"));
  await assert.rejects(client.getQueue("js-target"), { code: "UnauthorizedRequestError" });
  const { name } = await connect().getNamespaceProperties();
  assert.equal(name, "default");
});

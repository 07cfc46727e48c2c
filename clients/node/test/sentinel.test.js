// Locks of a primary with Sentinels: followed when it fails.
import assert from "node:assert/strict";
import { after, afterEach, it } from "node:test";
import { Redlock } from "redis-lock-client";
import { allLibraries, Clients, until, waysOf } from "./harness.js";
import { begin, end, Sentinels } from "./topology.js";

const sentinels = await Sentinels.start();
after(() => sentinels.stop());

const clients = new Clients();
afterEach(clients.end);

const watched = Object.fromEntries(Object.entries(allLibraries).filter(([, one]) => one.connectSentinel));
const connectSentinel = (library) => clients.add(library, "connectSentinel", sentinels.ports);

it("sentinel_failover: holds and waits go on, and all quit", { timeout: 90_000 }, async () => {
  const primary = await sentinels.primary();
  const stories = await begin(waysOf(watched), connectSentinel, (title) => `failover ${title}`, primary);
  const now = await sentinels.failOver();
  await end(stories, now);
  await Promise.all(stories.map(({ waiter }) => waiter.quit()));
  await clients.end();
  await until(async () => (await now.clients()).length === 0, "all connections are closed");
});

it("sentinel_failover: who waits for less gives up in its time", { timeout: 60_000 }, async () => {
  const primary = await sentinels.primary();
  await primary.admin.call("LOCK.ACQUIRE", "deadline", "other", 60_000);
  const settings = { retryCount: 1, retryDelay: 1000, retryJitter: 0 };
  const connecting = waysOf(watched).map(async ({ library, waitBy }, i) => {
    const redlock = new Redlock([await connectSentinel(library)], { ...settings, waitBy });
    await (await redlock.acquire([`warm ${i}`], 30_000, { retryCount: -1 })).release();
    return redlock;
  });
  const redlocks = await Promise.all(connecting);
  const refused = redlocks.map((redlock) => assert.rejects(redlock.acquire(["deadline"], 5000)));
  await until(async () => (await primary.waiters("deadline")).length === redlocks.length, "all wait");
  process.kill(primary.pid, "SIGSTOP");
  await Promise.all(refused).finally(() => process.kill(primary.pid, "SIGCONT"));
});

// Locks of a primary that Sentinels watch, through its failure.
import assert from "node:assert/strict";
import { after, afterEach, before, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Redlock } from "redis-lock-client";
import { allLibraries, until } from "./harness.js";
import { begin, end, Sentinels } from "./topology.js";

let sentinels;
before(async () => (sentinels = await Sentinels.start()), { timeout: 60_000 });
after(() => sentinels?.stop());

const libraries = Object.entries(allLibraries).filter(([, library]) => library.connectSentinel);
const ways = libraries.flatMap(([name, library]) =>
  ["block", "notify"].map((waitBy) => ({ title: `${name}, ${waitBy}`, library, waitBy })),
);

const ends = [];
const connect = async (library) => {
  const client = await library.connectSentinel(sentinels.ports);
  ends.push(() => library.end(client));
  return client;
};
afterEach(() => Promise.all(ends.splice(0).map((end) => end())));

it(
  "sentinel_failover: holds and waits go on with their tokens, and all quit",
  { timeout: 90_000 },
  async () => {
    const primary = await sentinels.primary();
    const stories = await begin(ways, connect, (title) => `failover ${title}`, primary);
    await sentinels.failOver();
    const now = await sentinels.primary();
    await end(stories, now);
    await Promise.all(stories.map(({ waiter }) => waiter.quit()));
    await Promise.all(ends.splice(0).map((end) => end()));
    await until(async () => (await now.clients()).length === 0, "all connections are closed");
  },
);

it(
  "sentinel_failover_and_a_deadline: who waits for less gives up in its time",
  { timeout: 60_000 },
  async () => {
    const primary = await sentinels.primary();
    const held = await primary.admin.call("LOCK.ACQUIRE", "deadline", "other", 60_000);
    assert.ok(held > 0);
    const settings = { retryCount: 1, retryDelay: 1000, retryJitter: 0 };
    const redlocks = await Promise.all(
      ways.map(async ({ library, waitBy }) => new Redlock([await connect(library)], { ...settings, waitBy })),
    );
    await Promise.all(
      redlocks.map(async (redlock, i) => (await redlock.acquire([`warm ${i}`], 1000)).release()),
    );
    const start = performance.now();
    const refused = redlocks.map((redlock) => assert.rejects(redlock.acquire(["deadline"], 5000)));
    await sleep(300);
    process.kill(primary.pid, "SIGSTOP");
    await Promise.all(refused).finally(() => process.kill(primary.pid, "SIGCONT"));
    assert.ok(performance.now() - start < 6000, `${performance.now() - start} ms`);
  },
);

// Locks of a primary that Sentinels watch, through its failure.
import assert from "node:assert/strict";
import { after, afterEach, before, describe, it } from "node:test";
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
const connect = async (library, options) => {
  const client = await library.connectSentinel(sentinels.ports, options);
  ends.push(() => library.end(client));
  return client;
};
afterEach(() => Promise.all(ends.splice(0).map((end) => end())));

for (const { title, library, waitBy } of ways) {
  describe(title, () => {
    it("sentinel: quits with all its connections, and gives up its places", async () => {
      const primary = await sentinels.primary();
      const redlock = new Redlock([await connect(library)], { retryCount: -1, waitBy });
      const key = `sentinel quits ${title}`;
      await redlock.acquire([key], 5000);
      const waiting = redlock.acquire([key], 5000);
      await Promise.all([
        assert.rejects(waiting),
        until(async () => (await primary.listening(key)).length === 1).then(() => redlock.quit()),
      ]);
      assert.deepEqual(await primary.places(key), []);
      await until(async () => (await primary.users()).length === 0, "all connections are closed");
    });
  });
}

it(
  "sentinel_failover_in_a_wait_and_in_a_hold: both go on with their tokens",
  { timeout: 90_000 },
  async () => {
    const primary = await sentinels.primary();
    const stories = await begin(ways, connect, (title) => `failover ${title}`, primary);
    await sentinels.failOver();
    const now = await sentinels.primary();
    await end(stories, now);
    // The one that has died comes back.
    await sentinels.servers.find((server) => server !== now).run();
    await sentinels.isWhole();
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
    const acquires = await Promise.all(
      ways.map(async ({ title, library, waitBy }) => {
        const redlock = new Redlock([await connect(library)], { ...settings, waitBy });
        await (await redlock.acquire([`${title} warm`], 1000)).release();
        return () => {
          const start = performance.now();
          return redlock.acquire(["deadline"], 5000).then(
            () => assert.fail(`${title}: granted`),
            () => [title, performance.now() - start],
          );
        };
      }),
    );
    const waiting = acquires.map((acquire) => acquire());
    await sleep(300);
    process.kill(primary.pid, "SIGSTOP");
    try {
      for (const [title, ms] of await Promise.all(waiting)) assert.ok(ms < 6000, `${title}: ${ms} ms`);
    } finally {
      process.kill(primary.pid, "SIGCONT");
    }
  },
);

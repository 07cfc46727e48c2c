// Many waiters that share a connection, and hear of their grants on a channel.
import assert from "node:assert/strict";
import { after, afterEach, before, beforeEach, describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Redlock } from "redis-lock-client";
import { Clients, libraries, Proxy, Server, until, Redis } from "./harness.js";

let server;
before(async () => (server = await Server.start()));
after(() => server?.stop());

for (const [name, library] of Object.entries(libraries)) {
  describe(name, () => {
    let client, redlock, key;
    let number = 0;
    const clients = new Clients(library);
    const connect = (port = server.port, options = {}) => clients.connect(port, options);
    beforeEach(async () => {
      key = `${name} ${++number} zwölf`;
      client = await connect();
      redlock = new Redlock([client], { retryCount: -1, waitBy: "notify" });
    });
    afterEach(async () => {
      clients.end();
      await until(async () => (await server.clients()).length === 0, "all connections are closed");
    });
    const isListening = (count) =>
      until(async () => (await server.listening(key)).length === count, `${count} listen`);

    it("lets any number wait over three connections, in order", { timeout: 120_000 }, async (t) => {
      const WAITERS = Number(process.env.REDIS_LOCK_WAITERS ?? 2_000);
      const keys = Array.from({ length: 20 }, (_, i) => `${key} many ${i}`);
      const holders = await Promise.all(keys.map((one) => redlock.acquire([one], 600_000)));
      const orders = keys.map(() => []);
      const start = performance.now();
      const all = Array.from({ length: WAITERS }, async (_, i) => {
        const lock = await redlock.acquire([keys[i % keys.length]], 60_000);
        orders[i % keys.length].push(i);
        await lock.release();
      });
      const isComplete = async () =>
        (await server.admin.info("lock")).includes(`lock_waiters_notified:${WAITERS}\r`);
      for (const limit = start + 60_000; !(await isComplete()); await sleep(100))
        assert.ok(performance.now() < limit, "all wait");
      const waiting = performance.now();
      assert.equal((await server.clients()).length, 3, "the user's, one for commands, one that listens");
      await Promise.all(holders.map((lock) => lock.release()));
      await Promise.all(all);
      const end = performance.now();
      t.diagnostic(
        `${WAITERS} waiters in ${((waiting - start) / 1000).toFixed(1)} s, granted in ${((end - waiting) / 1000).toFixed(1)} s`,
      );
      for (const order of orders)
        assert.deepEqual(
          order,
          order.toSorted((a, b) => a - b),
        );
    });

    it("hears of its grant at once", async () => {
      const first = await redlock.acquire([key], 30_000);
      const waiting = redlock.acquire([key], 30_000, { blockSlice: 60_000 });
      await isListening(1);
      const calls = await server.calls("lock.acquire");
      await sleep(300);
      const start = performance.now();
      await first.release();
      const lock = await waiting;
      const took = performance.now() - start;
      assert.ok(took < 10_000, `${took} ms, and a slice is 60 s`);
      assert.equal(await server.calls("lock.acquire"), calls, "nobody asks meanwhile");
      assert.ok(lock.fence > first.fence);
    });

    it("keeps its place when nobody hears of its grant", async () => {
      const first = await redlock.acquire([key], 30_000);
      const waiting = redlock.acquire([key], 30_000);
      await isListening(1);
      let passed = false;
      const rival = new Redis(server.port);
      const behind = rival.call("LOCK.ACQUIRE", key, "rival", 30_000, "BLOCK", 0).then(() => (passed = true));
      await isListening(2);
      // Together, so that no new subscription comes between.
      const both = server.admin.pipeline().client("KILL", "TYPE", "pubsub");
      await both.call("LOCK.RELEASE", key, first.value).exec();
      const lock = await waiting;
      assert.equal(passed, false);
      await lock.release();
      await behind;
      rival.disconnect();
    });

    it("subscribes again when the client has a new connection", async () => {
      const first = await redlock.acquire([key], 30_000);
      const waiting = redlock.acquire([key], 30_000);
      await isListening(1);
      const ids = async () => (await server.clients()).map(({ id }) => id);
      const before = await ids();
      await server.admin.client("KILL", "TYPE", "normal", "SKIPME", "yes");
      await until(async () => {
        const now = await ids();
        return now.filter((id) => !before.includes(id)).length === 2;
      }, "the user's connection and ours are new");
      await isListening(1);
      await first.release();
      await waiting;
    });

    // The oldest node-redis sends nothing when it opens a connection.
    const messages = { opens: /info|hello|subscribe/i, "subscribes to": /subscribe/i };
    for (const [what, message] of Object.entries(messages))
      it(`does not wait for a server that says nothing when it ${what} the channel`, async () => {
        const proxy = await Proxy.start(server.port);
        try {
          const far = new Redlock([await connect(proxy.port)], { retryCount: -1, waitBy: "notify" });
          const first = await redlock.acquire([key], 30_000);
          proxy.silentAfter = message;
          const waiting = far.acquire([key], 30_000);
          waiting.catch(() => {});
          await until(() => proxy.silentAfter === undefined, "it has asked");
          await isListening(1);
          await first.release();
          await waiting;
        } finally {
          proxy.stop();
        }
      });

    it("gives up also what comes after its release", async () => {
      // The request that waits is on its way for longer than the caller waits, and for longer than the release.
      const proxy = await Proxy.start(server.port);
      try {
        const slow = new Redlock([await connect(proxy.port)], { blockSlice: 50, retryCount: 4 });
        const first = await redlock.acquire([key], 30_000);
        const warm = slow.acquire([key], 30_000, { retryCount: -1 });
        await isListening(1);
        await first.release();
        await (await warm).release();
        const second = await redlock.acquire([key], 30_000);
        proxy.holdNewest();
        await assert.rejects(slow.acquire([key], 30_000, { retryCount: 1, retryDelay: 100 }));
        await second.release();
        assert.deepEqual(await server.holders(key), []);
        const calls = await server.calls("lock.acquire");
        proxy.go();
        await until(async () => (await server.calls("lock.acquire")) > calls, "the late request has arrived");
        await until(async () => (await server.admin.call("LOCK.INFO", key)) === null, "nothing is left");
      } finally {
        proxy.stop();
      }
    });
  });
}

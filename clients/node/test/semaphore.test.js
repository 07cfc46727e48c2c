import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { after, afterEach, before, beforeEach, describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { ExecutionError, Redlock, ResourceLockedError, UnsupportedError } from "redis-lock-client";
import { asWithOldModule, Clients, libraries, Proxy, Server, until, ways } from "./harness.js";

let server;
before(async () => (server = await Server.start()));
after(() => server?.stop());

it("never has more holders than permits in several processes", { timeout: 60_000 }, async () => {
  const worker = fileURLToPath(new URL("permit-worker.js", import.meta.url));
  const run = ({ name, waitBy }) =>
    promisify(execFile)(process.execPath, [worker, server.port, name, waitBy, "processes", 3].map(String));
  const runs = await Promise.all([...ways, ...ways, ...ways].slice(0, 6).map(run));
  const counts = runs.flatMap(({ stdout }) => stdout.trim().split("\n").map(Number));
  assert.equal(counts.length, 24);
  assert.equal(Math.max(...counts), 3, String(counts));
  assert.equal(await server.admin.call("LOCK.INFO", "processes"), null);
});

it("refuses permits that are none, and several clients", async () => {
  const clients = [1, 2].map(() => server.admin.duplicate({ lazyConnect: true }));
  for (const bad of [0, -1, 1.5, 2 ** 31, "3"])
    assert.throws(() => new Redlock([clients[0]]).semaphore("a", bad), RangeError);
  assert.throws(() => new Redlock(clients).semaphore("a", 2), TypeError);
});

for (const { title, library, waitBy } of ways) {
  describe(title, () => {
    let redlock, semaphore, key;
    let number = 0;
    const clients = new Clients(library);
    beforeEach(async () => {
      key = `${title} ${++number}`;
      const client = await clients.connect(server.port);
      redlock = new Redlock([client], { retryCount: -1, retryDelay: 50, waitBy });
      semaphore = redlock.semaphore(key, 2);
    });
    afterEach(() => clients.end());
    const isListening = (count) =>
      until(async () => (await server.listening(key)).length === count, `${count} listen`);

    it("gives as many permits as there are, each with its own fence and token", async () => {
      const [one, two] = [await semaphore.acquire(30_000), await semaphore.tryAcquire(30_000)];
      assert.ok(two.fence > one.fence);
      assert.notEqual(one.value, two.value);
      assert.deepEqual((await server.holders(key)).sort(), [one.value, two.value].sort());
      assert.equal(await semaphore.tryAcquire(30_000), null);
      await assert.rejects(
        semaphore.acquire(30_000, { retryCount: 2 }),
        (error) => error instanceof ExecutionError && error.cause instanceof ResourceLockedError,
      );
      assert.deepEqual(await server.places(key), [], "nothing is left of who gave up");
      await one.release();
      assert.ok((await semaphore.tryAcquire(30_000)).fence > two.fence);
    });

    it("grants its waiters in the order of arrival", async () => {
      const held = [await semaphore.acquire(30_000), await semaphore.acquire(30_000)];
      const order = [];
      const all = [];
      for (let i = 0; i < 6; i++) {
        all.push(
          semaphore.acquire(30_000, { blockSlice: 250 }).then(async (lock) => {
            order.push([i, lock.fence]);
            await sleep(100);
            await lock.release();
          }),
        );
        await until(async () => (await server.waiters(key)).length === i + 1);
      }
      for (const lock of held) await lock.release();
      await Promise.all(all);
      const byFence = order.toSorted(([, a], [, b]) => a - b).map(([i]) => i);
      assert.deepEqual(byFence, [0, 1, 2, 3, 4, 5]);
    });

    it("lets a writer drain it, and another limit count while its holder has it", async () => {
      const one = await semaphore.acquire(30_000);
      const alone = redlock.acquire([key], 30_000);
      await isListening(1);
      assert.equal(await semaphore.tryAcquire(30_000), null, "behind the writer");
      await one.release();
      await (await alone).release();
      const wide = await redlock.semaphore(key, 5).acquire(30_000);
      const narrow = await semaphore.acquire(30_000);
      assert.equal(await redlock.semaphore(key, 5).tryAcquire(30_000), null);
      await narrow.release();
      assert.ok(await redlock.semaphore(key, 5).tryAcquire(30_000));
      await wide.release();
    });

    it("keeps a permit for as long as the routine runs", async () => {
      await semaphore.using(400, { automaticExtensionThreshold: 200 }, async (signal, lock) => {
        await sleep(900);
        assert.deepEqual(await server.holders(key), [lock.value]);
        assert.ok(!signal.aborted);
      });
      assert.deepEqual(await server.holders(key), []);
    });

    it("goes on at its place when its connections are cut", async () => {
      const proxy = await Proxy.start(server.port);
      const held = [await semaphore.acquire(30_000), await semaphore.acquire(30_000)];
      const client = await clients.connect(proxy.port);
      const waiting = new Redlock([client], { retryCount: -1, retryDelay: 50, waitBy })
        .semaphore(key, 2)
        .acquire(30_000);
      await isListening(1);
      const [token] = await server.waiters(key);
      const behind = semaphore.acquire(30_000);
      await isListening(2);
      proxy.cut();
      await held[0].release();
      const lock = await waiting;
      assert.equal(lock.value, token);
      await held[1].release();
      assert.ok((await behind).fence > lock.fence);
      clients.end();
      proxy.stop();
    });

    it("leaves nothing behind when it quits", async () => {
      const held = [await semaphore.acquire(30_000), await semaphore.acquire(30_000)];
      const other = new Redlock([await clients.connect(server.port)], { retryCount: -1, waitBy });
      const waiting = other.semaphore(key, 2).acquire(30_000);
      waiting.catch(() => {});
      await isListening(1);
      await other.quit();
      await assert.rejects(waiting);
      assert.deepEqual(await server.places(key), []);
      assert.equal((await server.holders(key)).length, held.length);
    });

    it("says what a module of 0.1 lacks", async () => {
      const old = new Redlock([asWithOldModule(await clients.connect(server.port))], { waitBy });
      await assert.rejects(
        old.semaphore(key, 2).acquire(1000),
        (error) => error.cause instanceof UnsupportedError && /LIMIT.* 0\.2/.test(error.message),
      );
      assert.equal(await server.admin.call("LOCK.INFO", key), null);
    });
  });
}

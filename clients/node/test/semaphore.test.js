import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { after, afterEach, before, beforeEach, describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { Redlock, UnsupportedError } from "redis-lock-client";
import { asWithOldModule, Clients, Server, until, ways } from "./harness.js";

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

    it("is had at once, or not at all", async () => {
      const held = [await semaphore.tryAcquire(30_000), await semaphore.tryAcquire(30_000)];
      assert.notEqual(held[0].value, held[1].value);
      assert.equal(await semaphore.tryAcquire(30_000), null);
      assert.deepEqual(await server.places(key), []);
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

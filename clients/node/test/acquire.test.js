import assert from "node:assert/strict";
import { after, afterEach, before, beforeEach, describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import * as redis from "redis";
import { ExecutionError, Lock, Redlock, ResourceLockedError } from "redis-lock-client";
import { Clients, ioredis, library, Proxy, Server, until, ways } from "./harness.js";

let server;
before(async () => (server = await Server.start()));
after(() => server?.stop());

for (const { title, library, waitBy } of ways) {
  describe(title, () => {
    let client, redlock, proxy;
    const clients = new Clients(library);
    const connect = (port = server.port) => clients.connect(port);
    const listening = (count) => until(async () => (await server.listening("a")).length === count);

    beforeEach(async () => {
      await server.admin.flushall();
      proxy = await Proxy.start(server.port);
      client = await connect();
      redlock = new Redlock([client], { waitBy });
    });
    afterEach(async () => {
      clients.end();
      proxy.stop();
      await until(async () => (await server.clients()).length === 0, "all connections are closed");
    });

    it("acquires, extends and releases", async () => {
      const lock = await redlock.acquire(["a"], 5000);
      assert.ok(lock instanceof Lock && lock.fence > 0 && lock.attempts.length === 1);
      assert.deepEqual(await server.holders("a"), [lock.value]);
      assert.ok(lock.isValid && lock.expiration > Date.now() && lock.expiration <= Date.now() + 5000);
      assert.equal(await lock.extend(60_000), lock);
      assert.ok((await server.admin.pttl("a")) > 50_000 && lock.remaining > 50_000);
      await lock.release();
      assert.deepEqual([await server.holders("a"), lock.isValid, lock.expiration], [[], false, 0]);
    });

    it("gives up after retryCount times retryDelay, and at once with retryCount 0", async () => {
      await redlock.acquire(["a"], 30_000);
      const start = performance.now();
      const refused = await redlock
        .acquire(["a"], 30_000, { retryCount: 3, retryDelay: 100 })
        .catch((error) => error);
      assert.ok(performance.now() - start >= 295);
      assert.ok(refused instanceof ExecutionError && refused.cause instanceof ResourceLockedError);
      assert.equal(refused.code, "ERR_LOCK_TAKEN");
      const [{ membershipSize, votesFor, votesAgainst }] = await Promise.all(refused.attempts);
      assert.deepEqual([membershipSize, votesFor.size, votesAgainst.size], [1, 0, 1]);
      assert.deepEqual(await server.waiters("a"), []);
      await assert.rejects(redlock.acquire(["a"], 30_000, { retryCount: 0 }), { code: "ERR_LOCK_TAKEN" });
    });

    it("is decided also when a listener throws", { timeout: 5000 }, async () => {
      await redlock.acquire(["a"], 30_000);
      redlock.on("error", () => {
        throw new RangeError("the listener's");
      });
      const refused = await redlock.acquire(["a"], 30_000, { retryCount: 0 }).catch((error) => error);
      await assert.rejects(refused.attempts[0], RangeError);
      assert.ok(refused.cause instanceof ResourceLockedError);
    });

    it("leaves the queue at once when its signal is aborted", async () => {
      const first = await redlock.acquire(["a"], 30_000);
      const stop = new AbortController();
      const waiting = redlock.using(["a"], 30_000, { retryCount: -1, signal: stop.signal }, assert.fail);
      await listening(1);
      stop.abort(new RangeError("mine"));
      await assert.rejects(waiting, RangeError);
      assert.deepEqual([await server.waiters("a"), await server.holders("a")], [[], [first.value]]);
      await assert.rejects(redlock.acquire(["b"], 1000, { signal: stop.signal }), RangeError);
      assert.equal(await server.admin.exists("b"), 0);
    });

    it("holds nothing when it is aborted as it is granted", async () => {
      const first = await redlock.acquire(["a"], 30_000);
      const stop = new AbortController();
      const waiting = redlock.acquire(["a"], 30_000, { retryCount: -1, signal: stop.signal });
      await listening(1);
      const released = first.release();
      stop.abort();
      await assert.rejects(waiting, { name: "AbortError" });
      await released;
      await until(async () => (await server.holders("a")).length === 0);
    });

    it("waits in slices, with one token", async () => {
      const first = await redlock.acquire(["a"], 30_000);
      const waiting = redlock.acquire(["a"], 30_000, { retryCount: -1, blockSlice: 50 });
      const calls = await server.calls("lock.acquire");
      await until(async () => (await server.calls("lock.acquire")) > calls + 4);
      await first.release();
      const second = await waiting;
      assert.deepEqual(await server.holders("a"), [second.value]);
      assert.equal(second.attempts.length, 1, "an endless wait does not gather attempts");
    });

    it("extends and releases while the user's client waits for something else", async () => {
      const blocked = library.isLikeIoredis
        ? client.blpop("nothing", 0)
        : client.sendCommand(["BLPOP", "nothing", "0"]);
      blocked.catch(() => {});
      const lock = await redlock.acquire(["a"], 30_000);
      await lock.extend(60_000);
      await lock.release();
      assert.deepEqual(await server.holders("a"), []);
    });

    it("shares few connections, which end with the client's", async () => {
      const own = new Redlock([client], { maxWaitingConnections: 2, retryCount: -1, retryDelay: 20, waitBy });
      const first = await own.acquire(["a"], 30_000);
      let inside = 0;
      const routine = async () => {
        assert.equal(++inside, 1);
        await sleep(5);
        inside--;
      };
      const all = [1, 2, 3, 4, 5, 6].map(() => own.using(["a"], 30_000, routine));
      await until(async () => (await server.waiters("a")).length === 6, "all have a place");
      const most = waitBy === "block" ? 4 : 3;
      assert.equal((await server.clients()).length, most);
      await first.release();
      await Promise.all(all);
      assert.equal((await server.clients()).length, most, "they are kept, and no more than these");
      library.end(client);
      await until(async () => (await server.clients()).length === 0);
    });

    it("quits all: no place stays, and nothing is granted", async () => {
      const first = await redlock.acquire(["a"], 30_000);
      const waiting = redlock.acquire(["a"], 5000, { retryCount: -1 });
      await listening(1);
      // The server grants it, and reads the release of it next.
      const released = first.release();
      const quit = redlock.quit();
      await assert.rejects(waiting, ExecutionError);
      await Promise.allSettled([released, quit]);
      assert.deepEqual([await server.waiters("a"), await server.holders("a")], [[], []]);
      await assert.rejects(redlock.acquire(["a"], 5000), ExecutionError);
    });

    it("finds what was granted, and what was released, when the reply was lost", async () => {
      const far = new Redlock([await connect(proxy.port)], { retryDelay: 50, waitBy, retryCount: -1 });
      await (await far.acquire(["warm"], 5000)).release();
      proxy.loseNextReply();
      const lock = await far.acquire(["a"], 30_000);
      assert.ok(proxy.hasLostReply);
      assert.deepEqual(await server.holders("a"), [lock.value]);
      proxy.loseNextReply();
      await lock.release();
      assert.ok(proxy.hasLostReply);
      assert.deepEqual(await server.holders("a"), []);
      const taken = await far.acquire(["a"], 30_000);
      await server.admin.del("a");
      await assert.rejects(taken.release(), { code: "ERR_LOCK_LOST" });
    });

    it("takes several resources in one step, or none", async () => {
      const low = await redlock.acquire(["a", "b", "a"], 5000);
      assert.deepEqual(low.resources, ["a", "b"]);
      assert.ok(low.fence > 0);
      const high = redlock.acquire(["c", "b"], 5000);
      await until(async () => (await server.waiters("b")).length === 1);
      assert.deepEqual(await server.holders("c"), []);
      await low.release();
      await (await high).release();
    });
  });
}

describe("a client", () => {
  it("of ioredis adds its prefix to the key, and waits for a string lock there", async (t) => {
    const client = await ioredis.connect(server.port, { keyPrefix: "app:" });
    t.after(() => client.disconnect());
    const redlock = new Redlock([client], { retryCount: -1 });
    const lock = await redlock.acquire(["a"], 5000);
    assert.deepEqual(await server.holders("app:a"), [lock.value]);
    await lock.release();
    const errors = [];
    redlock.on("error", (error) => errors.push(error));
    await server.admin.set("app:string", "an old client's", "PX", 30_000);
    const waiting = redlock.acquire(["string"], 5000);
    await until(() => errors.length >= 3);
    for (const error of errors) assert.match(error.message, /by a client with a string lock/);
    await server.admin.del("app:string");
    await (await waiting).release();
    await server.admin.hset("app:hash", "field", "value");
    await assert.rejects(redlock.acquire(["hash"], 5000), { code: "ERR_LOCK_REFUSED" });
  });

  for (const { title, library, waitBy } of ways)
    it(`has selected a database, ${title}`, async (t) => {
      const client = await library.connect(server.port);
      t.after(() => library.end(client));
      await client.select(2);
      const redlock = new Redlock([client], { waitBy, retryCount: -1 });
      const lock = await redlock.acquire(["selected"], 30_000);
      assert.deepEqual(await server.holders("selected"), []);
      const waiting = redlock.acquire(["selected"], 30_000);
      await lock.release();
      const next = await waiting;
      assert.equal(await next.check(), true);
      await next.release();
    });

  it("that cannot be used is refused, and so are wrong names", async () => {
    const client = await library.connect(server.port);
    assert.throws(() => new Redlock([]), /at least one/);
    assert.throws(() => new Redlock([{}]), TypeError);
    assert.throws(() => new Redlock([client, unconnected(client)]), /one client/);
    const redlock = new Redlock([client]);
    const routine = async () => assert.fail("it ran");
    for (const wrong of ["str", 7, undefined, [7], ["a", null]]) {
      await assert.rejects(redlock.acquire(wrong, 1000), TypeError);
      await assert.rejects(redlock.using(wrong, 1000, routine), TypeError);
      assert.throws(() => redlock.multiLock(wrong), TypeError);
    }
    for (const wrong of [7, undefined, ["a"]]) {
      assert.throws(() => redlock.semaphore(wrong, 2), TypeError);
      await assert.rejects(redlock.runOnce(wrong, { atMost: 1000 }, routine), TypeError);
    }
    for (const bad of [0, -1, 1.5, 2 ** 31, "3"])
      assert.throws(() => redlock.semaphore("a", bad), RangeError);
    assert.throws(() => redlock.multiLock([]), RangeError);
    assert.throws(() => redlock.multiLock(["a", "b"], ["a"]), /named twice/);
    await assert.rejects(redlock.acquire(["a"], 1000, { linger: 50 }), RangeError);
    for (const duration of [0, 2 ** 48 + 2, 2])
      await assert.rejects(redlock.acquire(["a"], duration), RangeError);
    await assert.rejects(redlock.acquire(["a"], 1.5), /integer/);
    library.end(client);
    const pool = redis.createClientPool();
    assert.throws(() => new Redlock([pool]), TypeError);
  });
});

/** Another client of the same library, which is not connected. */
const unconnected = (client) => client.duplicate({ lazyConnect: true });

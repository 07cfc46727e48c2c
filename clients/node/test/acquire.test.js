// How an acquire waits, and ends: what the shared scenarios do not say of it.
import assert from "node:assert/strict";
import { after, afterEach, before, beforeEach, describe, it } from "node:test";
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
    const isListening = () => until(async () => (await server.listening("a")).length === 1);
    const far = async (settings) =>
      new Redlock([await connect(proxy.port)], { retryCount: -1, retryDelay: 50, waitBy, ...settings });

    beforeEach(async () => {
      await server.admin.flushall();
      proxy = await Proxy.start(server.port);
      client = await connect();
      redlock = new Redlock([client], { retryCount: -1, waitBy });
    });
    afterEach(async () => {
      clients.end();
      proxy.stop();
      await until(async () => (await server.clients()).length === 0, "all connections are closed");
    });

    it("acquires, extends and releases, whatever the user's client waits for", async () => {
      const words = ["BLPOP", "nothing", "0"];
      const blocked = library.isLikeIoredis ? client.call(...words) : client.sendCommand(words);
      blocked.catch(() => {});
      const lock = await redlock.acquire(["a"], 5000);
      assert.ok(lock instanceof Lock && lock.fence > 0 && lock.attempts.length === 1);
      assert.ok(lock.isValid && lock.expiration > Date.now() && lock.expiration <= Date.now() + 5000);
      assert.equal(await lock.extend(60_000), lock);
      assert.ok((await server.admin.pttl("a")) > 50_000 && lock.remaining > 50_000);
      await lock.release();
      assert.deepEqual([await server.holders("a"), lock.isValid, lock.expiration], [[], false, 0]);
    });

    it("gives up after retryCount times retryDelay, also when a listener throws", async () => {
      await redlock.acquire(["a"], 30_000);
      const refusal = (settings) => redlock.acquire(["a"], 30_000, settings).catch((error) => error);
      const start = performance.now();
      const refused = await refusal({ retryCount: 3, retryDelay: 100 });
      assert.ok(performance.now() - start >= 295);
      assert.ok(refused instanceof ExecutionError && refused.cause instanceof ResourceLockedError);
      const [{ membershipSize, votesFor, votesAgainst }] = await Promise.all(refused.attempts);
      assert.deepEqual([membershipSize, votesFor.size, votesAgainst.size], [1, 0, 1]);
      redlock.on("error", () => {
        throw new RangeError("the listener's");
      });
      const { code, attempts } = await refusal({ retryCount: 0 });
      assert.equal(code, "ERR_LOCK_TAKEN");
      await assert.rejects(attempts[0], RangeError);
    });

    it("leaves the queue when its signal is aborted, and holds nothing if it was granted then", async () => {
      for (const isGranted of [false, true]) {
        const first = await redlock.acquire(["a"], 30_000);
        const stop = new AbortController();
        const waiting = redlock.using(["a"], 30_000, { signal: stop.signal }, assert.fail);
        await isListening();
        const released = isGranted && first.release();
        stop.abort(new RangeError("mine"));
        await assert.rejects(waiting, RangeError);
        assert.deepEqual(await server.waiters("a"), []);
        await (released || first.release());
        await until(async () => (await server.holders("a")).length === 0);
      }
      const signal = AbortSignal.abort();
      await assert.rejects(redlock.acquire(["a"], 1000, { signal }), { name: "AbortError" });
      assert.equal(await server.admin.exists("a"), 0);
    });

    it("is granted at once, and asks nothing meanwhile", async () => {
      const first = await redlock.acquire(["a"], 30_000);
      const waiting = redlock.acquire(["a"], 30_000, { blockSlice: 60_000 });
      await isListening();
      const calls = await server.calls("lock.acquire");
      const start = performance.now();
      await first.release();
      await waiting;
      const took = performance.now() - start;
      assert.ok(took < 10_000, `${took} ms, and a slice is 60 s`);
      // A command that blocks counts when it ends, on some servers.
      const more = (await server.calls("lock.acquire")) - calls;
      assert.ok(more <= (waitBy === "block" ? 1 : 0), `${more} more`);
    });

    it("takes what was granted while nobody listened, or on a connection that is half open", async () => {
      const waiter = await far({ blockSlice: 300 });
      for (const isHalfOpen of [false, true]) {
        const first = await redlock.acquire(["a"], 30_000);
        const waiting = waiter.acquire(["a"], 30_000);
        await isListening();
        const [{ token, client: id }] = await server.places("a");
        // Together, so that no new connection comes between.
        const both = server.admin.pipeline();
        if (isHalfOpen) proxy.freezeNewest();
        else both.client("KILL", ...(id === undefined ? ["TYPE", "pubsub"] : ["ID", id]));
        await both.call("LOCK.RELEASE", "a", first.value).exec();
        const lock = await waiting;
        assert.equal(lock.value, token);
        assert.equal(lock.attempts.length, 1, "an endless wait does not gather attempts");
        await lock.release();
      }
    });

    it("shares few connections, in the order of arrival", async () => {
      const own = new Redlock([client], { maxWaitingConnections: 2, retryCount: -1, retryDelay: 20, waitBy });
      const first = await own.acquire(["a"], 30_000);
      const [order, all] = [[], []];
      for (let i = 0; i < 6; i++) {
        all.push(own.using(["a"], 30_000, async () => void order.push(i)));
        await until(async () => (await server.waiters("a")).length === i + 1, "it has a place");
      }
      const most = waitBy === "block" ? 4 : 3;
      assert.equal((await server.clients()).length, most);
      await first.release();
      await Promise.all(all);
      assert.deepEqual(order, [0, 1, 2, 3, 4, 5]);
      assert.equal((await server.clients()).length, most, "they are kept, and no more than these");
    });

    it("quits all: no place stays, and nothing is granted", async () => {
      const first = await redlock.acquire(["a"], 30_000);
      const waiting = redlock.acquire(["a"], 5000);
      await isListening();
      // The server grants it, and reads the release of it next.
      const released = first.release();
      const quit = redlock.quit();
      await assert.rejects(waiting, ExecutionError);
      await Promise.allSettled([released, quit]);
      assert.deepEqual([await server.waiters("a"), await server.holders("a")], [[], []]);
      await assert.rejects(redlock.acquire(["a"], 5000), ExecutionError);
    });

    it("gives up when its client is ended", async () => {
      await redlock.acquire(["a"], 30_000);
      const refused = assert.rejects(redlock.acquire(["a"], 30_000), { code: "ERR_LOCK_UNAVAILABLE" });
      await isListening();
      library.end(client);
      await refused;
    });

    it("finds what was granted, and what was released, when the reply was lost", async () => {
      const lossy = await far();
      await (await lossy.acquire(["warm"], 5000)).release();
      proxy.loseNextReply();
      const lock = await lossy.acquire(["a"], 30_000);
      assert.ok(proxy.hasLostReply);
      assert.deepEqual(await server.holders("a"), [lock.value]);
      proxy.loseNextReply();
      await lock.release();
      assert.ok(proxy.hasLostReply);
      assert.deepEqual(await server.holders("a"), []);
      const taken = await lossy.acquire(["a"], 30_000);
      await server.admin.del("a");
      await assert.rejects(taken.release(), { code: "ERR_LOCK_LOST" });
    });

    if (waitBy === "block")
      it("gives up also what comes after its release", async () => {
        // The request that waits is on its way for longer than the caller waits, and for longer than the release.
        const slow = await far({ blockSlice: 50 });
        const first = await redlock.acquire(["a"], 30_000);
        const warm = slow.acquire(["a"], 30_000);
        await isListening();
        await first.release();
        await (await warm).release();
        const second = await redlock.acquire(["a"], 30_000);
        proxy.holdNewest();
        await assert.rejects(slow.acquire(["a"], 30_000, { retryCount: 1, retryDelay: 100 }));
        await second.release();
        assert.deepEqual(await server.holders("a"), []);
        const calls = await server.calls("lock.acquire");
        proxy.go();
        await until(async () => (await server.calls("lock.acquire")) > calls, "the late request has arrived");
        await until(async () => (await server.admin.call("LOCK.INFO", "a")) === null, "nothing is left");
      });
    else {
      it("lets any number wait over three connections, in order", { timeout: 120_000 }, async () => {
        const count = 1000;
        const keys = Array.from({ length: 20 }, (_, i) => `a ${i} zwölf`);
        const holders = await Promise.all(keys.map((one) => redlock.acquire([one], 600_000)));
        const orders = keys.map(() => []);
        const all = Array.from({ length: count }, (_, i) =>
          redlock.using([keys[i % 20]], 60_000, async () => void orders[i % 20].push(i)),
        );
        const line = `lock_waiters_notified:${count}\r`;
        await until(async () => (await server.admin.info("lock")).includes(line), "all wait", 60_000);
        assert.equal((await server.clients()).length, 3, "the user's, one for commands, one that listens");
        await Promise.all(holders.map((lock) => lock.release()));
        await Promise.all(all);
        for (const [first, order] of orders.entries())
          assert.deepEqual(
            order,
            order.map((_, i) => first + 20 * i),
          );
      });

      // The oldest node-redis sends nothing when it opens a connection.
      const messages = { opens: /info|hello|subscribe/i, "subscribes to": /subscribe/i };
      for (const [what, message] of Object.entries(messages))
        it(`does not wait for a server that says nothing when it ${what} the channel`, async () => {
          const first = await redlock.acquire(["a"], 30_000);
          const deaf = await far();
          proxy.silentAfter = message;
          const waiting = deaf.acquire(["a"], 30_000);
          await until(() => proxy.silentAfter === undefined, "it has asked");
          await isListening();
          await first.release();
          await waiting;
        });
    }
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
    const refused = await redlock.acquire(["hash"], 5000).catch((error) => error);
    assert.deepEqual([refused.code, refused.attempts.length], ["ERR_LOCK_REFUSED", 1]);
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

  it("that cannot be used is refused, and so are wrong names and times", async (t) => {
    const client = await library.connect(server.port);
    t.after(() => library.end(client));
    const redlock = new Redlock([client]);
    for (const clients of [
      [{}],
      [client, client.duplicate({ lazyConnect: true })],
      [redis.createClientPool()],
    ])
      assert.throws(() => new Redlock(clients), TypeError);
    assert.throws(() => new Redlock([]), /at least one/);
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
    await assert.rejects(redlock.acquire([], 1000), /at least one resource/);
    await assert.rejects(redlock.acquire(["a"], 1000, { linger: 50 }), RangeError);
    for (const duration of [0, 2 ** 48 + 2, 2])
      await assert.rejects(redlock.acquire(["a"], duration), RangeError);
    await assert.rejects(redlock.acquire(["a"], 100, { driftFactor: 1 }), RangeError);
    await assert.rejects(redlock.acquire(["a"], 1.5), /integer/);
    await assert.rejects(redlock.using(["a"], 250, routine), /at least 100ms greater/);
    await assert.rejects(redlock.runOnce("a", { atMost: 9, atLeast: 10 }, routine), /atLeast/);
  });
});

// How an acquire waits, and ends: what the shared scenarios do not say of it.
import assert from "node:assert/strict";
import { after, afterEach, beforeEach, describe, it } from "node:test";
import { createRequire } from "node:module";
import { setTimeout as sleep } from "node:timers/promises";
import * as redis from "redis";
import { ExecutionError, Lock, Redlock, ResourceLockedError } from "redis-lock-client";
import { Clients, ioredis, library, Server, until, ways } from "./harness.js";

const require = createRequire(import.meta.url);
const server = await Server.start();
after(server.stop);

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
      proxy = await clients.proxy(server.port);
      client = await connect();
      redlock = new Redlock([client], { retryCount: -1, waitBy });
    });
    afterEach(async () => {
      await clients.end();
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
      assert.ok(lock.remaining > 50_000);
      await lock.release();
      assert.deepEqual([lock.isValid, lock.remaining, lock.expiration], [false, 0, 0]);
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

    if (waitBy === "notify")
      it("asks no more for one that has left, when the channel is lost", async () => {
        for (const name of ["a", "b"]) await redlock.acquire([name], 30_000);
        const stop = new AbortController();
        const leaving = redlock.acquire(["a"], 30_000, { signal: stop.signal });
        await isListening();
        const staying = assert.rejects(redlock.acquire(["b"], 30_000), ExecutionError);
        await until(async () => (await server.listening("b")).length === 1);
        stop.abort();
        await assert.rejects(leaving, { name: "AbortError" });
        const calls = await server.calls("lock.acquire");
        await server.admin.client("KILL", "TYPE", "pubsub");
        // Who has left would ask before the one that came later.
        await until(async () => (await server.calls("lock.acquire")) > calls, "the other one asks again");
        assert.deepEqual(await server.waiters("a"), []);
        await redlock.quit();
        await staying;
      });

    it("gives up its place also where the server takes no writes for a while", async (t) => {
      const guard = (replicas) => server.admin.config("SET", "min-replicas-to-write", replicas);
      t.after(() => guard(0));
      const first = await redlock.acquire(["a"], 2000);
      const stop = new AbortController();
      const waiting = redlock.acquire(["a"], 60_000, { signal: stop.signal });
      await isListening();
      await guard(1);
      stop.abort();
      await assert.rejects(waiting, { name: "AbortError" });
      await until(() => !first.isValid);
      await guard(0);
      await until(async () => (await server.admin.call("LOCK.INFO", "a")) === null, "nothing is left");
    });

    // A slice is longer than the test may take.
    it("is granted at once, and asks nothing meanwhile", { timeout: 30_000 }, async () => {
      const first = await redlock.acquire(["a"], 30_000);
      const waiting = redlock.acquire(["a"], 30_000, { blockSlice: 60_000 });
      await isListening();
      const calls = await server.calls("lock.acquire");
      await first.release();
      await waiting;
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
        if (isHalfOpen) proxy.holdNewest();
        else both.client("KILL", ...(id === undefined ? ["TYPE", "pubsub"] : ["ID", id]));
        await both.call("LOCK.RELEASE", "a", first.value).exec();
        const lock = await waiting;
        assert.equal(lock.value, token);
        assert.equal(lock.attempts.length, 1, "an endless wait does not gather attempts");
        await lock.release();
      }
    });

    it("shares few connections, in the order of arrival", { timeout: 30_000 }, async () => {
      const settings = { maxWaitingConnections: 2, retryDelay: 20, blockSlice: 60_000 };
      const own = new Redlock([client], { ...settings, retryCount: -1, waitBy });
      const key = "a key of zwölf signs, {twelve}";
      const first = await own.acquire([key], 30_000);
      const [order, all] = [[], []];
      for (let i = 0; i < 6; i++) {
        all.push(own.using([key], 30_000, async () => void order.push(i)));
        await until(async () => (await server.waiters(key)).length === i + 1, "it has a place");
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
      const away = await far();
      const [user] = away.clients;
      proxy.cutForGood();
      await until(() => (library.isLikeIoredis ? user.status === "reconnecting" : !user.isReady));
      library.end(user);
      await assert.rejects(away.acquire(["a"], 30_000), { code: "ERR_LOCK_UNAVAILABLE" });
    });

    it("finds what was granted, and what was released, when the reply was lost", async () => {
      const lossy = await far();
      await (await lossy.acquire(["warm"], 5000)).release();
      proxy.losesNextReply = true;
      const lock = await lossy.acquire(["a"], 30_000);
      assert.ok(!proxy.losesNextReply);
      assert.deepEqual(await server.holders("a"), [lock.value]);
      proxy.losesNextReply = true;
      await lock.release();
      assert.ok(!proxy.losesNextReply);
      assert.deepEqual(await server.holders("a"), []);
      const taken = await lossy.acquire(["a"], 30_000);
      await server.admin.del("a");
      await assert.rejects(taken.release(), { code: "ERR_LOCK_LOST" });
    });

    it("goes on with a release that nobody could answer", async () => {
      const using = (await far({ retryCount: 1 })).using(["b"], 30_000, async () => proxy.cutForGood());
      await assert.rejects(using, { code: "ERR_LOCK_UNAVAILABLE" });
      await proxy.listen();
      await until(async () => (await server.holders("b")).length === 0);
    });

    it("releases over a new connection when the old one says nothing", async () => {
      const lock = await (await far()).acquire(["a"], 30_000);
      proxy.silentAfter = /release/i;
      // To find it silent takes longer than the retries.
      await lock.release({ retryCount: 10, retryDelay: 200 });
      assert.deepEqual(await server.holders("a"), []);
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
        // A second release finds nothing either.
        const releases = await server.calls("lock.release");
        await until(async () => (await server.calls("lock.release")) > releases, "it was released again");
        const calls = await server.calls("lock.acquire");
        proxy.go();
        await until(async () => (await server.calls("lock.acquire")) > calls, "the late request has arrived");
        await until(async () => (await server.admin.call("LOCK.INFO", "a")) === null, "nothing is left");
      });
    else {
      // The oldest node-redis sends nothing when it opens a connection.
      const messages = Object.entries({ opens: /info|hello|subscribe/i, "subscribes to": /subscribe/i });
      for (const [what, message] of messages)
        it(`does not wait for a server that says nothing when it ${what} the channel`, async () => {
          const first = await redlock.acquire(["a"], 30_000);
          const deaf = await far();
          proxy.silentAfter = message;
          const waiting = deaf.acquire(["a"], 30_000);
          await until(() => proxy.silentAfter === undefined, "it has asked");
          // Without the channel it asks all the same, also if this process is so busy that its time is over by then.
          const refused = assert.rejects(deaf.acquire(["a"], 30_000, { retryCount: 1 }), {
            code: "ERR_LOCK_TAKEN",
          });
          await sleep(1);
          for (const end = performance.now() + 100; performance.now() < end;);
          await refused;
          await isListening();
          await first.release();
          await waiting;
        });
    }
  });
}

describe("a client", () => {
  it("of ioredis adds its prefix to the key, and looks there for what is no lock", async (t) => {
    const client = await ioredis.connect(server.port, { keyPrefix: "app:" });
    t.after(() => client.disconnect());
    const redlock = new Redlock([client]);
    const lock = await redlock.acquire(["a"], 5000);
    assert.deepEqual(await server.holders("app:a"), [lock.value]);
    await lock.release();
    await server.admin.set("app:string", "an old client's", "PX", 30_000);
    await assert.rejects(
      redlock.acquire(["string"], 5000, { retryCount: 1 }),
      /by a client with a string lock/,
    );
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
    const routine = async () => assert.fail("it ran");
    const wrong = [
      [/at least one redis client/, () => new Redlock([])],
      [/at least one resource/, () => redlock.acquire([], 1000)],
      [/named twice/, () => redlock.multiLock(["a", "b"], ["a"])],
      [/integer/, () => redlock.acquire(["a"], 1.5)],
      [/at least 100ms greater/, () => redlock.using(["a"], 250, routine)],
      [RangeError, () => redlock.acquire(["a"], 100, { driftFactor: 1 })],
      [RangeError, () => redlock.acquire(["a"], 1000, { linger: 50 })],
      [RangeError, () => redlock.acquire(["a"], 1000, { waitBy: "notfy" })],
      [RangeError, () => redlock.multiLock([])],
      [RangeError, () => redlock.runOnce("a", { atMost: 9, atLeast: 10 }, routine)],
    ];
    for (const clients of [
      [{}],
      [client, client.duplicate({ lazyConnect: true })],
      [redis.createClientPool?.() ?? {}], // 5.0 has none
    ])
      wrong.push([TypeError, () => new Redlock(clients)]);
    for (const names of ["str", 7, undefined, [7], ["a", null]])
      for (const call of [redlock.acquire, redlock.using, redlock.multiLock])
        wrong.push([TypeError, () => call.call(redlock, names, 1000, routine)]);
    for (const name of [7, undefined, ["a"]]) {
      wrong.push([TypeError, () => redlock.semaphore(name, 2)]);
      wrong.push([TypeError, () => redlock.runOnce(name, { atMost: 1000 }, routine)]);
    }
    for (const permits of [0, -1, 1.5, 2 ** 31, "3"])
      wrong.push([RangeError, () => redlock.semaphore("a", permits)]);
    for (const duration of [0, 2 ** 48 + 2, 2])
      wrong.push([RangeError, () => redlock.acquire(["a"], duration)]);
    for (const [error, call] of wrong) await assert.rejects(async () => call(), error, String(call));
  });
});

// While one service after the other is moved to this package: clients of node-redlock, with their string locks.
for (const [name, Old, resource] of [
  ["node-redlock 4.2.0", require("redlock"), "a"],
  ["node-redlock 5.0.0-beta.2", require("redlock-5").default, ["a"]],
])
  it(`${name} and this package exclude each other`, async (t) => {
    await server.admin.flushall();
    const client = await ioredis.connect(server.port);
    t.after(() => client.disconnect());
    const fresh = new Redlock([client], { retryCount: -1 });
    const old = (retryCount) => new Old([client], { retryCount, retryDelay: 20 });
    const release = (lock) => (lock.unlock ?? lock.release).call(lock);

    const theirs = await old(0).acquire(resource, 30_000);
    const errors = [];
    fresh.on("error", (error) => errors.push(error));
    const waiting = [fresh.acquire(["a"], 5000), fresh.acquireRead(["a"], 5000)];
    await until(() => errors.length >= 4);
    assert.equal(await Promise.race([...waiting, "none"]), "none");
    assert.ok(errors.every((error) => error instanceof ResourceLockedError));
    await release(theirs);
    for (const one of waiting) await one.then((lock) => lock.release());

    const ours = await fresh.acquire(["a"], 30_000);
    await assert.rejects(old(1).acquire(resource, 5000));
    // The 5.0.0-beta.2 tries as often to release what it has lost.
    const later = old(100).acquire(resource, 1500);
    await sleep(100);
    await ours.release();
    const late = await later;
    await assert.rejects(fresh.acquire(["a"], 5000, { retryCount: 0 }), ExecutionError);
    const next = await fresh.acquire(["a"], 30_000);
    await assert.rejects(release(late), "it does not end what a new client holds");
    assert.deepEqual(await server.holders("a"), [next.value]);
  });

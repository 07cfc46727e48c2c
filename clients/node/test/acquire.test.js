import assert from "node:assert/strict";
import { after, afterEach, before, beforeEach, describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import * as redis from "redis";
import { ExecutionError, Lock, Redlock, ResourceLockedError } from "redis-lock-client";
import { Place } from "../dist/esm/waiting-room.js";
import { ioredis, libraries, library, Proxy, Server, until } from "./harness.js";

let server;
before(async () => (server = await Server.start()));
after(() => server?.stop());

for (const [name, library] of Object.entries(libraries)) {
  describe(name, () => {
    let client;
    let redlock;
    const clients = [];
    const connect = async (port = server.port, options = {}) => {
      clients.push(await library.connect(port, options));
      return clients.at(-1);
    };

    beforeEach(async () => {
      await server.admin.flushall();
      client = await connect();
      redlock = new Redlock([client]);
    });
    afterEach(async () => {
      for (const one of clients.splice(0)) library.end(one);
      await until(async () => (await server.clients()).length === 0, "all connections are closed");
    });

    it("acquires, extends and releases", async () => {
      const lock = await redlock.acquire(["a"], 5000);
      assert.ok(lock instanceof Lock);
      assert.deepEqual(await server.holders("a"), [lock.value]);
      assert.ok(lock.fence > 0);
      assert.equal(lock.attempts.length, 1);
      assert.ok(lock.isValid && lock.expiration > Date.now() && lock.expiration <= Date.now() + 5000);

      assert.equal(await lock.extend(60_000), lock);
      assert.ok((await server.admin.pttl("a")) > 50_000);
      assert.ok(lock.remaining > 50_000);

      await lock.release();
      assert.deepEqual(await server.holders("a"), []);
      assert.ok(!lock.isValid);
      assert.equal(lock.expiration, 0);
    });

    it("is released at the end of an `await using`", async () => {
      const dispose = (lock) => lock[Symbol.asyncDispose]();
      const lock = await redlock.acquire(["a"], 5000);
      await dispose(lock);
      assert.deepEqual(await server.holders("a"), []);
      await dispose(lock);
      const lost = await redlock.acquire(["a"], 5000);
      await server.admin.del("a");
      await assert.rejects(dispose(lost), ExecutionError, "nobody is to take it for held");
    });

    it("waits in the server's queue, without asking again", async () => {
      const first = await redlock.acquire(["a"], 30_000);
      const calls = await server.calls("lock.acquire");
      const waiting = redlock.acquire(["a"], 30_000, { retryCount: -1 });
      await until(async () => (await server.waiters("a")).length === 1);
      await sleep(500);
      await first.release();
      const second = await waiting;
      assert.deepEqual(await server.holders("a"), [second.value]);
      // One that was refused, one that waited.
      assert.equal((await server.calls("lock.acquire")) - calls, 2);
      // A moment later nobody tries in vain.
      const next = redlock.acquire(["a"], 30_000, { retryCount: -1 });
      await until(async () => (await server.waiters("a")).length === 1);
      await second.release();
      await (await next).release();
      assert.equal((await server.calls("lock.acquire")) - calls, 3);
    });

    it("gives up after retryCount times retryDelay", async () => {
      await redlock.acquire(["a"], 30_000);
      const start = performance.now();
      const refused = await redlock
        .acquire(["a"], 30_000, { retryCount: 3, retryDelay: 100 })
        .catch((error) => error);
      const took = performance.now() - start;
      assert.ok(refused instanceof ExecutionError, String(refused));
      assert.ok(refused.cause instanceof ResourceLockedError);
      assert.ok(took >= 295 && took < 3000, `${took} ms`);
      for (const { membershipSize, votesFor, votesAgainst } of await Promise.all(refused.attempts)) {
        assert.deepEqual([membershipSize, votesFor.size, votesAgainst.size], [1, 0, 1]);
      }
      assert.deepEqual(await server.waiters("a"), []);
    });

    it("does not wait at all with retryCount 0", async () => {
      await redlock.acquire(["a"], 30_000);
      await assert.rejects(redlock.acquire(["a"], 30_000, { retryCount: 0 }), ExecutionError);
      assert.equal((await server.clients()).length, 1, "no connection to wait with");
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

    it("waits for more days than a timer can have", async () => {
      const month = 30 * 24 * 60 * 60 * 1000;
      redlock = new Redlock([client], { maxWaitingConnections: 1, retryCount: 1, retryDelay: month });
      const first = await redlock.acquire(["a"], 30_000);
      const errors = [];
      redlock.on("error", (error) => errors.push(error.message));
      // One waits in the server, and one for its turn to.
      const waiting = [1, 2].map(() =>
        redlock.using(["a"], 30_000, { blockSlice: month, retryJitter: 0 }, async () => {}),
      );
      await until(async () => (await server.listening("a")).length === 1);
      assert.equal((await server.waiters("a")).length, 2);
      await sleep(200);
      assert.deepEqual(errors, Array(2).fill("a is held by another client"));
      await first.release();
      await Promise.all(waiting);
    });

    it("leaves the shared connection free", async () => {
      const first = await redlock.acquire(["a"], 30_000);
      const waiting = redlock.acquire(["a"], 30_000);
      await until(async () => (await server.listening("a")).length === 1);
      const start = performance.now();
      await client.ping();
      assert.ok(performance.now() - start < 1000);
      await first.release();
      await waiting;
    });

    it("keeps its time-outs to itself", async () => {
      const hasty = await connect(
        server.port,
        library.isLikeIoredis
          ? { commandTimeout: 300, socketTimeout: 300 }
          : { socket: { port: server.port, socketTimeout: 300 }, pingInterval: 100 },
      );
      const first = await redlock.acquire(["a"], 30_000);
      const waiting = new Redlock([hasty]).acquire(["a"], 30_000);
      await until(async () => (await server.listening("a")).length === 1);
      await sleep(800);
      assert.equal((await server.listening("a")).length, 1);
      await first.release();
      // node-redis is asked once more, over its own connection.
      assert.equal((await waiting).attempts.length, library.isLikeIoredis ? 2 : 3);
    });

    it("counts the lease from after the waiting", async () => {
      await redlock.acquire(["a"], 700);
      const lock = await redlock.acquire(["a"], 1000);
      assert.ok(lock.remaining > 600, `${lock.remaining} ms`);
      assert.ok(lock.remaining <= (await server.admin.pttl("a")), "the server's ttl ends later");
    });

    it("uses a few connections, and asks as node-redlock does when all are waiting", async () => {
      redlock = new Redlock([client], { maxWaitingConnections: 2, retryCount: -1, retryDelay: 20 });
      const first = await redlock.acquire(["a"], 30_000);
      let inside = 0;
      const routine = async () => {
        assert.equal(++inside, 1);
        await sleep(5);
        inside--;
      };
      const all = [1, 2, 3, 4, 5, 6].map(() => redlock.using(["a"], 5000, routine));
      await until(async () => (await server.listening("a")).length === 2);
      await until(async () => (await server.waiters("a")).length === 6, "all have a place");
      // A lock that is free is had all the same, and one that gets free, too.
      const other = await redlock.acquire(["b"], 5000);
      const next = redlock.acquire(["b"], 5000);
      await other.release();
      await next;
      assert.equal((await server.clients()).length, 3);
      await first.release();
      await Promise.all(all);
      assert.equal((await server.clients()).length, 3, "they are kept, and no more than these");
    });

    it("does not ask without a pause when all are waiting and there is no retryDelay", async () => {
      redlock = new Redlock([client], { maxWaitingConnections: 1, retryCount: -1, retryDelay: 0 });
      const first = await redlock.acquire(["a"], 30_000);
      const waiting = [1, 2].map(() => redlock.acquire(["a"], 30_000));
      await until(async () => (await server.waiters("a")).length === 2);
      const [calls, start] = [await server.calls("lock.acquire"), performance.now()];
      await sleep(500);
      const most = (performance.now() - start) / 25;
      const asked = (await server.calls("lock.acquire")) - calls;
      assert.ok(asked < most, `${asked} times`);
      await first.release();
      await Promise.all(waiting.map(async (one) => (await one).release()));
    });

    it("shares what it keeps with all that have the client", async () => {
      const warnings = [];
      const warn = ({ name }) => warnings.push(name);
      process.on("warning", warn);
      try {
        const listeners = ["error", "close", "end"].map((event) => client.listenerCount(event));
        for (let i = 0; i < 20; i++) {
          const first = await redlock.acquire(["a"], 30_000);
          const waiting = new Redlock([client]).acquire(["a"], 5000);
          await until(async () => (await server.listening("a")).length === 1);
          await first.release();
          await (await waiting).release();
        }
        assert.equal((await server.clients()).length, 2);
        assert.deepEqual(
          ["error", "close", "end"].map((event) => client.listenerCount(event)),
          listeners,
        );
      } finally {
        process.removeListener("warning", warn);
      }
      assert.deepEqual(warnings, []);
    });

    it("keeps no more connections than one may have", async () => {
      const first = await redlock.acquire(["a"], 30_000);
      const all = [1, 2, 3, 4].map(() => {
        const one = new Redlock([client], { maxWaitingConnections: 2, retryCount: -1 });
        return one.using(["a"], 5000, async () => {});
      });
      await until(async () => (await server.listening("a")).length === 4);
      await first.release();
      await Promise.all(all);
      await until(async () => (await server.clients()).length === 3);
    });

    it("ends its connections with the client's", async () => {
      const first = await redlock.acquire(["a"], 30_000);
      const waiting = redlock.acquire(["a"], 5000);
      await until(async () => (await server.listening("a")).length === 1);
      await first.release();
      await (await waiting).release();
      assert.equal((await server.clients()).length, 2);
      library.end(client);
      await until(async () => (await server.clients()).length === 0);
    });

    it("quits all", async () => {
      const first = await redlock.acquire(["a"], 30_000);
      const waiting = assert.rejects(
        redlock.acquire(["a"], 5000, { retryCount: 1, retryDelay: 5000, retryJitter: 0 }),
      );
      await until(async () => (await server.listening("a")).length === 1);
      await redlock.quit();
      await until(async () => (await server.clients()).length === 0);
      assert.deepEqual(await server.waiters("a"), []);
      assert.deepEqual(await server.holders("a"), [first.value]);
      await waiting;
    });

    for (const waitBy of ["block", "notify"])
      it(`does not return what it gives back when it quits, ${waitBy}`, async () => {
        const first = await redlock.acquire(["a"], 30_000);
        const waiting = redlock.acquire(["a"], 5000, { waitBy, retryCount: 100 });
        await until(async () => (await server.listening("a")).length === 1);
        // The server grants it, and reads the release of it next.
        const released = first.release();
        const quit = redlock.quit();
        await assert.rejects(waiting, ExecutionError);
        await Promise.allSettled([released, quit]);
        assert.deepEqual(await server.holders("a"), []);
      });

    it("finds what was granted when the reply was lost", async () => {
      const proxy = await Proxy.start(server.port);
      try {
        redlock = new Redlock([await connect(proxy.port)], { retryDelay: 50 });
        await (await redlock.acquire(["warm"], 5000)).release();
        proxy.loseNextReply();
        const acquired = redlock.acquire(["a"], 30_000);
        await until(async () => proxy.hasLostReply);
        const [token] = await server.holders("a");
        const lock = await acquired;
        assert.equal(lock.value, token);
        assert.deepEqual(await server.holders("a"), [token]);
      } finally {
        proxy.stop();
      }
    });

    it("takes a lock for released when only the reply was lost", async () => {
      const proxy = await Proxy.start(server.port);
      try {
        redlock = new Redlock([await connect(proxy.port)], { retryDelay: 50 });
        const lock = await redlock.acquire(["a"], 30_000);
        proxy.loseNextReply();
        await lock.release();
        assert.ok(proxy.hasLostReply);
        assert.deepEqual(await server.holders("a"), []);

        const using = redlock.using(["a"], 30_000, async () => {
          proxy.loseNextReply();
          return "done";
        });
        assert.equal(await using, "done");
        assert.deepEqual(await server.holders("a"), []);
      } finally {
        proxy.stop();
      }
    });

    it("does not take a lock for released that was over before, or taken away", async () => {
      const proxy = await Proxy.start(server.port);
      try {
        redlock = new Redlock([await connect(proxy.port)], { retryDelay: 50 });
        const short = await redlock.acquire(["a"], 100);
        await until(() => !short.isValid);
        await until(async () => (await server.holders("a")).length === 0);
        proxy.loseNextReply();
        await assert.rejects(short.release(), (error) => error.cause instanceof ResourceLockedError);
        assert.ok(proxy.hasLostReply);

        // A connection that was cut before has nothing to do with it.
        const taken = await redlock.acquire(["a"], 30_000);
        await server.admin.del("a");
        await assert.rejects(taken.release(), (error) => error.cause instanceof ResourceLockedError);
      } finally {
        proxy.stop();
      }
    });

    it("gives a connection up that has fallen silent", async () => {
      const proxy = await Proxy.start(server.port);
      try {
        const waiter = new Redlock([await connect(proxy.port)], {
          retryDelay: 50,
          blockSlice: 200,
          retryCount: -1,
        });
        const errors = [];
        waiter.on("error", (error) => errors.push(error));
        const first = await redlock.acquire(["a"], 30_000);
        const waiting = waiter.acquire(["a"], 30_000);
        await until(async () => (await server.listening("a")).length === 1);
        proxy.hold();
        await until(() => errors.some(({ message }) => message.startsWith("no answer")));
        proxy.go();
        await first.release();
        const { value } = await waiting;
        assert.deepEqual(await server.holders("a"), [value]);
      } finally {
        proxy.stop();
      }
    });

    it("takes several resources, or none", async () => {
      const [low, high] = [await redlock.acquire(["a", "b", "a"], 5000), redlock.acquire(["b", "c"], 5000)];
      assert.deepEqual(low.resources, ["a", "b"]);
      assert.throws(() => low.fence, /several/);
      assert.deepEqual([...low.fences.keys()], ["a", "b"]);
      await until(async () => (await server.waiters("b")).length === 1);
      await low.release();
      await (await high).release();

      await redlock.acquire(["b"], 5000);
      await assert.rejects(
        redlock.acquire(["b", "a"], 5000, { retryCount: 1, retryDelay: 100 }),
        ExecutionError,
      );
      assert.deepEqual(await server.holders("a"), [], "what was had is given back");
    });

    it("does not wait in a circle", { timeout: 15_000 }, async () => {
      let inside = 0;
      const routine = async () => {
        assert.equal(++inside, 1);
        await sleep(1);
        inside--;
      };
      const turns = [];
      for (let i = 0; i < 20; i++) {
        turns.push(
          redlock.using(i % 2 ? ["x", "y", "z"] : ["z", "y", "x"], 60_000, { retryCount: -1 }, routine),
        );
      }
      await Promise.all(turns);
    });

    it("keeps the first resource alive while it waits for the second", async () => {
      const second = await redlock.acquire(["b"], 30_000);
      const both = redlock.acquire(["a", "b"], 300, { retryCount: -1 });
      await until(async () => (await server.holders("a")).length === 1);
      const [token] = await server.holders("a");
      for (const end = performance.now() + 1000; performance.now() < end; await sleep(20)) {
        assert.deepEqual(await server.holders("a"), [token]);
      }
      await second.release();
      assert.equal((await both).value, token);
    });
  });
}

describe("ioredis", () => {
  it("waits for less when its connection came late", async () => {
    let command;
    const send = async (sent) => void (command = sent);
    const lend = () => sleep(100).then(() => ({ connection: { send } }));
    await new Place({ lend }).ask({ key: "a", command: [], keep: [] }, 1000);
    assert.equal(command[0], "BLOCK");
    assert.ok(command[1] > 0 && command[1] < 910, `${command[1]} ms`);
  });

  it("adds the client's prefix to the key", async () => {
    const client = await ioredis.connect(server.port, { keyPrefix: "app:" });
    const lock = await new Redlock([client]).acquire(["a"], 5000);
    assert.deepEqual(await server.holders("app:a"), [lock.value]);
    await lock.release();
    client.disconnect();
  });

  it("waits for a string lock at a key with a prefix, and tells of another type there", async (t) => {
    const client = await ioredis.connect(server.port, { keyPrefix: "app:" });
    t.after(() => client.disconnect());
    const redlock = new Redlock([client], { retryCount: -1 });
    const errors = [];
    redlock.on("error", (error) => errors.push(error));
    for (const keys of [["app:string"], ["app:first", "app:second"]]) {
      await server.admin.set(keys.at(-1), "an old client's", "PX", 30_000);
      errors.length = 0;
      const resources = keys.map((key) => key.slice("app:".length));
      const waiting = redlock.acquire(resources, 5000);
      const start = performance.now();
      await until(() => errors.length >= 4);
      const took = performance.now() - start;
      assert.ok(took > 3 * 45, `${errors.length} attempts in ${took} ms`);
      for (const error of errors) assert.match(error.message, /by a client with a string lock/);
      await server.admin.del(keys.at(-1));
      await (await waiting).release();
    }
    await server.admin.hset("app:hash", "field", "value");
    await assert.rejects(redlock.acquire(["hash"], 5000, { retryCount: 1, retryDelay: 10 }), /WRONGTYPE/);
  });
});

it("refuses what it cannot use", async () => {
  await server.admin.flushall();
  const client = await library.connect(server.port);
  assert.throws(() => new Redlock([]), /at least one/);
  assert.throws(() => new Redlock([{}]), TypeError);
  const redlock = new Redlock([client]);
  const routine = async () => assert.fail("it ran");
  for (const wrong of ["str", 7, undefined, [7], ["a", null]]) {
    await assert.rejects(redlock.acquire(wrong, 1000), TypeError);
    await assert.rejects(redlock.acquireRead(wrong, 1000), TypeError);
    await assert.rejects(redlock.acquireWrite(wrong, 1000), TypeError);
    await assert.rejects(redlock.using(wrong, 1000, routine), TypeError);
    assert.throws(() => redlock.multiLock(wrong), TypeError);
    if (wrong !== undefined) assert.throws(() => redlock.multiLock(["a"], wrong), TypeError);
  }
  for (const wrong of [7, undefined, ["a"]]) {
    assert.throws(() => redlock.semaphore(wrong, 2), TypeError);
    await assert.rejects(redlock.runOnce(wrong, { atMost: 1000 }, routine), TypeError);
  }
  assert.deepEqual(await server.admin.keys("*"), []);
  library.end(client);
  // Since version 5.
  if (redis.createClientPool)
    assert.throws(() => new Redlock([redis.createClientPool()]), /needs clients of ioredis or iovalkey/);
});

it("does not ask again for what it has given back when it quits", async () => {
  const calls = [];
  const call = async (name) => {
    calls.push(name);
    if (name === "LOCK.ACQUIRE") throw new Error("TRYAGAIN not enough servers have confirmed it");
    // The connection is there until this is answered.
    if (name === "LOCK.RELEASE") await waiting.catch(() => {});
    return 0;
  };
  const client = { status: "ready", options: {}, condition: {}, call, on() {}, duplicate() {}, quit() {} };
  const redlock = new Redlock([client]);
  const waiting = redlock.acquire(["a"], 30_000, { retryCount: 1, retryDelay: 500 });
  waiting.catch(() => {});
  // It has its answer, and pauses.
  await sleep(1);
  const asked = calls.length;
  const quit = redlock.quit();
  await assert.rejects(waiting, /the client was ended/);
  assert.ok(!calls.slice(asked).includes("LOCK.ACQUIRE"), calls.join());
  await quit;
});

// Locks of a server without the module: only where they are wanted, and then as strings.
import assert from "node:assert/strict";
import { after, afterEach, before, beforeEach, describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { ExecutionError, ModuleMissingError, once, Redlock, ResourceLockedError } from "redis-lock-client";
import { Clients, gatherWarnings, ioredis, Proxy, Server, until, ways } from "./harness.js";

let bare, server;
before(
  async () => ([bare, server] = await Promise.all([Server.start({ withModule: false }), Server.start()])),
);
after(() => Promise.all([bare?.stop(), server?.stop()]));

const isMissing = (error) =>
  error instanceof ExecutionError &&
  error.cause instanceof ModuleMissingError &&
  /no redis-lock module/.test(error.message);

for (const { title, library, waitBy } of ways) {
  describe(title, () => {
    let client, redlock;
    const clients = new Clients(library);
    const codes = [];
    let stop;
    beforeEach(async () => {
      await bare.admin.flushall();
      stop = gatherWarnings(codes);
      client = await clients.connect(bare.port);
      redlock = new Redlock([client], { waitBy, fallback: true });
    });
    afterEach(async () => {
      clients.end();
      await sleep(0);
      stop();
      codes.length = 0;
    });

    it("fallback: without the setting, an error says what is missing, and how it is had", async () => {
      const strict = new Redlock([client], { waitBy });
      const routine = async () => assert.fail("it ran");
      for (const attempt of [
        () => strict.using(["a"], 5000, routine),
        () => strict.runOnce("a", { atMost: 5000 }, routine),
      ]) {
        await assert.rejects(attempt(), (error) => {
          for (const word of [
            "loadmodule /path/libredis_lock.so",
            "restart the server",
            "fallback: true",
            "no fence",
          ])
            assert.ok(error.message.includes(word), `${word}: ${error.message}`);
          return isMissing(error);
        });
      }
      assert.deepEqual(await bare.admin.keys("*"), []);
      await sleep(0);
      assert.deepEqual(codes, []);
    });

    it("fallback: is a string, and is warned of once", async () => {
      const lock = await redlock.acquire(["a"], 5000);
      assert.equal(await bare.admin.get("a"), lock.value);
      const other = new Redlock([client], { waitBy, fallback: true, retryDelay: 50, retryJitter: 20 });
      const start = performance.now();
      const refused = await other.acquire(["a"], 5000, { retryCount: 4 }).catch((error) => error);
      const took = performance.now() - start;
      assert.ok(refused.cause instanceof ResourceLockedError);
      assert.ok(took > 100 && took < 10_000, `${took} ms`);
      await lock.release();
      await sleep(0);
      assert.deepEqual(codes, ["REDIS_LOCK_FALLBACK"]);
    });

    it("fallback: finds what was set when the reply was lost", async () => {
      const proxy = await Proxy.start(bare.port);
      try {
        const far = new Redlock([await clients.connect(proxy.port)], {
          fallback: true,
          retryDelay: 50,
          retryCount: -1,
          waitBy,
        });
        await (await far.acquire(["warm"], 5000)).release();
        proxy.loseNextReply();
        const lock = await far.acquire(["a"], 30_000);
        assert.ok(proxy.hasLostReply);
        assert.equal(await bare.admin.get("a"), lock.value);
        await lock.release();
      } finally {
        proxy.stop();
      }
    });

    it("fallback: says what it does not have", async () => {
      const lock = await redlock.acquire(["a"], 5000);
      const routine = async () => assert.fail("it ran");
      for (const attempt of [
        () => redlock.acquire(["b"], 5000, { linger: 100 }),
        () => lock.exec("SET", "b", 1),
        () => lock.release({ atLeast: 100 }),
      ]) {
        await assert.rejects(attempt(), (error) => {
          return isMissing(error) && error.message.includes("is not available in the fallback");
        });
      }
      const making = once(redlock, "b", routine);
      await assert.rejects(making, (error) => isMissing(error) && /LOCK\.ONCE/.test(error.message));
      assert.deepEqual(await bare.admin.keys("*"), ["a"]);
    });

    it("fallback: changes nothing where the module is", async () => {
      const there = new Redlock([await clients.connect(server.port)], { waitBy, fallback: true });
      const lock = await there.acquire([title], 5000);
      assert.deepEqual(await server.holders(title), [lock.value]);
      assert.ok(lock.fence > 0);
      const waiting = there.acquire([title], 5000);
      await until(async () => (await server.listening(title)).length === 1);
      await lock.release();
      await (await waiting).release();
      await sleep(0);
      assert.ok(!codes.includes("REDIS_LOCK_FALLBACK"));
    });
  });
}

it("fallback: adds the client's prefix to the key once", async (t) => {
  await bare.admin.flushall();
  const client = await ioredis.connect(bare.port, { keyPrefix: "app:" });
  t.after(() => client.disconnect());
  const redlock = new Redlock([client], { fallback: true });
  const lock = await redlock.acquire(["a"], 5000);
  assert.deepEqual(await bare.admin.keys("*"), ["app:a"]);
  await lock.extend(60_000);
  assert.ok((await bare.admin.pttl("app:a")) > 50_000);
  assert.equal(await lock.check(), true);
  await lock.release();
  assert.deepEqual(await bare.admin.keys("*"), []);
  await bare.admin.set("app:a", "an old client's");
  await assert.rejects(redlock.acquire(["a"], 5000, { retryCount: 0 }), ExecutionError);
});

it("fallback: takes a key of another type for somebody else's", async (t) => {
  await bare.admin.flushall();
  const client = await ioredis.connect(bare.port);
  t.after(() => client.disconnect());
  const redlock = new Redlock([client], { fallback: true });
  const lock = await redlock.acquire(["a"], 60_000);
  await bare.admin.multi().del("a").sadd("a", "member").exec();
  assert.equal(await lock.check(), false);
  await assert.rejects(lock.extend(60_000), { code: "ERR_LOCK_LOST" });
  await assert.rejects(lock.release(), { code: "ERR_LOCK_LOST" });
  await assert.rejects(redlock.acquire(["a"], 5000, { retryCount: 0 }), { code: "ERR_LOCK_TAKEN" });
  assert.equal(await bare.admin.type("a"), "set");
});

// A command under a lock, a job that runs once, and a lock that ends with its connection.
import assert from "node:assert/strict";
import { after, afterEach, before, beforeEach, describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Redlock } from "redis-lock-client";
import { Clients, libraries, library, Proxy, Server, until, ways } from "./harness.js";

let server;
before(async () => (server = await Server.start()));
after(() => server?.stop());

for (const [name, library] of Object.entries(libraries)) {
  describe(name, () => {
    let client, redlock, key;
    let number = 0;
    const clients = new Clients(library);
    beforeEach(async () => {
      key = `${name} ${++number}`;
      client = await clients.connect(server.port);
      redlock = new Redlock([client], { retryCount: 0 });
    });
    afterEach(() => clients.end());

    it("hands bytes and errors of a guarded command on, and sees a string over its key", async () => {
      const lock = await redlock.acquire([key], 30_000);
      const row = `${key} row`;
      assert.equal(await lock.exec("SET", row, Buffer.from([0xff, 0])), "OK");
      assert.deepEqual(await server.admin.getBuffer(row), Buffer.from([0xff, 0]));
      await assert.rejects(lock.exec("INCR", row), /not an integer/, "the command's own error");
      await server.admin.set(key, "a string");
      assert.equal(await lock.check(), false);
      assert.ok(lock.isValid, "it does not know");
    });

    it("lets others run a job that takes longer than atMost, and tells it so", async () => {
      let [wasValid, renewals] = [];
      const late = redlock.runOnce(key, { atMost: 2000 }, async (signal, lock) => {
        renewals = await server.calls("lock.renew");
        // So long that a slow answer is no reason to renew.
        const others = { atMost: 60_000 };
        await until(async () => (await redlock.runOnce(key, others, async () => {})).hasRun);
        wasValid = lock.isValid;
        await until(() => signal.aborted);
      });
      await assert.rejects(late, { message: "The job took longer than `atMost`." });
      assert.equal(wasValid, false, "when another had the lock");
      assert.equal(await server.calls("lock.renew"), renewals);
    });

    it("runs a job once, and gives permits, also where holds are shared", async () => {
      const sharing = new Redlock([client], { shared: true });
      const job = { atMost: 30_000, atLeast: 30_000, shared: true };
      const runs = [sharing, sharing, redlock].map((each) => each.runOnce(key, job, async () => {}));
      assert.equal((await Promise.all(runs)).filter(({ hasRun }) => hasRun).length, 1);
      const pool = sharing.semaphore(`${key} pool`, 1);
      await pool.acquire(30_000);
      assert.equal(await pool.tryAcquire(30_000), null);
    });

    it("keeps others off after a job that fails", async () => {
      const settings = { atMost: 30_000, atLeast: 30_000 };
      const failing = async () => {
        throw new RangeError("mine");
      };
      await assert.rejects(redlock.runOnce(key, settings, failing), { message: "mine" });
      assert.equal((await redlock.runOnce(key, settings, failing)).hasRun, false);
      await assert.rejects(redlock.runOnce(key, { ...settings, atLeast: 30_001 }, failing), /atLeast/);
    });
  });
}

for (const { title, name, library, waitBy } of ways) {
  describe(`linger, ${title}`, () => {
    let proxy, client, key;
    let number = 0;
    const clients = new Clients(library);
    beforeEach(async () => {
      key = `linger ${title} ${++number}`;
      proxy = await Proxy.start(server.port);
      client = await clients.connect(proxy.port);
    });
    afterEach(() => {
      clients.end();
      proxy.stop();
    });

    it("ends the lock soon after its connection, also one that was waited for", async () => {
      const rival = new Redlock([await clients.connect(server.port)], { retryCount: -1, waitBy });
      const redlock = new Redlock([client], { retryCount: -1, waitBy, maxWaitingConnections: 1 });
      const held = await rival.acquire([key], 60_000);
      const waiting = redlock.acquire([key], 60_000, { linger: 1000 });
      await until(async () => (await server.listening(key)).length === 1);
      await held.release();
      const lock = await waiting;
      proxy.stop();
      library.end(client);
      await (await rival.acquire([key], 30_000)).release();
      assert.ok(!lock.isValid, "nobody had it before it was given up here");
    });

    it("is believed in while its connection answers, and not when it is silent", async () => {
      const redlock = new Redlock([client], { waitBy, linger: 3000 });
      const lock = await redlock.acquire([key], 60_000);
      await sleep(4000);
      assert.ok(lock.isValid, "nothing extends it, and the connection is asked");
      assert.ok(lock.remaining <= 3000);
      proxy.hold();
      await until(() => !lock.isValid);
      assert.ok(await server.admin.exists(key), "the server cannot know yet");
      proxy.go();
      assert.ok(!lock.isValid && lock.signal.aborted === false);
      await until(() => lock.signal.aborted);
    });
  });
}

describe("linger, what an extension hears", () => {
  let own, proxy, client, redlock;
  const clients = new Clients(library);
  before(async () => {
    own = await Server.start();
    proxy = await Proxy.start(own.port);
  });
  beforeEach(async () => {
    await own.admin.flushall();
    client = await clients.connect(proxy.port);
    redlock = new Redlock([client], { retryCount: 0, linger: 5000 });
  });
  afterEach(() => clients.end());
  after(async () => {
    proxy.stop();
    await own.stop();
  });
  const hears = (what) => async () => (await own.admin.info("lock")).includes(what);

  it("is not lost while a guard grants nothing, and is bound again after it", async () => {
    // More than the lease has while the lock is not bound.
    const settings = { automaticExtensionThreshold: 5100 };
    await redlock.using(["a"], 6000, settings, async (signal) => {
      const renewals = await own.calls("lock.renew");
      await own.admin.config("SET", "lock.max-ttl", 6000, "lock.guard", "restart");
      const acquires = await own.calls("lock.acquire");
      proxy.cut();
      const isAsked = async () => (await own.calls("lock.acquire")) > acquires + 1;
      await until(async () => signal.aborted || (await isAsked()), "it asks again");
      assert.equal(signal.error, undefined);
      assert.ok(await hears("lock_guard:restart")());
      assert.ok(await hears("lock_held_bound:0")());
      await until(async () => signal.aborted || (await hears("lock_held_bound:1")()), "it is bound");
      assert.equal(signal.error, undefined);
      const times = (await own.calls("lock.renew")) - renewals;
      assert.ok(times < 100, `it was extended ${times} times`);
    });
    assert.equal(await own.admin.exists("a"), 0);
  });
});

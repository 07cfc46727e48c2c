// What is done under a lock: routines, guarded commands, jobs that run once, and locks that end with their connection.
import assert from "node:assert/strict";
import { after, afterEach, beforeEach, describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Redlock } from "redis-lock-client";
import { Clients, libraries, library, Server, until, ways } from "./harness.js";

const server = await Server.start();
after(server.stop);
beforeEach(() => Promise.all([server.admin.flushall(), server.admin.config("RESETSTAT")]));

const aborted = (signal) => new Promise((resolve) => signal.addEventListener("abort", resolve));
const failing = async () => {
  throw new RangeError("mine");
};

describe("using", async () => {
  const clients = new Clients(library);
  after(clients.end);
  const redlock = new Redlock([await clients.connect(server.port)], { automaticExtensionThreshold: 200 });

  it("takes settings and several resources, hands the routine's error on, and releases", async () => {
    const settings = { shared: true, retryCount: 0 };
    const using = redlock.using(["b", "a", "b"], 30_000, settings, async (_, lock) => {
      assert.deepEqual(lock.resources, ["a", "b"]);
      await (await redlock.acquireRead(["a"], 30_000)).release();
      await failing();
    });
    await assert.rejects(using, RangeError);
    assert.deepEqual(await server.admin.keys("*"), []);
  });

  it("ends soon after its lease when the server says nothing", { timeout: 60_000 }, async () => {
    const untilAborted = async (signal, lock) => {
      await aborted(signal);
      assert.ok(!lock.isValid);
      throw signal.error;
    };
    for (const [routine, reason] of [
      [untilAborted, /not extended before its lease was over/],
      [async () => {}, /The release was not answered/],
      [failing, RangeError],
    ]) {
      const using = redlock.using(["a"], 2000, (...given) => {
        process.kill(server.pid, "SIGSTOP");
        return routine(...given);
      });
      await assert.rejects(using, reason).finally(() => process.kill(server.pid, "SIGCONT"));
      await until(async () => (await server.holders("a")).length === 0);
    }
  });

  it("aborts at the end of the lease that the routine has chosen", async () => {
    /** A timer that is set later, and for longer, has its turn later. */
    const shorten = async (signal, lock) => {
      await lock.extend(2000);
      await Promise.race([aborted(signal), sleep(2500).then(() => assert.fail("it was not told"))]);
    };
    // The next extension would come after 3 seconds.
    const using = redlock.using(["a"], 9000, shorten);
    await assert.rejects(using, /not extended before its lease was over/);
    const job = redlock.runOnce("a", { atMost: 2000 }, async (signal, lock) => {
      await lock.extend(30_000);
      await sleep(2100);
      assert.ok(!signal.aborted && lock.isValid, "a longer one, too");
      await shorten(signal, lock);
    });
    await assert.rejects(job, /not extended before its lease was over/, "it took no longer than atMost");
    // What is lost is released too, and nobody waits for that: the answer to this one comes later.
    await (await redlock.acquire(["b"], 9000)).release();
  });

  it("takes a release by the routine for no loss", async () => {
    const [errors, releases] = [[], await server.calls("lock.release")];
    redlock.on("error", (error) => errors.push(error));
    const using = redlock.using(["a"], 2000, async (signal, lock) => {
      const { remaining } = lock;
      await lock.release();
      // An extension and the end of the lease would have had their turns.
      await sleep(remaining + 100);
      assert.ok(!signal.aborted, String(signal.error));
      return "done";
    });
    assert.equal(await using, "done");
    assert.deepEqual([errors, await server.calls("lock.release")], [[], releases + 1]);
    const job = async (_, lock) => void (await lock.release({ atLeast: 5000 }));
    assert.equal((await redlock.runOnce("a", { atMost: 9000 }, job)).hasRun, true);
    const left = await server.admin.pttl("a");
    assert.ok(left > 0 && left <= 5000, `as the routine wants it: ${left} ms`);
  });

  it("is extended from the declaration of an `await using` on, and released at its end", async () => {
    const lock = await redlock.acquire(["a"], 3000);
    // As the declaration does, and then the end of the block.
    const dispose = lock[Symbol.asyncDispose];
    await sleep(4000);
    assert.ok(lock.isValid && !lock.signal.aborted && (await lock.check()));
    await dispose();
    assert.deepEqual(await server.holders("a"), []);
    await dispose();
    const lost = await redlock.acquire(["a"], 60_000);
    const end = lost[Symbol.asyncDispose];
    await server.admin.del("a");
    await assert.rejects(end(), { code: "ERR_LOCK_LOST" }, "nobody is to take it for held");
  });

  it("is extended again after errors that pass, and not after one that is final", async () => {
    const { admin } = server;
    const using = redlock.using(["a"], 4500, async (signal, lock) => {
      await admin.config("SET", "min-replicas-to-write", 1);
      await sleep(2500);
      await admin.config("SET", "min-replicas-to-write", 0);
      await sleep(2500);
      assert.ok(lock.isValid && !signal.aborted);
      await admin.config("RESETSTAT");
      await admin.acl("SETUSER", "default", "-lock.renew");
      await aborted(signal);
      assert.match(await admin.info("commandstats"), /lock.renew:calls=0,.*rejected_calls=1,/);
      assert.match(signal.error.cause.cause.message, /NOPERM/);
    });
    await assert.rejects(using, /not extended before its lease was over/);
    await admin.acl("SETUSER", "default", "+lock.renew");
  });

  it("lasts for longer than Node's timers", async () => {
    await redlock.using(["a"], 60 * 86_400_000, async (signal) => {
      await sleep(100);
      assert.ok(!signal.aborted);
    });
    assert.equal(await server.calls("lock.renew"), 0);
  });

  it("says that it was lost, also when the process had no time to notice", async () => {
    const using = redlock.using(["a"], 2000, async () => {
      for (const end = performance.now() + 2000; performance.now() < end;);
    });
    await assert.rejects(using, /lease was over/);
  });
});

for (const [name, library] of Object.entries(libraries)) {
  describe(name, () => {
    let client, redlock;
    const clients = new Clients(library);
    beforeEach(async () => {
      client = await clients.connect(server.port);
      redlock = new Redlock([client], { retryCount: 0 });
    });
    afterEach(clients.end);

    it("hands bytes and errors of a guarded command on", async () => {
      const lock = await redlock.acquire(["a"], 30_000);
      assert.equal(await lock.exec("SET", "row", Buffer.from([0xff, 0])), "OK");
      assert.deepEqual(await server.admin.getBuffer("row"), Buffer.from([0xff, 0]));
      await assert.rejects(lock.exec("INCR", "row"), /not an integer/, "the command's own error");
    });

    it("lets others run a job that takes longer than atMost, and tells it so", async () => {
      let [wasValid, renewals] = [];
      const late = redlock.runOnce("job", { atMost: 2000 }, async (signal, lock) => {
        renewals = await server.calls("lock.renew");
        // So long that a slow answer is no reason to renew.
        const others = { atMost: 60_000 };
        await until(async () => (await redlock.runOnce("job", others, async () => {})).hasRun);
        wasValid = lock.isValid;
        await until(() => signal.aborted);
      });
      await assert.rejects(late, { code: "ERR_LOCK_LOST", message: /The job took longer than `atMost`/ });
      assert.equal(wasValid, false, "when another had the lock");
      assert.equal(await server.calls("lock.renew"), renewals);
    });

    it("runs a job once, also one that fails or where holds are shared, and gives permits there", async () => {
      const sharing = new Redlock([client], { shared: true });
      const job = { atMost: 30_000, atLeast: 30_000, shared: true };
      await assert.rejects(sharing.runOnce("job", job, failing), { message: "mine" });
      for (const each of [sharing, redlock])
        assert.equal((await each.runOnce("job", job, failing)).hasRun, false);
      const pool = sharing.semaphore("pool", 1);
      await pool.acquire(30_000);
      assert.equal(await pool.tryAcquire(30_000), null);
    });
  });
}

for (const { title, library, waitBy } of ways) {
  describe(`linger, ${title}`, () => {
    let proxy, client;
    const clients = new Clients(library);
    beforeEach(async () => {
      proxy = await clients.proxy(server.port);
      client = await clients.connect(proxy.port);
    });
    afterEach(clients.end);

    it("ends the lock soon after its connection, also one that was waited for", async () => {
      const rival = new Redlock([await clients.connect(server.port)], { retryCount: -1, waitBy });
      const redlock = new Redlock([client], { retryCount: -1, waitBy, maxWaitingConnections: 1 });
      const held = await rival.acquire(["a"], 60_000);
      const waiting = redlock.acquire(["a"], 60_000, { linger: 1000 });
      await until(async () => (await server.listening("a")).length === 1);
      await held.release();
      const lock = await waiting;
      proxy.cutForGood();
      library.end(client);
      await (await rival.acquire(["a"], 30_000)).release();
      assert.ok(!lock.isValid, "nobody had it before it was given up here");
    });

    it("is believed in while its connection answers, and not when it is silent", async () => {
      const redlock = new Redlock([client], { waitBy, linger: 3000 });
      const lock = await redlock.acquire(["a"], 60_000);
      await sleep(4000);
      assert.ok(lock.isValid, "nothing extends it, and the connection is asked");
      assert.ok(lock.remaining <= 3000);
      proxy.hold();
      await until(() => !lock.isValid);
      assert.ok(await server.admin.exists("a"), "the server cannot know yet");
      proxy.go();
      assert.ok(!lock.isValid && lock.signal.aborted === false);
      await until(() => lock.signal.aborted);
    });
  });
}

it("linger: a hold is not lost while a guard grants nothing, and is bound again after it", async (t) => {
  const [own, clients] = [await Server.start(), new Clients(library)];
  t.after(() => (clients.end(), own.stop()));
  const proxy = await clients.proxy(own.port);
  const client = await clients.connect(proxy.port);
  const redlock = new Redlock([client], { retryCount: 0, linger: 5000 });
  const hears = async (what) => (await own.admin.info("lock")).includes(what);
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
    assert.ok((await hears("lock_guard:restart")) && (await hears("lock_held_bound:0")));
    await until(async () => signal.aborted || (await hears("lock_held_bound:1")), "it is bound");
    assert.equal(signal.error, undefined);
    const times = (await own.calls("lock.renew")) - renewals;
    assert.ok(times < 100, `it was extended ${times} times`);
  });
  assert.equal(await own.admin.exists("a"), 0);
});

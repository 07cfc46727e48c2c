import assert from "node:assert/strict";
import { after, before, beforeEach, describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Redlock } from "redis-lock-client";
import { library, Server, until } from "./harness.js";

const aborted = (signal) => new Promise((resolve) => signal.addEventListener("abort", resolve));

describe("using", () => {
  let server, client, redlock;
  before(async () => {
    server = await Server.start();
    client = await library.connect(server.port);
    redlock = new Redlock([client], { automaticExtensionThreshold: 200 });
  });
  beforeEach(() => server.admin.flushall());
  after(async () => {
    client?.disconnect();
    await server?.stop();
  });

  it("hands the routine's error on, and releases", async () => {
    const failing = redlock.using(["a"], 30_000, async () => {
      throw new RangeError("mine");
    });
    await assert.rejects(failing, RangeError);
    assert.deepEqual(await server.holders("a"), []);
  });

  it("takes settings, and several resources", async () => {
    await redlock.using(["b", "a"], 30_000, { shared: true, retryCount: 0 }, async (_, lock) => {
      assert.deepEqual(lock.resources, ["a", "b"]);
      await (await redlock.acquireRead(["a"], 30_000)).release();
    });
  });

  it("aborts by the end of the lease when the server does not answer", { timeout: 20_000 }, async () => {
    const errors = [];
    const using = redlock.using(["a"], 3000, async (signal, lock) => {
      const start = performance.now();
      process.kill(server.pid, "SIGSTOP");
      await aborted(signal);
      errors.push(signal.error);
      const took = performance.now() - start;
      assert.ok(took < 6000, `${took} ms`);
      assert.ok(!lock.isValid);
      signal.throwIfAborted();
    });
    try {
      await assert.rejects(using, /not extended before its lease was over/);
    } finally {
      process.kill(server.pid, "SIGCONT");
    }
    assert.equal(errors.length, 1);
    await until(async () => (await server.holders("a")).length === 0);
  });

  it("ends soon after the lease when the release is not answered", { timeout: 20_000 }, async () => {
    for (const failure of [undefined, new RangeError("mine")]) {
      const using = redlock.using(["a"], 2000, async () => {
        process.kill(server.pid, "SIGSTOP");
        if (failure) throw failure;
      });
      try {
        await assert.rejects(using, failure ?? /The release was not answered/);
      } finally {
        process.kill(server.pid, "SIGCONT");
      }
      await until(async () => (await server.holders("a")).length === 0);
    }
  });

  it("aborts at the end of the lease that the routine has chosen", async () => {
    let took = 0;
    const using = redlock.using(["a"], 9000, async (signal, lock) => {
      const start = performance.now();
      await lock.extend(1000);
      // The next extension would come after 3 seconds.
      await until(() => signal.aborted, "it is told", 2800);
      took = performance.now() - start;
    });
    await assert.rejects(using, /not extended before its lease was over/);
    assert.ok(took > 980, `${took} ms`);
    await redlock.runOnce("a", { atMost: 2000 }, async (signal, lock) => {
      await lock.extend(30_000);
      await sleep(2100);
      assert.ok(!signal.aborted && lock.isValid, "a longer one, too");
    });
    const job = redlock.runOnce("a", { atMost: 9000 }, async (signal, lock) => {
      await lock.extend(1000);
      await aborted(signal);
    });
    await assert.rejects(job, /not extended before its lease was over/, "it took no longer than atMost");
  });

  it("takes a release by the routine for no loss", async () => {
    for (const result of ["done", new RangeError("mine")]) {
      const [errors, releases] = [[], await server.calls("lock.release")];
      const note = (error) => errors.push(error);
      redlock.on("error", note);
      const using = redlock.using(["a"], 2000, async (signal, lock) => {
        const { remaining } = lock;
        await lock.release();
        assert.deepEqual(await server.holders("a"), []);
        // An extension and the end of the lease would have had their turns.
        await sleep(remaining + 100);
        assert.ok(!signal.aborted, String(signal.error));
        if (result instanceof Error) throw result;
        return result;
      });
      if (result instanceof Error) await assert.rejects(using, result);
      else assert.equal(await using, result);
      redlock.off("error", note);
      assert.deepEqual(errors, []);
      assert.equal((await server.calls("lock.release")) - releases, 1);
    }
    const once = redlock.runOnce("a", { atMost: 9000 }, async (_, lock) => {
      await lock.release({ atLeast: 5000 });
      return "done";
    });
    assert.deepEqual(await once, { hasRun: true, value: "done" });
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

  it("says that it was lost, also when the process had no time to notice", async () => {
    const using = redlock.using(["a"], 2000, async () => {
      for (const end = performance.now() + 2000; performance.now() < end;);
    });
    await assert.rejects(using, /lease was over/);
  });

  it("refuses a duration that leaves no time to extend", async () => {
    await assert.rejects(
      redlock.using(["a"], 250, async () => {}),
      /at least 100ms greater/,
    );
    await assert.rejects(redlock.acquire(["a"], 100, { retryCount: 1, driftFactor: 1 }), RangeError);
    await assert.rejects(redlock.acquire([], 1000), /at least one resource/);
    assert.equal((await server.admin.keys("*")).length, 0);
  });
});

// How long this process believes that it holds a lock, and what the server says to that.
import assert from "node:assert/strict";
import { after, afterEach, before, beforeEach, describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { DurationError, ExecutionError, Redlock, ResourceLockedError } from "redis-lock-client";
import { within } from "../dist/esm/timer.js";
import { Clients, library, Server, until, ways } from "./harness.js";

let server;
before(async () => (server = await Server.start()));
after(() => server?.stop());
beforeEach(async () => {
  await server.admin.flushall();
  await server.admin.config("RESETSTAT");
});

const isLost = (error) => error instanceof ExecutionError && error.cause instanceof ResourceLockedError;
const TRY_AGAIN = "TRYAGAIN not enough servers have confirmed it";

/**
 * Has the client treat its next renewals so, or another command, instead of sending them or after
 * their answer. Returns how many are left.
 */
function fake(client, times, answer, command = "LOCK.RENEW") {
  const name = "call" in client ? "call" : "sendCommand";
  const send = client[name];
  client[name] = async (...args) => {
    if (args.flat()[0] !== command || times <= 0) return send.apply(client, args);
    times--;
    return answer(() => send.apply(client, args));
  };
  return () => times;
}

const tryAgain = () => Promise.reject(new Error(TRY_AGAIN));

for (const { title, library, waitBy } of ways) {
  describe(title, () => {
    let client, redlock;
    const clients = new Clients(library);
    beforeEach(async () => {
      client = await clients.connect(server.port);
      redlock = new Redlock([client], { retryCount: -1, waitBy });
    });
    afterEach(() => clients.end());

    it("counts a lease from the sending, less the drift", async () => {
      const lock = await redlock.acquire(["a"], 60_000);
      fake(client, 1, (send) => send().finally(() => sleep(100)));
      const sent = performance.now();
      await lock.extend(100_000);
      const early = performance.now() + lock.remaining - sent - 98_998;
      assert.ok(early >= 0 && early < 90, `${early} ms after the sending`);

      fake(client, 1, () => Promise.reject(new Error("ERR of another kind")));
      await assert.rejects(lock.extend(10_000, { retryCount: 0 }), ExecutionError);
      assert.ok(lock.remaining < 9_898, "a request that shortens it counts without an answer, too");
    });

    it("lets no answer to an older extension undo a newer, shorter one", async () => {
      const lock = await redlock.acquire(["a"], 60_000);
      let goOn;
      const told = new Promise((resolve) => (goOn = resolve));
      const answers = [
        (send) => send().finally(() => told),
        (send) => send().then(() => Promise.reject(new Error("ERR the answer was lost"))),
      ];
      fake(client, 2, (send) => answers.shift()(send));
      const older = lock.extend(50_000);
      await assert.rejects(lock.extend(10_000, { retryCount: 0 }), ExecutionError);
      goOn();
      await older;
      assert.ok(lock.remaining <= 9_898, `${lock.remaining} ms`);
      await lock.extend(50_000);
      assert.ok(lock.remaining > 30_000);
    });

    it("takes a lease that is over for lost", async () => {
      const lock = await redlock.acquire(["a"], 300);
      await server.admin.call("LOCK.RENEW", "a", lock.value, 60_000);
      fake(client, 1, (send) => send().finally(() => sleep(400)));
      for (const when of ["by the answer", "before"]) await assert.rejects(lock.extend(30_000), isLost, when);
      assert.ok(!lock.isValid);

      const shortened = await redlock.acquire(["b"], 60_000);
      fake(client, 1, () => Promise.reject(new Error("ERR of another kind")));
      await assert.rejects(shortened.extend(300, { retryDelay: 500, retryJitter: 0 }), isLost);
      assert.ok(!shortened.isValid, "also by an extension that shortens it, and is sent again");
    });

    it("knows of a loss that an extension has found", async () => {
      const lock = await redlock.acquire(["a"], 60_000);
      await server.admin.del("a");
      await assert.rejects(lock.extend(60_000), isLost);
      assert.ok(!lock.isValid);
    });

    it("loses nothing by TRYAGAIN before the lease is over", async () => {
      const left = fake(client, 3, tryAgain);
      await redlock
        .using(["a"], 1_500, async (signal) => {
          await until(async () => (await server.calls("lock.renew")) > 0);
          assert.ok(left() <= 0 && !signal.aborted);
          fake(client, Infinity, tryAgain);
          await until(() => signal.aborted);
        })
        .then(assert.fail, (error) => assert.match(error.cause.message, /TRYAGAIN/));
      const lock = await redlock.acquire(["b"], 300);
      await assert.rejects(lock.extend(300), isLost);
    });

    it("asks again at TRYAGAIN until the lease is over, also without retries", async () => {
      const lock = await redlock.acquire(["a"], 1_500);
      const left = fake(client, 2, tryAgain);
      await lock.extend(1_500, { retryCount: 0 });
      assert.equal(left(), 0);
      fake(client, Infinity, tryAgain);
      const end = performance.now() + lock.remaining;
      await assert.rejects(lock.extend(1_500, { retryCount: 0 }), isLost);
      assert.ok(performance.now() >= end && !lock.isValid);
    });

    it("gives back what it may hold until a server has done it", async () => {
      const lost = new Error("Socket closed unexpectedly");
      const readonly = new Error("READONLY You can't write against a read only replica.");
      fake(client, 1, (send) => send().then(() => Promise.reject(lost)), "LOCK.ACQUIRE");
      fake(client, 3, () => Promise.reject(readonly), "LOCK.RELEASE");
      await assert.rejects(redlock.acquire(["a"], 60_000, { retryCount: 0 }), /Socket closed/);
      assert.equal((await server.holders("a")).length, 1);
      await until(async () => (await server.holders("a")).length === 0);
    });

    it("gives up an extension and a release when its client has ended", async () => {
      const lock = await redlock.acquire(["a"], 60_000);
      library.end(client);
      for (const step of [() => lock.extend(60_000), () => lock.release()])
        await assert.rejects(within(5000, step(), "it still tries"), ExecutionError, step.toString());
    });

    it("takes off no less for drift than a guard counts on", async () => {
      const lock = await redlock.acquire(["a"], 100_000, { driftFactor: 0 });
      assert.ok(lock.remaining <= 98_998);
    });
  });
}

it("says of a duration above max-ttl that it is too long", async () => {
  const bounded = await Server.start({ moduleSettings: ["max-ttl", 1_000] });
  const client = await library.connect(bounded.port);
  const isTooLong = (error) =>
    error.cause instanceof DurationError && /duration .*atMost.*: ERR .*lock\.max-ttl/.test(error.message);
  try {
    for (const waitBy of ["block", "notify"]) {
      const redlock = new Redlock([client], { waitBy });
      await bounded.admin.config("RESETSTAT");
      await assert.rejects(redlock.acquire(["a"], 1_001), isTooLong);
      assert.equal(await bounded.calls("lock.acquire"), 1);
      await assert.rejects(redlock.acquireRead(["a"], 1_001), isTooLong);
      await assert.rejects(redlock.semaphore("a", 2).acquire(1_001), isTooLong);
      await assert.rejects(redlock.multiLock(["a"]).acquire(1_001), isTooLong);
      const lock = await redlock.acquire(["a"], 1_000);
      await assert.rejects(lock.extend(1_001), isTooLong);
      await lock.release();
    }
  } finally {
    library.end(client);
    await bounded.stop();
  }
});

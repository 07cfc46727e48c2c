import assert from "node:assert/strict";
import { after, afterEach, before, beforeEach, describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { ExecutionError, Redlock, ResourceLockedError, UnsupportedError } from "redis-lock-client";
import { asWithOldModule, Clients, Proxy, Server, until, ways } from "./harness.js";

let server;
before(async () => (server = await Server.start()));
after(() => server?.stop());

it("refuses no resource, one that is named twice, and several clients", async () => {
  const clients = [1, 2].map(() => server.admin.duplicate({ lazyConnect: true }));
  const redlock = new Redlock([clients[0]]);
  assert.throws(() => redlock.multiLock([]), RangeError);
  assert.throws(() => redlock.multiLock(Array.from({ length: 129 }, (_, i) => `${i}`)), RangeError);
  assert.throws(() => redlock.multiLock(["a", "b"], ["a"]), /named twice/);
  assert.throws(() => new Redlock(clients).multiLock(["a"]), TypeError);
});

for (const { title, library, waitBy } of ways) {
  describe(title, () => {
    let client, redlock, a, b;
    let number = 0;
    const clients = new Clients(library);
    beforeEach(async () => {
      [a, b] = ["a", "b"].map((name) => `${title} ${number} ${name}`);
      number++;
      client = await clients.connect(server.port);
      redlock = new Redlock([client], { retryCount: -1, retryDelay: 50, waitBy });
    });
    afterEach(() => clients.end());
    const isListening = (key, count) =>
      until(async () => (await server.listening(key)).length === count, `${count} listen`);
    const isFree = async () =>
      assert.deepEqual(
        [await server.admin.call("LOCK.INFO", a), await server.admin.call("LOCK.INFO", b)],
        [null, null],
      );

    it("takes all with one fence, extends all, and releases all", async () => {
      const lock = await redlock.multiLock([b, a]).acquire(1000);
      assert.ok(lock.fence > 0);
      assert.deepEqual(lock.fences, new Map([b, a].map((key) => [key, [lock.fence]])));
      await lock.extend(60_000);
      for (const key of [a, b]) {
        assert.deepEqual(await server.holders(key), [lock.value]);
        assert.ok((await server.admin.pttl(key)) > 50_000);
      }
      assert.equal(await lock.check(), true);
      await lock.release();
      await isFree();
    });

    it("leaves no place behind when its time is over", async () => {
      const held = await redlock.acquire([b], 30_000);
      const gaveUp = redlock
        .multiLock([a, b])
        .acquire(30_000, { retryCount: 3 })
        .catch((error) => error);
      await isListening(b, 1);
      const error = await gaveUp;
      assert.ok(error instanceof ExecutionError && error.cause instanceof ResourceLockedError);
      assert.deepEqual([await server.places(a), await server.places(b)], [[], []]);
      await held.release();
      await isFree();
    });

    it("keeps its turn, and its place over cut connections", async () => {
      const proxy = await Proxy.start(server.port);
      const held = await redlock.acquire([b], 30_000);
      const through = new Redlock([await clients.connect(proxy.port)], {
        retryCount: -1,
        retryDelay: 50,
        waitBy,
      });
      const waiting = through.multiLock([a, b]).acquire(30_000, { blockSlice: 300 });
      await isListening(b, 1);
      const [token] = await server.waiters(b);
      // Each waits for one of the two only.
      const behind = [a, b].map((key) => redlock.acquire([key], 30_000));
      await isListening(a, 2);
      await isListening(b, 2);
      proxy.cut();
      await until(async () => (await server.listening(b))[0] === token, "it waits again");
      proxy.cut();
      await held.release();
      const lock = await waiting;
      assert.equal(lock.value, token);
      await lock.release();
      for (const one of await Promise.all(behind)) {
        assert.ok(one.fence > lock.fence);
        await one.release();
      }
      await isFree();
      clients.end();
      proxy.stop();
    });

    it(
      "does not wait in a circle with one that takes them in the other order",
      { timeout: 30_000 },
      async () => {
        let inside = 0;
        let turns = 0;
        const worker = async (resources) => {
          const mine = new Redlock([await clients.connect(server.port)], { retryCount: -1, waitBy });
          for (let i = 0; i < 8; i++) {
            await mine.multiLock(resources).using(10_000, async () => {
              assert.equal(++inside, 1);
              await sleep(20);
              inside--;
              turns++;
            });
          }
        };
        await Promise.all(
          [
            [a, b],
            [b, a],
            [a, b],
            [b, a],
          ].map(worker),
        );
        assert.equal(turns, 32);
        await isFree();
      },
    );

    it("ends soon after its connection with `linger`", async () => {
      const other = await clients.connect(server.port);
      const lock = await new Redlock([other], { waitBy })
        .multiLock([a], [b])
        .acquire(60_000, { linger: 300 });
      library.end(other);
      const next = await redlock.multiLock([b, a]).acquire(1000);
      assert.ok(next.fence > lock.fence);
      await until(() => !lock.isValid, "the lease was cut short, too", 1000);
      await next.release();
    });

    it("waits for an old client's string, and is a lock to old clients", async () => {
      await server.admin.set(b, "old", "PX", 300, "NX");
      assert.equal(await redlock.multiLock([a, b]).tryAcquire(1000), null);
      const calls = await server.calls("lock.macquire");
      const lock = await redlock.multiLock([a, b]).acquire(1000);
      const asked = (await server.calls("lock.macquire")) - calls;
      assert.ok(asked < 15, `asked ${asked} times in 300 ms`);
      assert.equal(await server.admin.set(b, "old", "PX", 300, "NX"), null);
      await lock.release();
      await isFree();
    });

    it("is lost when one of its keys is gone", async () => {
      const lock = await redlock.multiLock([a, b]).acquire(30_000);
      await server.admin.del(a);
      assert.equal(await lock.check(), false);
      await assert.rejects(lock.extend(1000), (error) => error.cause instanceof ResourceLockedError);
      await assert.rejects(lock.release(), ExecutionError);
      await isFree();
    });

    it("begins anew when a part of what it was granted, unheard, has ended", async () => {
      const name = "call" in client ? "call" : "sendCommand";
      const send = client[name];
      const answers = [];
      client[name] = async (...args) => {
        if (args.flat()[0] !== "LOCK.MACQUIRE") return send.apply(client, args);
        const answer = send.apply(client, args);
        answers.push(await answer.then(Number, ({ message }) => message.split(" ")[0]));
        if (answers.length > 1) return answer;
        await server.admin.del(a);
        throw new Error("the connection was lost");
      };
      const lock = await redlock.multiLock([a, b]).acquire(30_000);
      assert.deepEqual([answers[1], answers[2]], ["PARTIAL", lock.fence]);
      assert.ok(lock.fence > answers[0]);
      await lock.release();
      await isFree();
    });

    it("says what a module of 0.1 lacks", async () => {
      const old = new Redlock([asWithOldModule(await clients.connect(server.port))], { waitBy });
      await assert.rejects(
        old.multiLock([a, b]).acquire(1000),
        (error) => error.cause instanceof UnsupportedError && /LOCK\.MACQUIRE.* 0\.2/.test(error.message),
      );
    });
  });
}

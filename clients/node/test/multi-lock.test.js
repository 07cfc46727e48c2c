import assert from "node:assert/strict";
import { after, afterEach, before, beforeEach, describe, it } from "node:test";
import { Redlock } from "redis-lock-client";
import { Clients, Server, ways } from "./harness.js";

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
      assert.equal(await redlock.multiLock([a, b]).tryAcquire(1000), null);
      await lock.release();
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
  });
}

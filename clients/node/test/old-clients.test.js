// While one service after the other is moved: clients of node-redlock, with their string locks, and clients of this package.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { after, before, beforeEach, describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { ExecutionError, Redlock, ResourceLockedError } from "redis-lock-client";
import { ioredis, Server, until } from "./harness.js";

const require = createRequire(import.meta.url);
const Redlock4 = require("redlock");
const Redlock5 = require("redlock-5").default;

let server, client, fresh;
before(async () => {
  server = await Server.start();
  client = await ioredis.connect(server.port);
  fresh = new Redlock([client], { retryCount: -1 });
});
beforeEach(() => server.admin.flushall());
after(async () => {
  client?.disconnect();
  await server?.stop();
});

const old = {
  "node-redlock 4.2.0": (settings) => new Redlock4([client], settings),
  "node-redlock 5.0.0-beta.2": (settings) => new Redlock5([client], settings),
};
const resources = { "node-redlock 4.2.0": "a", "node-redlock 5.0.0-beta.2": ["a"] };

for (const [name, create] of Object.entries(old)) {
  describe(name, () => {
    it("is waited for, also by who asks for a shared hold", async () => {
      const held = await create().acquire(resources[name], 30_000);
      const errors = [];
      fresh.on("error", (error) => errors.push(error));
      let granted = 0;
      const waiting = [fresh.acquire(["a"], 5000), fresh.acquireRead(["a"], 5000)];
      for (const one of waiting) one.then(() => granted++);
      await until(() => errors.length >= 4);
      assert.equal(granted, 0);
      assert.ok(errors.every((error) => error instanceof ResourceLockedError));
      await (held.unlock ?? held.release).call(held);
      await (await Promise.race(waiting)).release();
      for (const one of waiting) await one;
    });

    it("is refused while a new client has the lock, and waits its turn", async () => {
      const held = await fresh.acquire(["a"], 30_000);
      await assert.rejects(create({ retryCount: 1, retryDelay: 20 }).acquire(resources[name], 5000));
      const waiting = create({ retryCount: 200, retryDelay: 20 }).acquire(resources[name], 5000);
      await sleep(100);
      await held.release();
      const theirs = await waiting;
      await assert.rejects(fresh.acquire(["a"], 5000, { retryCount: 0 }), ExecutionError);
      await (theirs.unlock ?? theirs.release).call(theirs);
    });

    it("does not end what a new client holds", async () => {
      const theirs = await create({ retryCount: 1 }).acquire(resources[name], 1500);
      await until(async () => (await server.admin.exists("a")) === 0);
      const ours = await fresh.acquire(["a"], 30_000);
      await assert.rejects((theirs.unlock ?? theirs.release).call(theirs));
      assert.deepEqual(await server.holders("a"), [ours.value]);
    });
  });
}

it("a key that is no lock at all is an error, not a lock", async () => {
  await server.admin.sadd("a", "member");
  await assert.rejects(fresh.acquire(["a"], 5000, { retryCount: 1, retryDelay: 10 }), (error) => {
    return error instanceof ExecutionError && /WRONGTYPE/.test(error.message) && error.attempts.length === 1;
  });
});

// With no more rights than the documents give a worker.
import assert from "node:assert/strict";
import { after, afterEach, describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Redlock } from "redis-lock-client";
import { Clients, gatherWarnings, Server, allLibraries, until } from "./harness.js";

const BASE = "on >secret resetchannels ~jobs:* -@all".split(" ");
/** As docs/OPERATIONS.md has it. */
const WORKER = "+lock.acquire +rwlock.rlock +rwlock.wlock +lock.release +lock.renew".split(" ");
const USERS = {
  worker: WORKER,
  /** For multi-locks, `check` and `exec`. */
  more: [...WORKER, "+set", "+lock.macquire", "+lock.check", "+lock.exec"],
  /** For `waitBy: "notify"`. */
  notified: [...WORKER, "&redis-lock:*", "+subscribe", "+ping"],
};
const server = await Server.start();
after(server.stop);
for (const [user, rights] of Object.entries(USERS))
  await server.admin.acl("SETUSER", user, ...BASE, ...rights);

// ioredis says there that it may not ask for INFO.
console.warn = () => {};

for (const [name, library] of Object.entries(allLibraries)) {
  describe(name, () => {
    const key = `jobs:${name}`;
    const clients = new Clients(library);
    const connect = (username) => clients.connect(server.port, { username, password: "secret" });
    afterEach(clients.end);
    const works = async (redlock) => {
      const first = await redlock.acquire([key], 5000);
      const waiting = redlock.acquire([key], 5000);
      await until(async () => (await server.listening(key)).length === 1);
      await first.extend(10_000);
      await first.release();
      await (await waiting).release();
      const reader = await redlock.acquireRead([key], 5000);
      await assert.rejects(redlock.acquireWrite([key], 5000, { retryCount: 0 }), { code: "ERR_LOCK_TAKEN" });
      await reader.release();
      await (await redlock.semaphore(key, 2).acquire(5000)).release();
      await (await redlock.acquire([key], 5000, { linger: 1000 })).release({ atLeast: 1 });
    };

    it("acl: a worker can lock, wait, read, extend and release, and do more with a right for each", async () => {
      const redlock = new Redlock([await connect("worker")]);
      await works(redlock);
      // It may not ask what is there instead of a lock. So it takes it for an old client's, and asks for the lock again.
      await server.admin.set(key, "old", "PX", 200);
      await (await redlock.acquire([key], 5000)).release();
      await assert.rejects(redlock.acquire(["other"], 5000), /NOPERM/);
      await server.admin.acl("SETUSER", "late", ...BASE, ...WORKER);
      const late = new Redlock([await connect("late")], { retryCount: -1 });
      await server.admin.acl("SETUSER", "late", "resetpass");
      await assert.rejects(late.acquire([key], 5000), { code: "ERR_LOCK_REFUSED", message: /WRONGPASS/ });
      const both = await new Redlock([await connect("more")]).multiLock([key, `${key} b`]).acquire(5000);
      assert.equal(await both.check(), true);
      assert.equal(await both.exec("SET", `${key} row`, 1), "OK");
      await both.release();
    });

    it("acl: notified of grants with the right to its channels, and without it by blocking", async () => {
      const codes = [];
      const stop = gatherWarnings(codes);
      for (const [user, warnings] of [
        ["notified", []],
        ["worker", ["REDIS_LOCK_WITHOUT_NOTIFY"]],
      ]) {
        const failures = [];
        const redlock = new Redlock([await connect(user)], { waitBy: "notify" });
        redlock.on("error", (error) => error.code ?? failures.push(error));
        await works(redlock);
        // After a silence the connections are asked whether they live.
        if (user === "notified") await sleep(4100).then(() => works(redlock));
        assert.deepEqual(failures, []);
        await sleep(0);
        assert.deepEqual(codes, warnings);
      }
      stop();
    });
  });
}

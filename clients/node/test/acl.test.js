// With no more rights than the documents give a worker.
import assert from "node:assert/strict";
import { after, afterEach, before, describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Redlock } from "redis-lock-client";
import { Clients, gatherWarnings, Server, allLibraries, until } from "./harness.js";

/** As docs/OPERATIONS.md has it. */
const WORKER = ["+lock.acquire", "+rwlock.rlock", "+rwlock.wlock", "+lock.release", "+lock.renew"];
/** For multi-locks, `check` and `exec`. */
const MORE = ["+lock.macquire", "+lock.check", "+lock.exec"];
/** For `waitBy: "notify"`. */
const NOTIFIED = ["&redis-lock:*", "+subscribe", "+ping"];
let server;
before(async () => {
  server = await Server.start();
  const base = ["on", ">secret", "resetchannels", "~jobs:*", "-@all"];
  await server.admin.acl("SETUSER", "worker", ...base, ...WORKER);
  await server.admin.acl("SETUSER", "more", ...base, "+set", ...WORKER, ...MORE);
  await server.admin.acl("SETUSER", "notified", ...base, ...WORKER, ...NOTIFIED);
});
after(() => server?.stop());

for (const [name, library] of Object.entries(allLibraries)) {
  describe(name, () => {
    let number = 0;
    const clients = new Clients(library);
    const warn = console.warn;
    const connect = async (username, { port } = server) => {
      // ioredis says there that it may not ask for INFO.
      console.warn = () => {};
      return clients.connect(port, { username, password: "secret" });
    };
    afterEach(() => {
      console.warn = warn;
      clients.end();
    });
    const works = async (redlock, key) => {
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

    it("acl: a worker can lock, wait, read, extend and release", async () => {
      const redlock = new Redlock([await connect("worker")]);
      const key = `jobs:${name} ${++number}`;
      await works(redlock, key);

      // It may not ask what is there instead of a lock. So it takes it for an old client's, and asks for the lock again.
      await server.admin.set(key, "old", "PX", 200);
      await (await redlock.acquire([key], 5000)).release();
      await assert.rejects(redlock.acquire(["other"], 5000), /NOPERM/);
    });

    it("acl: multi-locks, checks and guarded commands need a right each", async () => {
      const redlock = new Redlock([await connect("more")], { retryCount: 0 });
      const key = `jobs:${name} ${++number}`;
      const both = await redlock.multiLock([key, `${key} b`]).acquire(5000);
      assert.equal(await both.check(), true);
      assert.equal(await both.exec("SET", `${key} row`, 1), "OK");
      await both.release();
    });

    it("acl: the fallback needs the rights to its strings and scripts", async (t) => {
      const bare = await Server.start({ withModule: false });
      t.after(() => bare.stop());
      const rights = "resetchannels ~jobs:* -@all +set +get +del +type +pexpire +eval".split(" ");
      await bare.admin.acl("SETUSER", "worker", "on", ">secret", ...rights);
      const redlock = new Redlock([await connect("worker", bare)], { fallback: true });
      const lock = await redlock.acquire(["jobs:a"], 5000);
      assert.equal(await lock.check(), true);
      await lock.extend(5000);
      await lock.release();
      assert.equal(await bare.admin.exists("jobs:a"), 0);
    });

    it("acl: notified of grants with the right to its channels, and without it by blocking", async () => {
      const codes = [];
      const stop = gatherWarnings(codes);
      const notified = new Redlock([await connect("notified")], { waitBy: "notify" });
      await works(notified, `jobs:${name} ${++number}`);
      await sleep(0);
      assert.deepEqual(codes, []);
      const deaf = new Redlock([await connect("worker")], { waitBy: "notify" });
      await works(deaf, `jobs:${name} ${++number}`);
      await sleep(0);
      stop();
      assert.deepEqual(codes, ["REDIS_LOCK_WITHOUT_NOTIFY"]);
    });
  });
}

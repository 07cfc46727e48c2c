// With no more rights than the documents give a worker.
import assert from "node:assert/strict";
import { after, afterEach, before, describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { ExecutionError, Redlock, ResourceLockedError } from "redis-lock-client";
import { Clients, gatherWarnings, Server, allLibraries, until } from "./harness.js";

/** As docs/OPERATIONS.md has it. */
const WORKER = ["+lock.acquire", "+rwlock.rlock", "+rwlock.wlock", "+lock.release", "+lock.renew"];
/** For multi-locks, `check` and `exec`. */
const MORE = ["+lock.macquire", "+lock.check", "+lock.exec"];
/** For `waitBy: "notify"`. */
const NOTIFIED = ["&redis-lock:*", "+subscribe", "+ping"];
/** What libraries ask on their own when they connect; each goes on without. */
const ASKED_BY_LIBRARIES = [
  "info",
  "client|setinfo",
  "client",
  "client|setname",
  "client|maint_notifications",
  // How this package learns which database node-redis has selected, and whether a connection lives. It goes on without.
  "client|info",
  "ping",
];

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
    const connect = async (username) => {
      // ioredis says there that it may not ask for INFO.
      console.warn = () => {};
      await server.admin.acl("LOG", "RESET");
      return clients.connect(server.port, { username, password: "secret" });
    };
    afterEach(() => {
      console.warn = warn;
      clients.end();
    });
    /** Of the commands that were refused, those that are ours. */
    const refused = async () => {
      const log = await server.admin.acl("LOG");
      const entries = log.map((entry) =>
        Array.isArray(entry) ? entry[entry.indexOf("object") + 1] : entry.object,
      );
      return entries.filter((command) => !ASKED_BY_LIBRARIES.includes(command));
    };
    const isListening = (key) => until(async () => (await server.listening(key)).length === 1);

    const works = async (redlock, key) => {
      const first = await redlock.acquire([key], 5000);
      const waiting = redlock.acquire([key], 5000);
      await isListening(key);
      await first.extend(10_000);
      await first.release();
      const second = await waiting;
      assert.ok(second.fence > 0);
      await second.release();
      const readers = [await redlock.acquireRead([key], 5000), await redlock.acquireRead([key], 5000)];
      await assert.rejects(redlock.acquireWrite([key], 5000, { retryCount: 0 }), (error) => {
        return error instanceof ExecutionError && error.cause instanceof ResourceLockedError;
      });
      for (const reader of readers) await reader.release();
      await redlock.using([key], 3000, async (signal) => {
        const renewals = await server.calls("lock.renew");
        await until(async () => (await server.calls("lock.renew")) > renewals);
        assert.ok(!signal.aborted);
      });
      await (await redlock.semaphore(key, 2).acquire(5000)).release();
      await (await redlock.acquire([key], 5000, { linger: 1000 })).release({ atLeast: 1 });
      const result = await redlock.runOnce(`${key} job`, { atMost: 5000 }, async () => 1);
      assert.equal(result.value, 1);
    };

    it("acl: a worker can lock, wait, read, extend and release", async () => {
      const redlock = new Redlock([await connect("worker")]);
      const key = `jobs:${name} ${++number}`;
      await works(redlock, key);
      assert.deepEqual(await refused(), []);

      // It may not ask what is there instead of a lock. So it takes it for an old client's, and asks for the lock again.
      await server.admin.set(key, "old", "PX", 200);
      await (await redlock.acquire([key], 5000)).release();
      assert.deepEqual([...new Set(await refused())].sort(), ["pttl", "type"]);
      const other = await redlock.acquire(["other"], 5000).catch((error) => error);
      assert.match(other.message, /NOPERM/);
    });

    it("acl: multi-locks, checks and guarded commands need a right each", async () => {
      const redlock = new Redlock([await connect("more")], { retryCount: 0 });
      const key = `jobs:${name} ${++number}`;
      const both = await redlock.multiLock([key, `${key} b`]).acquire(5000);
      assert.equal(await both.check(), true);
      assert.equal(await both.exec("SET", `${key} row`, 1), "OK");
      await both.release();
      assert.deepEqual(await refused(), []);
    });

    it("acl: the fallback needs the rights to its strings and scripts", async () => {
      const bare = await Server.start({ withModule: false });
      const stop = gatherWarnings([]);
      try {
        const rights = "resetchannels ~jobs:* -@all +set +get +del +type +pexpire +eval".split(" ");
        await bare.admin.acl("SETUSER", "worker", "on", ">secret", ...rights);
        console.warn = () => {};
        const client = await clients.connect(bare.port, { username: "worker", password: "secret" });
        const redlock = new Redlock([client], { fallback: true });
        const lock = await redlock.acquire(["jobs:a"], 5000);
        assert.equal(await lock.check(), true);
        await lock.extend(5000);
        await lock.release();
        assert.equal(await bare.admin.exists("jobs:a"), 0);
        clients.end();
      } finally {
        stop();
        await bare.stop();
      }
    });

    it("acl: notified of grants with the right to its channels, and without it by blocking", async () => {
      const codes = [];
      const stop = gatherWarnings(codes);
      const notified = new Redlock([await connect("notified")], { waitBy: "notify" });
      await works(notified, `jobs:${name} ${++number}`);
      assert.deepEqual(await refused(), []);
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

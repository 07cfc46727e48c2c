// Locks of a server without the module, with the rights to strings and scripts: what the shared scenarios do not say of them.
import assert from "node:assert/strict";
import { after, afterEach, beforeEach, describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { ExecutionError, once, Redlock } from "redis-lock-client";
import { Clients, gatherWarnings, ioredis, Server, ways } from "./harness.js";

const bare = await Server.start({ withModule: false });
after(bare.stop);
beforeEach(() => bare.admin.flushall());

const user = { username: "worker", password: "secret" };
const rights =
  "on >secret resetchannels &redis-lock:* ~* -@all +subscribe +ping +set +get +del +type +pexpire +pttl +eval";
await bare.admin.acl("SETUSER", "worker", ...rights.split(" "));
// ioredis says there that it may not ask for INFO.
console.warn = () => {};

const routine = async () => assert.fail("it ran");
/** Rejects because of the missing module, and says these words. */
const isMissing = (attempt, ...words) =>
  assert.rejects(attempt, (error) => {
    assert.ok(error instanceof ExecutionError && error.code === "ERR_LOCK_NO_MODULE");
    for (const word of words) assert.ok(error.message.includes(word), `${word}: ${error.message}`);
    return true;
  });

for (const { title, library, waitBy } of ways) {
  describe(title, () => {
    let client, redlock, codes, stop;
    const clients = new Clients(library);
    beforeEach(async () => {
      stop = gatherWarnings((codes = []));
      client = await clients.connect(bare.port, user);
      redlock = new Redlock([client], { waitBy, fallback: true });
    });
    afterEach(() => (stop(), clients.end()));

    it("fallback: without the setting, an error says what is missing, and how it is had", async () => {
      const strict = new Redlock([client], { waitBy });
      const words = ["loadmodule /path/libredis_lock.so", "restart the server", "fallback: true", "no fence"];
      await isMissing(strict.runOnce("a", { atMost: 5000 }, routine), ...words);
      await sleep(0);
      assert.deepEqual(codes, []);
    });

    it("fallback: is a string, is warned of once, and says what it does not have", async () => {
      const lock = await redlock.acquire(["a"], 5000);
      assert.equal(await bare.admin.get("a"), lock.value);
      // Another one of the same client warns no more.
      const other = new Redlock([client], { waitBy, fallback: true, retryCount: 0 });
      await assert.rejects(other.acquire(["a"], 5000), { code: "ERR_LOCK_TAKEN" });
      for (const attempt of [
        () => redlock.acquire(["b"], 5000, { linger: 100 }),
        () => lock.exec("SET", "b", 1),
        () => lock.release({ atLeast: 100 }),
      ])
        await isMissing(attempt(), "no redis-lock module", "is not available in the fallback");
      await isMissing(once(redlock, "b", routine), "LOCK.ONCE");
      assert.deepEqual(await bare.admin.keys("*"), ["a"]);
      await sleep(0);
      assert.deepEqual(codes, ["REDIS_LOCK_FALLBACK"]);
    });

    it("fallback: finds what was set when the reply was lost", async () => {
      const proxy = await clients.proxy(bare.port);
      const settings = { fallback: true, retryDelay: 50, retryCount: 100, waitBy };
      const far = new Redlock([await clients.connect(proxy.port, user)], settings);
      await (await far.acquire(["warm"], 5000)).release();
      proxy.losesNextReply = true;
      const lock = await far.acquire(["a"], 30_000);
      assert.ok(!proxy.losesNextReply);
      assert.equal(await bare.admin.get("a"), lock.value);
    });
  });
}

it("fallback: adds the client's prefix once, and takes a key of another type for somebody else's", async (t) => {
  const client = await ioredis.connect(bare.port, { ...user, keyPrefix: "app:" });
  t.after(() => client.disconnect());
  const redlock = new Redlock([client], { fallback: true, retryCount: 0 });
  const lock = await redlock.acquire(["a"], 5000);
  assert.deepEqual(await bare.admin.keys("*"), ["app:a"]);
  await bare.admin.multi().del("app:a").sadd("app:a", "member").exec();
  assert.equal(await lock.check(), false);
  await assert.rejects(lock.extend(60_000), { code: "ERR_LOCK_LOST" });
  await assert.rejects(lock.release(), { code: "ERR_LOCK_LOST" });
  await assert.rejects(redlock.acquire(["a"], 5000), { code: "ERR_LOCK_TAKEN" });
  assert.equal(await bare.admin.type("app:a"), "set");
});

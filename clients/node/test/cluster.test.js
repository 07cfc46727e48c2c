// Locks in a cluster: spread by their keys, and followed when their slots move or their node fails.
import assert from "node:assert/strict";
import { after, afterEach, beforeEach, describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { once, Redlock } from "redis-lock-client";
import { allLibraries, Clients, gatherWarnings, until, waysOf } from "./harness.js";
import { slotOf, tagOfSlot } from "../dist/esm/slot.js";
import { within } from "../dist/esm/timer.js";
import { begin, end, TestCluster } from "./topology.js";

const cluster = await TestCluster.start();
after(() => cluster.stop());

const ways = waysOf(allLibraries);
const clients = new Clients();
const connect = (library, options) => clients.add(library, "connectCluster", cluster.ports, options);
afterEach(clients.end);

const isListening = (key) =>
  until(async () => (await (await cluster.ownerOf(key)).listening(key)).length === 1, `one waits for ${key}`);

for (const [name, library] of Object.entries(allLibraries).filter(([, { isLikeIoredis }]) => isLikeIoredis))
  it(`cluster, ${name}: sees a string lock at a key with a prefix, at the primary`, async () => {
    // The replicas may not have it yet.
    const client = await connect(library, { keyPrefix: "app:", scaleReads: "slave" });
    const lazy = client.duplicate();
    await new Redlock([lazy]).using(["a"], 5000, async () => {});
    lazy.disconnect();
    const redlock = new Redlock([client], { retryCount: 0 });
    const key = await cluster.key("app:string");
    const { admin } = await cluster.ownerOf(key);
    await admin.set(key, "an old client's", "PX", 30_000);
    await admin.config("RESETSTAT");
    const refused = redlock.acquire([key.slice("app:".length)], 5000);
    await assert.rejects(refused, /by a client with a string lock/);
    assert.match(await admin.info("commandstats"), /cmdstat_type:calls=1,/);
    await admin.del(key);
  });

/** All that locks and waits need, in a cluster. */
const RIGHTS =
  "reset on >secret resetchannels &redis-lock:* ~jobs:* -@all +lock.acquire +lock.release +lock.renew +ssubscribe +ping +cluster|slots";

for (const { title, library, waitBy } of ways) {
  describe(title, () => {
    let redlock;
    beforeEach(async () => {
      redlock = new Redlock([await connect(library)], { retryCount: -1, waitBy });
    });

    it("cluster, acl: locks are spread by key, and each waits where its key is", async () => {
      const codes = [];
      const stop = gatherWarnings(codes);
      const rights = library.isLikeIoredis ? `${RIGHTS} +cluster|info` : RIGHTS;
      for (const { admin } of cluster.nodes) await admin.acl("SETUSER", "worker", ...rights.split(" "));
      const user = { username: "worker", password: "secret" };
      const { warn } = console;
      console.warn = () => {};
      const client = await connect(
        library,
        library.isLikeIoredis ? { redisOptions: user } : { defaults: user },
      );
      redlock = new Redlock([client], { retryCount: -1, waitBy });
      const keys = [0, 1, 2, 3, 4, 5].map((i) => `jobs:{${i}} spread ${title}`);
      const owners = await Promise.all(keys.map((key) => cluster.ownerOf(key)));
      assert.ok(new Set(owners).size > 1, "on several nodes");
      const locks = await Promise.all(keys.map((key) => redlock.acquire([key], 30_000)));
      for (const [i, key] of keys.entries()) assert.deepEqual(await owners[i].holders(key), [locks[i].value]);
      const waiting = keys.map((key) => redlock.acquire([key], 30_000));
      for (const key of keys) await isListening(key);
      for (const lock of locks) await lock.extend(60_000);
      for (const lock of locks) await lock.release();
      const others = await Promise.all(waiting);
      for (const [i, other] of others.entries()) assert.ok(other.fence > locks[i].fence);
      await Promise.all(others.map((other) => other.release()));
      // What waited has connections of its own, which end with the client.
      library.end(client);
      const users = async () => (await Promise.all(cluster.nodes.map((node) => node.clients()))).flat();
      await until(
        async () => (await users()).every(({ user }) => user !== "worker"),
        "its connections are closed",
      );
      await sleep(0);
      console.warn = warn;
      stop();
      assert.deepEqual(codes, []);
    });

    it("cluster: a value is waited for where its key is", async () => {
      for (const name of ["0", "1", "2"].map((part) => `${part} value ${title}`)) {
        let returns;
        const made = once(redlock, name, () => new Promise((resolve) => (returns = resolve)));
        await until(() => returns);
        const waiting = once(redlock, name, () => "another", { wait: 20_000 });
        await isListening(`{${name}}:once`);
        returns("it");
        assert.deepEqual(await Promise.all([made, waiting]), ["it", "it"]);
      }
    });

    it("cluster: several resources are of one slot", async () => {
      const resources = ["a", "b", "c"].map((name) => `${name} several ${title}`);
      for (const acquiring of [redlock.multiLock(resources).acquire(1000), redlock.acquire(resources, 1000)])
        await assert.rejects(within(5000, acquiring, "it still tries"), { code: "ERR_LOCK_SLOTS" });
      const tagged = resources.map((name) => `{tag}:${name}`);
      const both = await redlock.multiLock(tagged).acquire(5000);
      const next = redlock.acquire(tagged, 5000);
      await isListening(tagged[0]);
      await both.release();
      await (await next).release();
    });

    it("cluster_slot_moves: a waiter and a holder follow it", { timeout: 30_000 }, async () => {
      const key = `moves ${title}`;
      const holder = await redlock.acquire([key], 30_000);
      const waiting = redlock.acquire([key], 30_000);
      await isListening(key);
      const [token] = await (await cluster.ownerOf(key)).waiters(key);
      const { to: target, finish } = await cluster.beginToMove(key);
      await finish();
      await until(async () => (await target.listening(key)).includes(token), "it waits at the new node");
      assert.deepEqual(await target.holders(key), [holder.value]);
      // Else a client that nobody uses for commands would know no node any more when all were replaced.
      const known = () => redlock.server.driver.place(key);
      await until(async () => (await known())?.endsWith(`:${target.port}`), "the client hears of it");
      await holder.extend(40_000);
      await holder.release();
      const lock = await waiting;
      assert.equal(lock.value, token);
      assert.ok(lock.fence > holder.fence);
      await lock.release();
    });

    it("cluster_slot_moves: a lock is had while its slot is on its way", { timeout: 30_000 }, async () => {
      const key = `on its way ${title}`;
      const { from, to, finish } = await cluster.beginToMove(key);
      // The key is not on the old node, which says ASK.
      const lock = await redlock.acquire([key], 30_000, { linger: 5000 });
      assert.equal((await from.admin.cluster("COUNTKEYSINSLOT", slotOf(key))) ?? 0, 0);
      await finish();
      assert.deepEqual(await to.holders(key), [lock.value]);
      await to.admin.client("KILL", "TYPE", "normal", "SKIPME", "yes");
      await until(() => lock.remaining <= 5000, "its lease is cut short, wherever it was bound", 3000);
      await lock.release();
      await redlock.quit();
    });

    const skip = waitBy !== "notify";
    it("cluster: the message of a grant is not taken for the grant", { skip }, async () => {
      const key = await cluster.key(`hint ${title}`);
      const holder = await redlock.acquire([key], 30_000);
      let isGranted = false;
      const waiting = redlock.acquire([key], 30_000).finally(() => (isGranted = true));
      await isListening(key);
      const owner = await cluster.ownerOf(key);
      const [{ token, channel }] = await owner.places(key);
      const calls = await owner.calls("lock.acquire");
      // As a replica's subscribers hear it of a grant that its primary has not made.
      const message = `granted 7 ${Buffer.byteLength(key)} ${key} ${token}`;
      assert.equal(await owner.admin.call("SPUBLISH", channel, message), 1);
      await until(async () => isGranted || (await owner.calls("lock.acquire")) >= calls + 2, "it asks");
      assert.equal(isGranted, false);
      await isListening(key);
      await holder.release();
      const lock = await within(10_000, waiting, "it still waits");
      assert.deepEqual(await owner.holders(key), [token]);
      await lock.release();
    });
  });
}

// Each takes half a minute: the nodes have to agree.
describe("cluster_failover", { concurrency: 2 }, () => {
  for (const change of ["failOver", "switchOver"])
    it(`${change}: holds and waits go on with their tokens`, { timeout: 120_000 }, async () => {
      const [cluster, clients] = [await TestCluster.start(), new Clients()];
      try {
        const some = await cluster.key(change);
        const tag = tagOfSlot(slotOf(some));
        const connect = (library, options) => clients.add(library, "connectCluster", cluster.ports, options);
        const stories = await begin(
          ways,
          connect,
          (title) => `{${tag}} ${title}`,
          await cluster.ownerOf(some),
        );
        await end(stories, await cluster[change]());
      } finally {
        await clients.end();
        await cluster.stop();
      }
    });
});

it("slots are those of the servers", async () => {
  const { admin } = cluster.nodes[0];
  for (const key of ["a", "{a}b", "a{}b", "{a", "x{ü}y", "{{a}}", "foo{bar}{zap}", ""])
    assert.equal(slotOf(key), await admin.cluster("KEYSLOT", key), key);
  for (const slot of [0, 1, 8000, 16383]) assert.equal(slotOf(`x:{${tagOfSlot(slot)}}:y`), slot);
});

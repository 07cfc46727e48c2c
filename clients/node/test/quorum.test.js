import assert from "node:assert/strict";
import { after, afterEach, before, beforeEach, describe, it } from "node:test";
import { ExecutionError, Redlock, ResourceLockedError } from "redis-lock-client";
import { ioredis, Proxy, Server, until } from "./harness.js";

describe("three servers", () => {
  let servers;
  let clients;
  let redlock;
  before(async () => (servers = await Promise.all([Server.start(), Server.start(), Server.start()])));
  beforeEach(async () => {
    await Promise.all(servers.map((server) => server.admin.flushall()));
    clients = await Promise.all(servers.map(({ port }) => ioredis.connect(port, { commandTimeout: 500 })));
    redlock = new Redlock(clients, { retryCount: 2, retryDelay: 20 });
  });
  afterEach(() => clients.forEach((client) => client.disconnect()));
  after(() => Promise.all(servers?.map((server) => server.stop()) ?? []));

  const holders = async () => (await Promise.all(servers.map((server) => server.holders("a")))).flat();

  it("all give their vote, and a fence each", async () => {
    const lock = await redlock.acquire(["a"], 5000);
    assert.throws(() => lock.fence, /no single fence/);
    await Promise.all(lock.attempts);
    assert.deepEqual(await holders(), [lock.value, lock.value, lock.value]);
    const fences = lock.fences.get("a");
    assert.equal(fences.length, 3);
    assert.ok(fences.filter((fence) => fence > 0).length >= 2, "of a majority");
    await lock.extend(60_000);
    await Promise.all(servers.map(async ({ admin }) => assert.ok((await admin.pttl("a")) > 50_000)));
    const { attempts } = await lock.release();
    await Promise.all(attempts);
    assert.deepEqual(await holders(), []);
  });

  it("two are enough, and an error tells of the third", async () => {
    await servers[1].admin.call("LOCK.ACQUIRE", "a", "other", 30_000);
    const errors = [];
    redlock.on("error", (error) => errors.push(error));
    const lock = await redlock.acquire(["a"], 5000);
    const [stats] = await Promise.all(lock.attempts);
    assert.deepEqual([stats.membershipSize, stats.quorumSize, stats.votesFor.size], [3, 2, 2]);
    assert.ok(stats.votesAgainst.get(clients[1]) instanceof ResourceLockedError);
    assert.equal(errors.length, 1);
    assert.equal(lock.fences.get("a")[1], null);
    await lock.extend(5000);
    await lock.release();
    assert.deepEqual(await holders(), ["other"]);
  });

  it("one is not, and nothing stays behind", async () => {
    for (const { admin } of servers.slice(1)) await admin.call("LOCK.ACQUIRE", "a", "other", 30_000);
    await assert.rejects(redlock.acquire(["a"], 5000), (error) => {
      return error instanceof ExecutionError && error.attempts.length === 3;
    });
    assert.deepEqual(await holders(), ["other", "other"]);
  });

  it("one that does not answer costs a time-out, not the lock", async () => {
    process.kill(servers[2].pid, "SIGSTOP");
    try {
      const lock = await redlock.acquire(["a"], 5000);
      await lock.extend(5000);
      await lock.release();
    } finally {
      process.kill(servers[2].pid, "SIGCONT");
    }
    await until(async () => (await holders()).length === 0);
  });

  it("a lost connection shortens a lease with linger if no majority is left without it", async (t) => {
    const proxies = await Promise.all(servers.slice(1).map(({ port }) => Proxy.start(port)));
    t.after(() => proxies.forEach((proxy) => proxy.stop()));
    const options = { commandTimeout: 500, retryStrategy: () => 20 };
    for (const [i, { port }] of proxies.entries()) {
      clients[i + 1].disconnect();
      clients[i + 1] = await ioredis.connect(port, options);
    }
    const losses = [0, 0, 0];
    clients.forEach((client, i) => client.on("close", () => losses[i]++));
    redlock = new Redlock(clients, { retryCount: 0, linger: 300 });
    const lock = await redlock.acquire(["a"], 60_000);
    await Promise.all(lock.attempts);
    proxies[0].cut();
    await until(() => losses[1] > 0);
    assert.ok(lock.remaining > 50_000, "two are left");
    proxies[1].stop();
    await until(() => losses[2] > 0);
    assert.ok(lock.remaining <= 300, "one is left");

    await until(() => clients[1].status === "ready");
    const other = await redlock.acquire(["b"], 60_000);
    const before = losses[2];
    await until(() => losses[2] > before + 3, "it fails to connect");
    assert.ok(other.remaining > 50_000, "that one had no part in it");
    await other.extend(90_000);
    assert.ok(other.remaining > 80_000);
  });

  it("a lost majority is a lost lock", async () => {
    const lock = await redlock.acquire(["a"], 5000);
    await Promise.all(lock.attempts);
    for (const { admin } of servers.slice(1)) await admin.del("a");
    await assert.rejects(lock.extend(5000), ExecutionError);
    await assert.rejects(lock.release(), ExecutionError);
    assert.deepEqual(await holders(), []);
  });

  it("one that has lost it decides nothing, also while another cannot be reached", async () => {
    const lock = await redlock.acquire(["a"], 5000);
    await Promise.all(lock.attempts);
    await servers[2].admin.del("a");
    const { call } = clients[1];
    const breakOnce = (error) => {
      clients[1].call = async () => {
        clients[1].call = call;
        throw error;
      };
    };
    const reset = new Error("read ECONNRESET");
    breakOnce(reset);
    await assert.rejects(lock.extend(5000, { retryCount: 0 }), { cause: reset });
    breakOnce(reset);
    await lock.extend(60_000);
    assert.ok(lock.remaining > 50_000);
    breakOnce(reset);
    await Promise.all((await lock.release()).attempts);
    assert.deepEqual(await holders(), []);
  });

  it("a lost majority is not excused by another's lost connection", async () => {
    const lock = await redlock.acquire(["a"], 5000);
    await Promise.all(lock.attempts);
    for (const { admin } of servers.slice(1)) await admin.del("a");
    clients[0].disconnect();
    await until(() => clients[0].status === "end");
    await assert.rejects(lock.release(), ExecutionError);
  });

  it("one holds it at a time, and all have their turn", async () => {
    let inside = 0;
    const routine = async () => {
      assert.equal(++inside, 1);
      await new Promise((resolve) => setTimeout(resolve, 2));
      inside--;
    };
    const rivals = [1, 2, 3, 4].map(
      () => new Redlock(clients, { retryCount: -1, retryDelay: 10, retryJitter: 10 }),
    );
    await Promise.all(
      rivals.flatMap((rival) => [rival.using(["a"], 5000, routine), rival.using(["a"], 5000, routine)]),
    );
  });
});

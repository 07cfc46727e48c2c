// A value that one caller makes, and what the shared scenarios do not say of it.
import assert from "node:assert/strict";
import { after, afterEach, beforeEach, describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { once, Redlock, XFetch } from "redis-lock-client";
import { Clients, ioredis, Server, until, ways } from "./harness.js";

const server = await Server.start();
after(server.stop);
beforeEach(() => server.admin.flushall());

const never = () => assert.fail("it was made");

for (const { title, library, waitBy } of ways) {
  describe(title, () => {
    let redlock, proxy;
    const clients = new Clients(library);
    beforeEach(async () => {
      proxy = await clients.proxy(server.port);
      redlock = new Redlock([await clients.connect(proxy.port)], { waitBy });
    });
    afterEach(clients.end);

    /** Begins to make a value. Resolves with what ends it. */
    const begin = (settings) =>
      new Promise((begun, failed) => {
        const maker = (signal) => new Promise((returns) => begun({ made, returns, signal }));
        const made = once(redlock, "k", maker, settings);
        made.catch(failed);
      });
    const isListening = () => until(async () => (await server.listening("{k}:once")).length === 1);

    it("is any bytes, also those of a word of the protocol, found and waited for", async () => {
      const same = { pack: (value) => value, unpack: (bytes) => bytes };
      for (const bytes of [Buffer.of(0xff, 0, 0xfe), Buffer.from("QUEUED")]) {
        await server.admin.del("k");
        const { made, returns } = await begin(same);
        const waiting = once(redlock, "k", never, same);
        await isListening();
        returns(bytes);
        for (const each of [made, waiting, once(redlock, "k", never, same)])
          assert.deepEqual(await each, bytes);
      }
    });

    it("is what pack and unpack make of it, for its maker too", async () => {
      const json = { pack: JSON.stringify, unpack: JSON.parse };
      const date = new Date(0);
      for (const make of [() => ({ date }), never])
        assert.deepEqual(await once(redlock, "k", make, json), { date: date.toJSON() });
      const seven = once(redlock, "other", () => 7);
      await assert.rejects(seven, TypeError);
      assert.equal(await server.admin.exists("{other}:once"), 0);
    });

    it("is not waited for after the signal, and its maker hears of it, and of a lost lock", async () => {
      const [stopWait, stopMaker] = [new AbortController(), new AbortController()];
      const { made, returns, signal } = await begin({ signal: stopMaker.signal, ttl: 3000 });
      const waiting = once(redlock, "k", never, { wait: Infinity, signal: stopWait.signal });
      await isListening();
      stopWait.abort(new RangeError("enough"));
      await assert.rejects(waiting, RangeError);
      assert.deepEqual(await server.places("{k}:once"), []);
      stopMaker.abort(new RangeError("mine"));
      assert.equal(signal.reason.message, "mine");
      returns("whole all the same");
      assert.equal(await made, "whole all the same");
      await assert.rejects(once(redlock, "k", never, { signal: stopMaker.signal }), RangeError);
      process.kill(server.pid, "SIGSTOP");
      const start = performance.now();
      await assert.rejects(once(redlock, "k", never, { signal: AbortSignal.timeout(200) }), /timeout/);
      process.kill(server.pid, "SIGCONT");
      assert.ok(performance.now() - start < 3000);
      await server.admin.flushall();
      const lost = await begin({ ttl: 3000 });
      await server.admin.del("{k}:once");
      await until(() => lost.signal.aborted);
      assert.match(lost.signal.reason.message, /not held any more/);
    });

    it("is early for half of its time at most, never with null, and the old one where no new one is made", async () => {
      await server.admin.set("k", "old", "PX", 30_000);
      const settings = { keep: 50_000, early: 50_000 };
      const make = () => "new";
      assert.equal(await once(redlock, "k", make, settings), "old");
      await server.admin.pexpire("k", 20_000);
      assert.equal(await once(redlock, "k", make, { ...settings, early: null }), "old");
      const errors = [];
      redlock.on("error", (error) => errors.push(error));
      const stop = new AbortController();
      const failing = () => Promise.reject(new RangeError("mine"));
      assert.equal(await once(redlock, "k", failing, settings), "old");
      assert.equal(errors.at(-1).cause.message, "mine");
      const stopping = () => (stop.abort(), failing());
      await assert.rejects(once(redlock, "k", stopping, { ...settings, signal: stop.signal }), RangeError);
      assert.equal(await once(redlock, "k", make, settings), "new");
    });

    it("is stored and released although the first try, or its answer, was lost", async () => {
      for (const lose of [() => proxy.cut(), () => (proxy.losesNextReply = true)]) {
        await server.admin.del("k");
        const { made, returns } = await begin();
        lose();
        returns("v");
        assert.equal(await made, "v");
        assert.ok(!proxy.losesNextReply);
        assert.deepEqual(await server.admin.keys("*"), ["k"]);
      }
    });

    it("is an error where the server may not store it, or under a key of another type", async () => {
      const { made, returns } = await begin();
      await server.admin.acl("SETUSER", "default", "-set");
      returns("v");
      await assert.rejects(made, { code: "ERR_LOCK_REFUSED" });
      await server.admin.acl("SETUSER", "default", "+set");
      assert.deepEqual(await server.admin.keys("*"), []);
      await server.admin.sadd("k", "member");
      await server.admin.set("{j}:once", "no lock");
      for (const name of ["k", "j"])
        await assert.rejects(once(redlock, name, never), { code: "ERR_LOCK_REFUSED" });
    });
  });
}

it("has its lock in its slot with a prefix, too, and neither linger nor a share nor times without sense", async (t) => {
  const client = await ioredis.connect(server.port, { keyPrefix: "app:", enableAutoPipelining: true });
  t.after(() => client.disconnect());
  const redlock = new Redlock([client], { linger: 500, shared: true });
  await once(redlock, "k", async (signal) => {
    assert.equal((await server.holders("{app:k}:once")).length, 1);
    await assert.rejects(once(redlock, "k", never, { wait: 0 }), { code: "ERR_LOCK_TAKEN" });
    process.kill(server.pid, "SIGSTOP");
    await sleep(1000).finally(() => process.kill(server.pid, "SIGCONT"));
    assert.equal(signal.aborted, false, "its lease is a ttl");
    return "v";
  });
  assert.equal(await server.admin.get("app:k"), "v");
  for (const wrong of [{ wait: -1 }, { wait: NaN }, { early: -1 }, { ttl: 0 }, { keep: 0 }])
    await assert.rejects(once(redlock, "i", never, wrong), RangeError);
  await assert.rejects(once(redlock, 7, never), TypeError);
});

it("is early at random, in proportion to the time that its making takes", (t) => {
  t.mock.method(Math, "random", () => 1 - Math.exp(-2));
  const all = [new XFetch({ delta: 100, beta: 3 }), new XFetch()];
  for (const one of all) one.measured = 50;
  const drawn = [...all, new XFetch()].map((one) => Math.round(one.draw()));
  assert.deepEqual(drawn, [600, 100, 0]);
});

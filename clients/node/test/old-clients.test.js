// While one service after the other is moved: clients of node-redlock, with their string locks, and clients of this package.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { ExecutionError, Redlock, ResourceLockedError } from "redis-lock-client";
import { ioredis, Server, until } from "./harness.js";

const require = createRequire(import.meta.url);
const Redlock4 = require("redlock");
const Redlock5 = require("redlock-5").default;

for (const [name, Old, resource] of [
  ["node-redlock 4.2.0", Redlock4, "a"],
  ["node-redlock 5.0.0-beta.2", Redlock5, ["a"]],
])
  it(`${name} and this package exclude each other`, async (t) => {
    const server = await Server.start();
    const client = await ioredis.connect(server.port);
    t.after(() => (client.disconnect(), server.stop()));
    const fresh = new Redlock([client], { retryCount: -1 });
    const old = (retryCount) => new Old([client], { retryCount, retryDelay: 20 });
    const release = (lock) => (lock.unlock ?? lock.release).call(lock);

    const theirs = await old(0).acquire(resource, 30_000);
    const errors = [];
    fresh.on("error", (error) => errors.push(error));
    let granted = 0;
    const waiting = [fresh.acquire(["a"], 5000), fresh.acquireRead(["a"], 5000)];
    for (const one of waiting) one.then(() => granted++);
    await until(() => errors.length >= 4);
    assert.equal(granted, 0);
    assert.ok(errors.every((error) => error instanceof ResourceLockedError));
    await release(theirs);
    for (const one of waiting) await one.then((lock) => lock.release());

    const ours = await fresh.acquire(["a"], 30_000);
    await assert.rejects(old(1).acquire(resource, 5000));
    const later = old(500).acquire(resource, 1500);
    await sleep(100);
    await ours.release();
    const late = await later;
    await assert.rejects(fresh.acquire(["a"], 5000, { retryCount: 0 }), ExecutionError);
    const next = await fresh.acquire(["a"], 30_000);
    await assert.rejects(release(late), "it does not end what a new client holds");
    assert.deepEqual(await server.holders("a"), [next.value]);
  });

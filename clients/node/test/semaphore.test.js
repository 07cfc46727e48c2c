import assert from "node:assert/strict";
import { after, afterEach, before, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Redlock } from "redis-lock-client";
import { Server, ways } from "./harness.js";

let server;
before(async () => (server = await Server.start()));
after(() => server?.stop());
const ends = [];
afterEach(() => ends.splice(0).forEach((end) => end()));
const connect = async (library) => {
  const client = await library.connect(server.port);
  ends.push(() => library.end(client));
  return client;
};

it("refuses permits that are none, and several clients", async () => {
  const clients = [1, 2].map(() => server.admin.duplicate({ lazyConnect: true }));
  for (const bad of [0, -1, 1.5, 2 ** 31, "3"])
    assert.throws(() => new Redlock([clients[0]]).semaphore("a", bad), RangeError);
  assert.throws(() => new Redlock(clients).semaphore("a", 2), TypeError);
});

it("never has more holders than permits", { timeout: 60_000 }, async () => {
  let [inside, most] = [0, 0];
  const work = async ({ library, waitBy }) => {
    const semaphore = new Redlock([await connect(library)], { retryCount: -1, waitBy }).semaphore("many", 3);
    for (let i = 0; i < 4; i++) {
      await semaphore.using(5000, async () => {
        most = Math.max(most, ++inside);
        await sleep(50);
        inside--;
      });
    }
  };
  await Promise.all([...ways, ...ways].map(work));
  assert.equal(most, 3);
  assert.equal(await server.admin.call("LOCK.INFO", "many"), null);
});

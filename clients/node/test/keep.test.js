// Places in the queue: who waits keeps its place over slices and lost connections, and gives it up when it stops.
import assert from "node:assert/strict";
import { after, afterEach, before, beforeEach, describe, it } from "node:test";
import { Redlock } from "redis-lock-client";
import { Clients, library, Proxy, Server, until, ways, Redis } from "./harness.js";

let server;
before(async () => (server = await Server.start()));
after(() => server?.stop());

const raw = [];
const connectRaw = () => raw.push(new Redis(server.port)) && raw.at(-1);
afterEach(() => raw.splice(0).forEach((one) => one.disconnect()));

/** Waits with one command, as a client without this package. Resolves with the fence. */
const blocked = (key, token) => connectRaw().call("LOCK.ACQUIRE", key, token, 30_000, "BLOCK", 0);

it("grants in the order of arrival also those that have no connection to wait with", async () => {
  const client = await library.connect(server.port);
  const redlock = new Redlock([client], { retryCount: -1, retryDelay: 50, maxWaitingConnections: 2 });
  const first = await redlock.acquire(["few"], 30_000);
  const order = [];
  const all = [];
  for (let i = 0; i < 8; i++) {
    all.push(redlock.using(["few"], 30_000, async () => void order.push(i)));
    await until(async () => (await server.waiters("few")).length === i + 1);
  }
  await first.release();
  await Promise.all(all);
  assert.deepEqual(order, [...Array(8).keys()]);
  library.end(client);
});

for (const { title, library, waitBy } of ways) {
  describe(title, () => {
    let holder, proxy, key;
    let number = 0;
    const clients = new Clients(library);
    const connect = (port = server.port, options = {}) => clients.connect(port, options);
    beforeEach(async () => {
      key = `${title} ${++number}`;
      proxy = await Proxy.start(server.port);
      holder = await new Redlock([await connect()]).acquire([key], 30_000);
    });
    afterEach(() => {
      clients.end();
      proxy.stop();
    });
    const isListening = (token) =>
      until(async () => (await server.listening(key)).includes(token), "the waiter listens");
    /** Begins to wait, and resolves when the server has its place and its listener. */
    const beginToWait = async (client, settings, acquire = (redlock) => redlock.acquire([key], 30_000)) => {
      const redlock = new Redlock([client], { retryCount: -1, retryDelay: 50, waitBy, ...settings });
      const waiting = acquire(redlock);
      waiting.catch(() => {});
      await until(async () => (await server.listening(key)).length === 1);
      return { redlock, waiting, token: (await server.waiters(key))[0] };
    };
    /** Waits behind it. */
    const goBehind = async () => {
      const behind = { isGranted: false };
      behind.granted = blocked(key, "behind").then(() => (behind.isGranted = true));
      await isListening("behind");
      return behind;
    };

    /** Is granted with its first token, before the one behind it. */
    const takesItsTurn = async (waiting, token, behind) => {
      const lock = await waiting;
      assert.equal(lock.value, token);
      assert.ok(!behind.isGranted);
      await lock.release();
      await behind.granted;
    };

    it("gives up when its client is ended", async () => {
      const client = await connect();
      const { waiting } = await beginToWait(client);
      library.end(client);
      await assert.rejects(waiting);
      assert.deepEqual(await server.holders(key), [holder.value]);
    });

    it("goes on at its place when the connection that it waits on is half open", async () => {
      const { waiting, token } = await beginToWait(await connect(proxy.port), { blockSlice: 300 });
      const behind = await goBehind();
      proxy.freezeNewest();
      await holder.release();
      await takesItsTurn(waiting, token, behind);
    });
  });
}

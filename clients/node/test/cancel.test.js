// Waits that somebody else ends by LOCK.CANCEL.
import assert from "node:assert/strict";
import { after, afterEach, before, beforeEach, describe, it } from "node:test";
import { ExecutionError, LockCancelledError, Redlock } from "redis-lock-client";
import { Clients, Server, until, ways } from "./harness.js";

let server;
before(async () => (server = await Server.start()));
after(() => server?.stop());

for (const { title, library, waitBy } of ways) {
  describe(`cancel, ${title}`, () => {
    const clients = new Clients(library);
    const key = `cancel ${title}`;
    let redlock, held;
    beforeEach(async () => {
      redlock = new Redlock([await clients.connect(server.port)], { retryCount: -1, waitBy });
      held = await redlock.acquire([key], 30_000);
    });
    afterEach(() => clients.end());

    const isCancelled = (error) => {
      assert.ok(error instanceof ExecutionError && error.cause instanceof LockCancelledError, error.stack);
      return error.message.includes(key);
    };
    const isListening = (count) =>
      until(async () => (await server.listening(key)).length === count, `${count} listen`);

    it("ends the waits of all, and no place is left", async () => {
      const waiting = [1, 2].map(() => assert.rejects(redlock.acquire([key], 30_000), isCancelled));
      await isListening(2);
      assert.equal(await server.admin.call("LOCK.CANCEL", key), 2);
      await Promise.all(waiting);
      assert.deepEqual(await server.waiters(key), []);
      await held.release();
    });
  });
}

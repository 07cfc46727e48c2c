import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { Lease } from "./lease.js";

/**
 * @typedef {object} Connection
 * @property {(...command: [string, ...(string | number)[]]) => Promise<unknown>} send fails at once without a connection
 * @property {() => void} close
 *
 * @typedef {object} Client
 * @property {(url: string) => Promise<Connection>} open
 * @property {(url: string) => Promise<Connection>} openToWait
 *
 * @typedef {object} Options times in milliseconds
 * @property {string} url
 * @property {string} lock
 * @property {string} resource
 * @property {number} ttl
 * @property {number} block
 * @property {number} writes
 * @property {number} pause
 * @property {boolean} shared
 * @property {string} token
 */

/** One BLOCK at most: a server that is gone without a word is noticed after this time and the client's time-out. */
export const SLICE_MS = 2000;

/**
 * How long the server keeps the place in the queue while no connection waits at it. Longer than a reconnect takes, and
 * short, because a worker that died delays those behind it by this.
 */
const GRACE_MS = 5000;

/** Between two tries without a connection. */
const RETRY_MS = 50;

/** How long a worker that leaves tries to give up its place and what it may hold. */
const GIVE_UP_MS = 5000;

const RESOURCE = readFileSync(new URL("../../resource.lua", import.meta.url), "utf8");

/** Why the work stopped: the line to print. */
class Stop extends Error {}

export class Worker {
  /** @param {Options} options */
  constructor(options) {
    this.options = options;
  }

  /**
   * @param {Client} client
   * @returns {Promise<number>} the exit status
   */
  async run(client) {
    const { url } = this.options;
    const [waiting, connection] = await Promise.all([client.openToWait(url), client.open(url)]);
    try {
      const granted = await this.acquire(waiting).finally(() => waiting.close());
      if (!granted) {
        print("gave-up");
        return 2;
      }
      print(`granted ${granted.fence}`);
      return await this.hold(connection, granted.fence, new Lease(granted.sentAt, this.options.ttl));
    } finally {
      connection.close();
    }
  }

  /**
   * Waits in the server's queue for the block time in all, in slices that keep one place. A slice whose reply is lost
   * is asked for again with the same token: if the lock was granted meanwhile the answer is its fence.
   * @param {Connection} waiting
   */
  async acquire(waiting) {
    const { lock, token, ttl, block, shared } = this.options;
    const command = shared ? "RWLOCK.RLOCK" : "LOCK.ACQUIRE";
    const giveUpAt = performance.now() + block;
    for (;;) {
      const sentAt = performance.now();
      const slice = Math.min(Math.floor(giveUpAt - sentAt), SLICE_MS);
      // BLOCK 0 would wait for ever.
      const patience = slice > 0 ? ["BLOCK", slice, "KEEP", GRACE_MS] : [];
      try {
        const fence = await waiting.send(command, lock, token, ttl, ...patience);
        // A grant that was waited for has eaten of the lease that counts from the sending. Asked again, with the same
        // token, the server gives the same fence at once and sets the deadline anew.
        const isLate = performance.now() - sentAt > ttl / 10;
        if (fence !== null && !isLate) return { fence: Number(fence), sentAt };
        if (fence !== null) continue;
      } catch (error) {
        if (!isPassing(error)) throw error;
        console.error(`acquire: ${error}`);
        await sleep(RETRY_MS);
      }
      if (performance.now() < giveUpAt) continue;
      await this.giveUp(waiting);
      return undefined;
    }
  }

  /**
   * Leaves the queue, and releases what may have been granted by an answer that was lost. The connection may be the one
   * that was lost, so it may take a while until there is a new one. The tries end: the place ends by its grace, and a
   * hold by its ttl.
   * @param {Connection} waiting
   */
  async giveUp(waiting) {
    const { lock, token, ttl } = this.options;
    const giveUpAt = performance.now() + Math.min(ttl, GIVE_UP_MS);
    while (performance.now() < giveUpAt) {
      try {
        await waiting.send("LOCK.RELEASE", lock, token);
        return;
      } catch (error) {
        if (!isPassing(error)) throw error;
        console.error(`give up: ${error}`);
        await sleep(RETRY_MS);
      }
    }
    console.error(`give up: no answer; if it was granted it is held for ${ttl} ms`);
  }

  /**
   * @param {Connection} connection
   * @param {number} fence
   * @param {Lease} lease
   */
  async hold(connection, fence, lease) {
    void this.keepAlive(connection, lease);
    try {
      await this.work(connection, fence, lease);
      return await this.release(connection, lease);
    } catch (error) {
      if (!(error instanceof Stop || lease.lost.aborted)) throw error;
      print(error instanceof Stop ? error.message : `lost ${lease.lost.reason}`);
      return 3;
    } finally {
      lease.end();
    }
  }

  /**
   * The watchdog: renews at a third of the ttl.
   * @param {Connection} connection
   * @param {Lease} lease
   */
  async keepAlive(connection, lease) {
    const { lock, token, ttl } = this.options;
    while (await lease.nextRenewal()) {
      const sentAt = performance.now();
      try {
        const held = await connection.send("LOCK.RENEW", lock, token, ttl);
        if (Number(held) === 0) return lease.lose("the server says that it is not held any more");
        // Too late, or released meanwhile.
        if (lease.isOver) return;
        lease.renewed(sentAt);
        print("renewed");
      } catch (error) {
        console.error(`renew: ${error}`);
        await sleep(RETRY_MS);
      }
    }
  }

  /**
   * @param {Connection} connection
   * @param {number} fence
   * @param {Lease} lease
   */
  async work(connection, fence, lease) {
    const { resource, token, writes, pause, shared } = this.options;
    for (let done = 1; done <= writes; done++) {
      if (done > 1) await sleep(pause, undefined, { signal: lease.lost });
      if (shared) {
        const value = await this.insist(lease, () => connection.send("HGET", resource, "writes"));
        print(`read ${value ?? 0}`);
      } else {
        const write = () => connection.send("EVAL", RESOURCE, 1, resource, fence, token);
        if (Number(await this.insist(lease, write)) === 0) throw new Stop(`refused ${fence}`);
        print(`wrote ${done}`);
      }
    }
  }

  /**
   * Sends until there is an answer, as long as the lease lasts.
   * @param {Lease} lease
   * @param {() => Promise<unknown>} send
   */
  async insist(lease, send) {
    for (;;) {
      // Asked of the clock, not of the timer: after a stop of the whole process nobody knows which timer runs first.
      lease.check();
      try {
        return await lease.unlessLost(send());
      } catch (error) {
        if (lease.lost.aborted || !isPassing(error)) throw error;
        console.error(`work: ${error}`);
        await sleep(RETRY_MS, undefined, { signal: lease.lost });
      }
    }
  }

  /**
   * @param {Connection} connection
   * @param {Lease} lease
   */
  async release(connection, lease) {
    const { lock, token } = this.options;
    let sent = 0;
    const send = () => (sent++, connection.send("LOCK.RELEASE", lock, token));
    const released = Number(await this.insist(lease, send));
    print(`released ${released}`);
    // Sent twice, the first may have done it.
    return released === 1 || sent > 1 ? 0 : 3;
  }
}

/** Whether it may go better on the next try: the connection failed, or the server says so. */
function isPassing(/** @type {unknown} */ error) {
  const isAnswer = error instanceof Error && /^[A-Z]+ /.test(error.message);
  return !isAnswer || /^(UNBLOCKED|TRYAGAIN|LOADING|READONLY|QUEUEFULL) /.test(error.message);
}

/** One event a line. A write to a pipe is through when this returns. */
function print(/** @type {string} */ event) {
  process.stdout.write(`${event}\n`);
}

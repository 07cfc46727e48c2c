import { Redis } from "ioredis";
import { SLICE_MS } from "./worker.js";

// Both connections: a command is answered, refused, or known to be in doubt, at once; the worker decides whether it
// is sent again, and for how long, for only the worker knows when the block time or the lease is over.
const common = {
  lazyConnect: true,
  // Off: nothing is kept to be sent when the connection is back, when the lease may be over.
  enableOfflineQueue: false,
  // Off: a blocked acquire would be sent again with the whole BLOCK time, a write after the lease. These two belong
  // together: with the first alone, commands in flight are never answered at all when the connection is lost.
  autoResendUnfulfilledCommands: false,
  maxRetriesPerRequest: 0,
  // The default goes up to 2 s, which is more than many leases.
  retryStrategy: (/** @type {number} */ times) => Math.min(50 * times, 500),
};

/** For renewals, the work and the release: they are answered at once, or something is wrong. */
export const open = (/** @type {string} */ url) =>
  connect(new Redis(url, { ...common, commandTimeout: 2000 }));

/** For the acquire, which blocks: a longer time-out than BLOCK, and nobody's commands behind it. */
export const openToWait = (/** @type {string} */ url) =>
  connect(new Redis(url, { ...common, commandTimeout: SLICE_MS + 2000 }));

/** @returns {Promise<import("./worker.js").Connection>} */
async function connect(/** @type {Redis} */ redis) {
  redis.on("error", (error) => console.error(`ioredis: ${error.message}`));
  redis.on("reconnecting", () => console.error("ioredis: reconnecting"));
  await redis.connect();
  return {
    async send(command, ...args) {
      try {
        return await redis.call(command, ...args);
      } catch (error) {
        // A blocked command that is given up still has its place in the server: leave it with the connection.
        if (/** @type {Error} */ (error).message === "Command timed out") redis.disconnect(true);
        throw error;
      }
    },
    close: () => redis.disconnect(),
  };
}

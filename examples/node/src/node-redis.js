import { createClient } from "redis";
import { SLICE_MS } from "./worker.js";

// The default does not connect again after a time-out, and waits longer than many leases.
const reconnectStrategy = (/** @type {number} */ retries) => Math.min(50 * (retries + 1), 500);

/** For renewals, the work and the release. */
export const open = (/** @type {string} */ url) =>
  connect({
    url,
    // Nothing is kept to be sent when the connection is back, when the lease may be over.
    disableOfflineQueue: true,
    // A connection that is idle between renewals stays known to what is between here and the server. No socketTimeout
    // beside it: what is written counts as activity, so pings keep it from ever passing.
    pingInterval: 5000,
    socket: { reconnectStrategy },
  });

/**
 * For the acquire, which blocks: its own connection, with a longer time-out than BLOCK, and without pings, which would
 * stand behind the BLOCK and, being activity, keep the time-out from ever passing.
 */
export const openToWait = (/** @type {string} */ url) =>
  connect({
    url,
    disableOfflineQueue: true,
    socket: { reconnectStrategy, socketTimeout: SLICE_MS + 2000 },
  });

/** @returns {Promise<import("./worker.js").Connection>} */
async function connect(/** @type {import("redis").RedisClientOptions} */ options) {
  const client = createClient(options);
  client.on("error", (error) => console.error(`node-redis: ${error.message}`));
  client.on("reconnecting", () => console.error("node-redis: reconnecting"));
  await client.connect();
  return {
    send: (...command) => client.sendCommand(command.map(String)),
    close: () => client.destroy(),
  };
}

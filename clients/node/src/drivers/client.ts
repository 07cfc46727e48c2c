import type { Driver } from "../driver.js";
import { type IoredisClient, type IoredisCluster, OfIoredis, OfIoredisCluster } from "./ioredis.js";
import {
  type NodeRedisClient,
  type NodeRedisCluster,
  type NodeRedisSentinel,
  OfNodeRedis,
  OfNodeRedisCluster,
  OfNodeRedisSentinel,
} from "./node-redis.js";

/** A client of ioredis, iovalkey or node-redis. */
export type Client = IoredisClient | IoredisCluster | NodeRedisClient | NodeRedisCluster | NodeRedisSentinel;

export function driverOf(client: Client): Driver {
  if ("isCluster" in client && client.isCluster) return new OfIoredisCluster(client);
  if ("call" in client && "duplicate" in client) return new OfIoredis(client);
  if ("nodeClient" in client) return new OfNodeRedisCluster(client);
  if ("getSentinelNode" in client) {
    if ("duplicate" in client) return new OfNodeRedisSentinel(client);
    throw new TypeError("Redlock needs createSentinel of node-redis 6: that of 5 has no duplicate().");
  }
  // Pools send commands, too, but lack one of these.
  if ("isReady" in client && "duplicate" in client) return new OfNodeRedis(client);
  throw new TypeError(
    "Redlock needs a client of ioredis or iovalkey (Redis, Cluster) or of node-redis (createClient, createCluster, createSentinel).",
  );
}

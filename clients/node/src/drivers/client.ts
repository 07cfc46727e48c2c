import type { Driver } from "../driver.js";
import { type IoredisClient, type IoredisCluster, ofIoredis, ofIoredisCluster } from "./ioredis.js";
import type { NodeRedisClient, NodeRedisCluster, NodeRedisSentinel } from "./node-redis.js";
import { ofNodeRedis, ofNodeRedisCluster, ofNodeRedisSentinel } from "./node-redis.js";

/** A client of ioredis, iovalkey or node-redis. */
export type Client = IoredisClient | IoredisCluster | NodeRedisClient | NodeRedisCluster | NodeRedisSentinel;

export function driverOf(client: Client): Driver {
  if ("isCluster" in client && client.isCluster) return ofIoredisCluster(client);
  if ("call" in client && "duplicate" in client) return ofIoredis(client);
  if ("nodeClient" in client) return ofNodeRedisCluster(client);
  if ("getSentinelNode" in client && "duplicate" in client) return ofNodeRedisSentinel(client);
  // Pools send commands, too, but lack one of these.
  if ("isReady" in client && "duplicate" in client) return ofNodeRedis(client as NodeRedisClient);
  throw new TypeError(
    "Redlock needs a client of ioredis or iovalkey (Redis, Cluster) or of node-redis (createClient, createCluster; of 6 createSentinel).",
  );
}

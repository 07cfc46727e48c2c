import { type IoredisClient, type IoredisCluster, OfIoredis, OfIoredisCluster } from "./ioredis.js";
import { type NodeRedisClient, OfNodeRedis } from "./node-redis.js";
import { type NodeRedisCluster, OfNodeRedisCluster } from "./node-redis-cluster.js";
import { type NodeRedisSentinel, OfNodeRedisSentinel } from "./node-redis-sentinel.js";
import type { Connection } from "../connection.js";

export type Client = IoredisClient | IoredisCluster | NodeRedisClient | NodeRedisCluster | NodeRedisSentinel;

const connections = new WeakMap<Client, Connection>();

/** The connection of a client: one, however many there are who use it. */
export function connectionOf(client: Client): Connection {
  let connection = connections.get(client);
  if (connection === undefined) connections.set(client, (connection = connect(client)));
  return connection;
}

function connect(client: Client): Connection {
  if ("isCluster" in client && client.isCluster) return new OfIoredisCluster(client);
  if ("call" in client && "duplicate" in client) return new OfIoredis(client);
  if ("nodeClient" in client) return new OfNodeRedisCluster(client);
  if ("getSentinelNode" in client) return new OfNodeRedisSentinel(client);
  // Pools send commands, too, but lack one of these.
  if ("isReady" in client && "duplicate" in client) return new OfNodeRedis(client);
  throw new TypeError(
    "Redlock needs clients of ioredis or iovalkey (Redis, Cluster) or of node-redis (createClient, createCluster, createSentinel).",
  );
}

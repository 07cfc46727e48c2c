export { Redlock, Redlock as default } from "./redlock.js";
export { Lock } from "./lock.js";
export { MultiLock, Semaphore } from "./several.js";
export {
  DurationError,
  ExecutionError,
  LockCancelledError,
  ModuleMissingError,
  ResourceLockedError,
  UnsupportedError,
} from "./errors.js";
export type { ExecutionResult, ExecutionStats } from "./errors.js";
export type { Client } from "./clients/client.js";
export type { Argument } from "./connection.js";
export type { IoredisClient, IoredisCluster } from "./clients/ioredis.js";
export type { NodeRedisClient } from "./clients/node-redis.js";
export type { NodeRedisCluster } from "./clients/node-redis-cluster.js";
export type { NodeRedisSentinel } from "./clients/node-redis-sentinel.js";
export type { ReleaseSettings, RunOnceSettings, Settings } from "./settings.js";
export type { LockSignal, Routine } from "./using.js";
export type { RunOnceResult } from "./redlock.js";

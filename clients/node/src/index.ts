export { Redlock, Redlock as default } from "./redlock.js";
export { Lock } from "./lock.js";
export { MultiLock, Semaphore, Taken } from "./several.js";
export {
  DurationError,
  ExecutionError,
  LockCancelledError,
  ModuleMissingError,
  ResourceLockedError,
  SlotsError,
  UnsupportedError,
} from "./errors.js";
export type { ErrorCode, ExecutionResult, ExecutionStats } from "./errors.js";
export { once, XFetch } from "./once.js";
export { idempotency } from "./idempotency.js";
export type { IdempotencySettings, WebRequest } from "./idempotency.js";
export type { Make, OnceSettings, Packing } from "./once.js";
export type { Argument } from "./driver.js";
export type { Client } from "./drivers/client.js";
export type { IoredisClient, IoredisCluster } from "./drivers/ioredis.js";
export type {
  Master,
  NodeRedisClient,
  NodeRedisCluster,
  NodeRedisOptions,
  NodeRedisSentinel,
} from "./drivers/node-redis.js";
export type { ReleaseSettings, RunOnceSettings, Settings } from "./settings.js";
export type { LockSignal, Routine } from "./lock.js";
export type { Target } from "./request.js";
export type { RunOnceResult, Use } from "./redlock.js";

export { Redlock, Redlock as default } from "./redlock.js";
export { Lock } from "./lock.js";
export { MultiLock, Semaphore } from "./several.js";
export { ExecutionError, ResourceLockedError, UnsupportedError } from "./errors.js";
export type { ExecutionResult, ExecutionStats } from "./errors.js";
export type { Argument, Client, IoredisClient, NodeRedisClient } from "./connection.js";
export type { ReleaseSettings, RunOnceSettings, Settings } from "./settings.js";
export type { LockSignal, Routine } from "./using.js";
export type { RunOnceResult } from "./redlock.js";

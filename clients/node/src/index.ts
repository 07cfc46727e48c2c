export { Redlock, Redlock as default } from "./redlock.js";
export { Lock } from "./lock.js";
export { ExecutionError, ResourceLockedError } from "./errors.js";
export type { ExecutionResult, ExecutionStats } from "./errors.js";
export type { Client, IoredisClient, NodeRedisClient } from "./connection.js";
export type { Settings } from "./settings.js";
export type { LockSignal, Routine } from "./using.js";

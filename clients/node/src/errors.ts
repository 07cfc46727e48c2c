import type { Client } from "./clients/client.js";

/** How the clients voted in one attempt. */
export interface ExecutionStats {
  readonly membershipSize: number;
  readonly quorumSize: number;
  readonly votesFor: ReadonlySet<Client>;
  readonly votesAgainst: ReadonlyMap<Client, Error>;
}

/** The attempts that were made; each resolves when the last client has answered. */
export interface ExecutionResult {
  readonly attempts: ReadonlyArray<Promise<ExecutionStats>>;
}

/** A resource is held by another, or, when it was to be extended or released, not by this lock any more. */
export class ResourceLockedError extends Error {
  override readonly name: string = "ResourceLockedError";
}

/** The resource is held by a client that knows only string locks (`SET key value NX PX ttl`): nobody can wait in line for it. */
export class StringLockError extends ResourceLockedError {
  constructor(
    resource: string,
    /** When to ask again, in milliseconds. */
    readonly retryAfter: number,
  ) {
    super(`${resource} is held by a client with a string lock`);
  }
}

/** Somebody has ended the wait by LOCK.CANCEL. */
export class LockCancelledError extends Error {
  override readonly name = "LockCancelledError";
}

/** The duration is longer than the server's setting `lock.max-ttl`. */
export class DurationError extends Error {
  override readonly name = "DurationError";
}

/** Resources of several slots. Any other TypeError may be a library's, and one that passes. */
export class SlotsError extends TypeError {}

/** The server does not know the command that was asked for. */
export class UnsupportedError extends Error {
  override readonly name: string = "UnsupportedError";
}

/** The server does not have the redis-lock module at all, or what was asked cannot be had without it. */
export class ModuleMissingError extends UnsupportedError {
  override readonly name = "ModuleMissingError";
}

/** An operation did not succeed on a majority of the clients; `attempts` tell why. */
export class ExecutionError extends Error implements ExecutionResult {
  override readonly name = "ExecutionError";

  constructor(
    message: string,
    readonly attempts: ReadonlyArray<Promise<ExecutionStats>>,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}

/** From JavaScript a string comes as well, of which each letter would be a resource. */
export function checkNames(resources: readonly string[]): void {
  if (!Array.isArray(resources) || !resources.every((resource) => typeof resource === "string"))
    throw new TypeError('Resources are strings, and several are an array of them: ["stock:7"].');
}

import type { Client } from "./drivers/client.js";
import { kindOf } from "./replies.js";

/** What one attempt of an operation came to. With one server there is one vote. */
export interface ExecutionStats {
  readonly membershipSize: number;
  readonly quorumSize: number;
  readonly votesFor: ReadonlySet<Client>;
  readonly votesAgainst: ReadonlyMap<Client, Error>;
}

/** The attempts that were made. */
export interface ExecutionResult {
  readonly attempts: ReadonlyArray<Promise<ExecutionStats>>;
}

/** Why an operation failed, for programs. */
export type ErrorCode =
  /** Somebody else holds the resource. */
  | "ERR_LOCK_TAKEN"
  /** This hold has ended. */
  | "ERR_LOCK_LOST"
  /** An operator has cancelled the wait. */
  | "ERR_LOCK_CANCELLED"
  /** The duration exceeds the server's `lock.max-ttl`. */
  | "ERR_LOCK_DURATION"
  /** The resources of a multi-lock are in several slots of a cluster. */
  | "ERR_LOCK_SLOTS"
  /** The server does not know the command. */
  | "ERR_LOCK_UNSUPPORTED"
  /** The server has no redis-lock module. */
  | "ERR_LOCK_NO_MODULE"
  /** The server has refused the command for good: a missing right, a key of another type. */
  | "ERR_LOCK_REFUSED"
  /** The server did not answer in time, or could not do it now. */
  | "ERR_LOCK_UNAVAILABLE";

/** Another client holds the resource. In an extension, a release or a check: this client no longer holds it. */
export class ResourceLockedError extends Error {
  override readonly name: string = "ResourceLockedError";

  constructor(
    message: string,
    readonly code: ErrorCode = "ERR_LOCK_TAKEN",
  ) {
    super(message);
  }
}

/** A client that knows only string locks (`SET key value NX PX ttl`) holds the resource. It has no queue to wait in. */
export class StringLockError extends ResourceLockedError {
  constructor(
    resource: string,
    /** When to ask again, in milliseconds. */
    readonly retryAfter: number,
  ) {
    super(`${resource} is held by a client with a string lock`);
  }
}

/** An operator has ended the wait by LOCK.CANCEL. */
export class LockCancelledError extends Error {
  override readonly name = "LockCancelledError";
  readonly code = "ERR_LOCK_CANCELLED";
}

/** The duration is longer than the server's setting `lock.max-ttl`. */
export class DurationError extends Error {
  override readonly name = "DurationError";
  readonly code = "ERR_LOCK_DURATION";
}

/** The resources of a multi-lock are in several slots of a cluster. */
export class SlotsError extends TypeError {
  readonly code = "ERR_LOCK_SLOTS";
}

/** The server does not know the command that was asked for. */
export class UnsupportedError extends Error {
  override readonly name: string = "UnsupportedError";
  readonly code: ErrorCode = "ERR_LOCK_UNSUPPORTED";
}

/** The server does not have the redis-lock module, or the operation is not available without it. */
export class ModuleMissingError extends UnsupportedError {
  override readonly name = "ModuleMissingError";
  override readonly code = "ERR_LOCK_NO_MODULE";
}

/** An operation did not succeed. `cause` and `code` tell why; `attempts` have one entry for each request. */
export class ExecutionError extends Error implements ExecutionResult {
  override readonly name = "ExecutionError";
  /** Why, for programs. */
  readonly code: ErrorCode;

  constructor(
    message: string,
    readonly attempts: ReadonlyArray<Promise<ExecutionStats>>,
    options?: ErrorOptions,
  ) {
    super(message, options);
    this.code = codeOf(options?.cause);
  }
}

/** An error of this package has a code of its own. */
export function codeOf(error: unknown): ErrorCode {
  const code = (error as { code?: unknown } | undefined)?.code;
  if (typeof code === "string" && code.startsWith("ERR_LOCK_")) return code as ErrorCode;
  return kindOf(error) === "final" ? "ERR_LOCK_REFUSED" : "ERR_LOCK_UNAVAILABLE";
}

export function lost(resource: string): ResourceLockedError {
  return new ResourceLockedError(`not held any more: ${resource}`, "ERR_LOCK_LOST");
}

export function warn(code: string, text: string): void {
  process.emitWarning(text, { type: "RedisLockWarning", code });
}

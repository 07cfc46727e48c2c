import type { Client } from "./drivers/client.js";
import { kindOf } from "./replies.js";
import type { Target } from "./server.js";

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

/** An error of this package: why an operation failed. */
export class LockError extends Error {
  override readonly name: string = "LockError";

  constructor(
    readonly code: ErrorCode,
    message: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}

/** Another client holds the resource. In an extension, a release or a check: this client no longer holds it. */
export class ResourceLockedError extends LockError {
  override readonly name = "ResourceLockedError";
}

/** A client that knows only string locks (`SET key value NX PX ttl`) holds the resource. It has no queue to wait in. */
export class StringLockError extends ResourceLockedError {}

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
    const cause = options?.cause;
    if (cause instanceof LockError) this.code = cause.code;
    else this.code = kindOf(cause) === "final" ? "ERR_LOCK_REFUSED" : "ERR_LOCK_UNAVAILABLE";
  }
}

export function taken({ resources }: Target): ResourceLockedError {
  // Most waits begin with one, and its stack would cost more than all else. It shows no code of the
  // user's, and the `ExecutionError` around it has one.
  const { stackTraceLimit } = Error;
  Reflect.set(Error, "stackTraceLimit", 0);
  const text = `${resources.join(", ")} is held by another client`;
  const error = new ResourceLockedError("ERR_LOCK_TAKEN", text);
  Reflect.set(Error, "stackTraceLimit", stackTraceLimit);
  return error;
}

export function lost(resource: string): ResourceLockedError {
  return new ResourceLockedError("ERR_LOCK_LOST", `not held any more: ${resource}`);
}

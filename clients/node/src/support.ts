import type { Connection } from "./connection.js";
import { oneForEach } from "./waiter.js";

/** What a client's server has. NOTIFY is tried until the server refuses it. */
export class Support {
  #notify = true;
  #block = true;
  #fallback: boolean | undefined;

  static readonly of = oneForEach((_: Connection) => new Support());

  private constructor() {}

  get notify(): boolean {
    return this.#notify;
  }

  get block(): boolean {
    return this.#block;
  }

  /** Whether its locks are strings: undefined until the server was asked for the first one. */
  get fallback(): boolean | undefined {
    return this.#fallback;
  }

  /** The server knows the commands. That stays so. */
  hasModule(): void {
    this.#fallback ??= false;
  }

  /** The server does not know the commands, and strings are wanted then. Says so once. */
  isWithoutModule(): void {
    if (this.#fallback !== undefined) return;
    this.#fallback = true;
    warn(
      "REDIS_LOCK_FALLBACK",
      `The server has no redis-lock module, so locks are strings (SET NX PX): there is ${LOST}.`,
    );
  }

  /** The server refuses NOTIFY, to this user or at all. Says so once. */
  isWithoutNotify(why: string): void {
    if (!this.#notify) return;
    this.#notify = false;
    warn("REDIS_LOCK_WITHOUT_NOTIFY", `Waiting by NOTIFY is not possible, so connections block: ${why}`);
  }

  /** Connections to wait with are of another database than the client. Says so once. */
  isWithoutBlock(): void {
    if (!this.#block) return;
    this.#block = false;
    warn(
      "REDIS_LOCK_DATABASE",
      "The client has selected another database than its options have, so waiters ask again and again: name it in the options.",
    );
  }
}

/** What strings do not have. */
export const LOST =
  "no fair queue, no fence (it is 0: never send it to a resource), no readers and writers, no semaphores, no locks of several " +
  "resources, no guarded commands, and a lease that an eviction or a failover can cut short";

/** The server does not know a command that the module has on every server. */
export function isModuleMissing(error: unknown): boolean {
  return /^(RW)?LOCK\./.test(unknownCommand(error) ?? "") && !isExecMissing(error);
}

/** The first release of the module does not know this one. */
export function isExecMissing(error: unknown): boolean {
  return unknownCommand(error) === "LOCK.EXEC";
}

function unknownCommand(error: unknown): string | undefined {
  // Some servers quote it otherwise.
  return error instanceof Error ? /^ERR unknown command ['`](.*?)['`]/i.exec(error.message)?.[1] : undefined;
}

function warn(code: string, text: string): void {
  process.emitWarning(text, { type: "RedisLockWarning", code });
}

/** The server does not allow this user, or this key, to wait by NOTIFY. BLOCK needs none of it. */
export function isNotifyRefused(error: unknown): boolean {
  const refusals = /^(NOPERM|CROSSSLOT)|^ERR NOTIFY |^ERR unknown command .ssubscribe/i;
  return error instanceof Error && refusals.test(error.message);
}

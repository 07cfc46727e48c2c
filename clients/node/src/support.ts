import type { Connection } from "./connection.js";
import { oneForEach } from "./waiter.js";

/** The ways of waiting that a client's server has. All are tried until the server refuses them. */
export class Support {
  #keep = true;
  #notify = true;
  #fallback: boolean | undefined;

  static readonly of = oneForEach((_: Connection) => new Support());

  private constructor() {}

  get keep(): boolean {
    return this.#keep;
  }

  get notify(): boolean {
    return this.#notify;
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

  /** The server has neither KEEP nor NOTIFY. Says so once. */
  isOld(): void {
    const wasKnown = !this.#keep;
    this.#keep = this.#notify = false;
    if (wasKnown) return;
    warn(
      "REDIS_LOCK_WITHOUT_KEEP",
      "The redis-lock module of the server is older than 0.2: a waiter loses its place in the queue at the end of each slice.",
    );
  }

  /** The server refuses NOTIFY, to this user or at all. Says so once. */
  isWithoutNotify(why: string): void {
    if (!this.#notify) return;
    this.#notify = false;
    warn("REDIS_LOCK_WITHOUT_NOTIFY", `Waiting by NOTIFY is not possible, so connections block: ${why}`);
  }
}

/** What strings do not have. */
export const LOST =
  "no fair queue, no fence (it is 0: never send it to a resource), no readers and writers, no semaphores, no locks of several " +
  "resources, no guarded commands, and a lease that an eviction or a failover can cut short";

/** The server does not know the commands that every version of the module has. */
export function isModuleMissing(error: unknown): boolean {
  return ["LOCK.ACQUIRE", "RWLOCK.RLOCK", "LOCK.RENEW", "LOCK.RELEASE"].some((command) =>
    lacks(error, command),
  );
}

function warn(code: string, text: string): void {
  process.emitWarning(text, { type: "RedisLockWarning", code });
}

/** The server does not know an option of the command. */
export function isUnknownOption(error: unknown): boolean {
  return error instanceof Error && error.message.startsWith("ERR unknown option");
}

/** The server does not allow this user, or this key, to wait by NOTIFY. BLOCK needs none of it. */
export function isNotifyRefused(error: unknown): boolean {
  const refusals = /^(NOPERM|CROSSSLOT)|^ERR NOTIFY |^ERR unknown command .ssubscribe/i;
  return error instanceof Error && refusals.test(error.message);
}

/** The server does not know this command or option, by an error that names what it knows. */
export function lacks(error: unknown, word: string): boolean {
  if (!(error instanceof Error)) return false;
  const { message } = error;
  // Redis 6.2 quotes it otherwise.
  if (word.includes("LOCK.")) return /^ERR unknown command ['`](.*?)['`]/i.exec(message)?.[1] === word;
  // A module of 0.1 knows no options of LOCK.RELEASE at all.
  const isArity = word === "ATLEAST" && message.startsWith("ERR wrong number of arguments");
  return isArity || (isUnknownOption(error) && !message.includes(word));
}

import { LockError } from "./errors.js";
import type { Request } from "./request.js";

/** Only the owner's: after the end of a lease the key may be another's, and of another type. */
const ours = (command: string) =>
  `if redis.call("TYPE", KEYS[1]).ok == "string" and redis.call("GET", KEYS[1]) == ARGV[1] then return ${command} end return 0`;

/** In place of commands of the module, on a server without it: a lock is a string with the token as its value, and the lease as its ttl. */
export const SCRIPTS = {
  RELEASE: ours(`redis.call("DEL", KEYS[1])`),
  RENEW: ours(`redis.call("PEXPIRE", KEYS[1], ARGV[2])`),
  CHECK: ours("1"),
};

/** What strings do not have. */
export const LOST =
  "no fair queue, no fence (it is 0: never send it to a resource), no readers and writers, no semaphores, no locks of several " +
  "resources, no guarded commands, and a lease that an eviction or a failover can cut short";

/** Throws if a string cannot be what is wanted. */
export function checkString(request: Request): void {
  if (request.shared) throw unavailable("a shared lock");
  if (request.limit !== undefined) throw unavailable("a semaphore");
  if (request.sharedFrom !== undefined) throw unavailable("a lock of several resources");
  if (request.linger !== undefined) throw unavailable("the setting `linger`");
  // Refused only by the release, the job would have run.
  if (request.atLeast !== undefined) throw unavailable("the option `atLeast`");
}

export function unavailable(what: string): LockError {
  const text = `${what} is not available in the fallback: the server has no redis-lock module`;
  return new LockError("ERR_LOCK_NO_MODULE", text);
}

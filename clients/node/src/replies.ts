/**
 * What to do about an error.
 *
 * - `temporary`: a wait goes on until its time is over; a release or a renewal is tried again until the lease is over.
 * - `elsewhere`: the same, at the server that is responsible now.
 * - `silent`: there was no answer. The request may have been executed.
 * - `final`: the caller gets the error at once.
 */
export type Kind = "temporary" | "elsewhere" | "silent" | "final";

/** The words of clients/vectors/errors.txt, and two of the module: after PARTIAL the rest is released; a full queue has room later. */
const TEMPORARY = /^(LOADING|BUSY|MISCONF|NOREPLICAS|TRYAGAIN|OOM|CLUSTERDOWN|UNBLOCKED|PARTIAL|QUEUEFULL)$/;
const ELSEWHERE = /^(MASTERDOWN|READONLY|MOVED|ASK)$/;

/** The first word of a server's error; undefined if the error is no answer of a server. */
export function wordOf(error: unknown): string | undefined {
  return error instanceof Error ? /^-?([A-Z][A-Z0-9]+)(?: |$)/.exec(error.message)?.[1] : undefined;
}

export function is(error: unknown, word: string): error is Error {
  return wordOf(error) === word;
}

export function kindOf(error: unknown): Kind {
  if (error instanceof TypeError || error instanceof RangeError) return "final";
  if (String((error as { code?: unknown } | undefined)?.code).startsWith("ERR_LOCK_")) return "final";
  const word = wordOf(error);
  if (word === undefined) return "silent";
  if (ELSEWHERE.test(word)) return "elsewhere";
  return TEMPORARY.test(word) ? "temporary" : "final";
}

/** Where a node of a cluster sends us: `host:port`. */
export function redirection(error: unknown): { address: string; isAsk: boolean } | undefined {
  const found = error instanceof Error && /^(MOVED|ASK) \d+ (\S+)/.exec(error.message);
  return found ? { address: found[2]!, isAsk: found[1] === "ASK" } : undefined;
}

const UNKNOWN = /unknown|unsupported|unavailable|not (available|supported?|found|implemented)|disabled/i;

/**
 * The server, or a proxy before it, does not know this command. They say so in many ways: `ERR unknown command 'LOCK.ACQUIRE'`,
 * `ERR Command is not available: 'LOCK.ACQUIRE'`, `ERR unsupported command`.
 */
export function isUnknownCommand(error: unknown, name: string): error is Error {
  const word = wordOf(error);
  if (!(error instanceof Error) || (word !== undefined && word !== "ERR" && word !== "UNKNOWN")) return false;
  const { message } = error;
  // The module answers so to words that an older release of it does not know.
  if (!UNKNOWN.test(message) || /option|subcommand|database/i.test(message)) return false;
  if (message.toLowerCase().includes(name.toLowerCase())) return true;
  // Without an ERR only a text about a command is one of a proxy, and no failure of the network.
  return /\bcommand\b/i.test(message) ? !/['`"]\S+['`"]/.test(message) : word !== undefined;
}

/** The server does not allow this user, or this channel, to wait by NOTIFY. BLOCK needs none of it. */
export function isNotifyRefused(error: unknown): error is Error {
  if (is(error, "NOPERM") || is(error, "CROSSSLOT")) return /channel|subscribe/i.test(error.message);
  return is(error, "ERR") && /^ERR NOTIFY |subscribe/i.test(error.message);
}

import type { Request } from "./server.js";
import type { Wire } from "./wire.js";

/** The least part of a lease that is taken off for clocks of different speeds: a server's guard counts on no less. */
const LEAST_DRIFT = 0.01;

/** As node-redlock has it: 2 ms for the precision of the servers' ttl, and a part for clocks of different rates. */
export function drift(duration: number, driftFactor: number): number {
  return Math.round(Math.max(driftFactor, LEAST_DRIFT) * duration) + 2;
}

/**
 * Until when this process may believe that it holds the lock. Times are those of a monotonic clock, which the caller reads.
 *
 * With `linger` the server ends the hold so long after it has lost the connection. So the lease is over `linger` after the last moment at
 * which the connection was known to live, or at which the server was known to have the hold.
 */
export class Lease {
  #until = -Infinity;
  #known = -Infinity;
  /** For good, whatever a later answer says. */
  isOver = false;

  /** Of a request that was sent then. `pulse` is the connection that the server has bound the hold to. */
  constructor(
    private readonly request: Pick<Request, "duration" | "driftFactor" | "linger">,
    sent: number,
    public pulse?: Wire,
  ) {
    this.renew(sent, request.duration);
  }

  /** The request that was sent then has set the ttl anew. */
  renew(sent: number, duration: number): void {
    this.#until = this.#endOf(sent, duration);
    this.#known = Math.max(this.#known, sent);
  }

  /** A request is sent that may shorten the ttl, whether or not its answer arrives. */
  shorten(sent: number, duration: number): void {
    this.#until = Math.min(this.#until, this.#endOf(sent, duration));
  }

  /** Its end in time, also if it was over before. */
  get until(): number {
    const { linger } = this.request;
    if (linger === undefined) return this.#until;
    const heard = Math.max(this.#known, this.pulse?.aliveAt ?? -Infinity);
    return Math.min(this.#until, this.#endOf(heard, linger));
  }

  isValid(now: number): boolean {
    // What is over once stays so: the next answer of the connection says nothing about the time between.
    if (now >= this.until) this.isOver = true;
    return !this.isOver;
  }

  remaining(now: number): number {
    return this.isValid(now) ? this.until - now : 0;
  }

  #endOf(from: number, ms: number): number {
    return from + ms - drift(ms, this.request.driftFactor);
  }
}

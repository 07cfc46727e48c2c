import { performance } from "node:perf_hooks";
import { setTimeout as sleep } from "node:timers/promises";
import { ResourceLockedError, StringLockError } from "./errors.js";
import { Lease } from "./lease.js";
import { kindOf, wordOf } from "./replies.js";
import type { Request } from "./request.js";
import type { Grant, Server, Waiting } from "./server.js";
import { Patience, type Settings } from "./settings.js";
import { MAX_TIMER_MS, within } from "./timer.js";
import { LATE, type Place, WaitingRoom } from "./wire.js";

/** Before a command is sent again that was answered at once, and not as if it had waited. */
const PAUSE_MS = 50;

/** How long after its time to wait an acquire may take for an answer. */
const ANSWER_MS = 2500;

/** How long an acquire waits for the release of what it gives up, and how it is tried again later. */
const GIVE_UP_MS = 1000;
const RELEASE_AGAIN_MS = 500;
const RELEASES = 10;

/** The longest BLOCK that a timer can watch over. */
const MAX_BLOCK_MS = MAX_TIMER_MS - 10_000;

/** A lock that was granted. */
export interface Granted {
  /** Beside a value, 0 is no lock. */
  readonly fence: number;
  readonly lease: Lease;
  readonly found?: Buffer | undefined;
}

/** The acquires of one `Redlock`: a state machine of waits and pauses for each, which ends by a grant, an error or `stop`. */
export class Acquiring {
  readonly #room: WaitingRoom;
  /** What may have a place in a queue. */
  readonly #waiting = new Map<Request, Run>();

  constructor(
    private readonly server: Server,
    maxWaitingConnections: number,
  ) {
    this.#room = new WaitingRoom(server.driver, server.wires, maxWaitingConnections);
  }

  /** Ends all waits, and gives up their places. */
  async quit(): Promise<void> {
    const requests = [...this.#waiting.keys()];
    const ended = new Error("the client was ended");
    for (const run of this.#waiting.values()) run.stop(ended);
    const giving = requests.map((request) => this.#giveBack(request));
    if (giving.length > 0) await within(GIVE_UP_MS, Promise.all(giving), LATE).catch(() => {});
  }

  /** `note` is called with the outcome of each request to the server. */
  async acquire(
    request: Request,
    settings: Settings,
    note: (error: Error | undefined) => void,
  ): Promise<Granted> {
    const { signal } = settings;
    signal?.throwIfAborted();
    const run = new Run(this.server, this.#room, request, settings, note);
    const stop = () => run.stop(signal!.reason);
    signal?.addEventListener("abort", stop);
    this.#waiting.set(request, run);
    try {
      return await Promise.race([run.run(), run.stopped]);
    } catch (error) {
      // It may be held if only the answer was lost, or have a place in the queue. A refusal without a wait leaves nothing.
      const isRefused = error instanceof ResourceLockedError && request.grace === undefined && !run.isInDoubt;
      if (!isRefused) await this.#giveUp(request, run);
      throw error;
    } finally {
      signal?.removeEventListener("abort", stop);
      this.#waiting.delete(request);
    }
  }

  /** Releases what may be left of a request that has failed. A server that says nothing is not waited for; it goes on by itself. */
  async #giveUp(request: Request, run: Run): Promise<void> {
    const giving = this.#giveBack(request).then((isDone) => {
      if (!isDone || run.isInDoubt) void this.#giveUpLater(request);
    });
    await within(GIVE_UP_MS, giving, LATE).catch(() => {});
  }

  /** A release on one connection may come before the request that was sent on another, which was lost. */
  async #giveUpLater(request: Request): Promise<void> {
    for (let i = 0; i < RELEASES && !this.server.driver.hasEnded; i++) {
      await sleep(RELEASE_AGAIN_MS, undefined, { ref: false });
      if (await this.#giveBack(request)) return;
    }
  }

  /** True if the server holds nothing of it any more, or will never say so. */
  async #giveBack(request: Request): Promise<boolean> {
    return this.server.release(request).then(
      () => true,
      (error) => kindOf(error) === "final",
    );
  }
}

/** One acquire. */
class Run {
  /** An answer was lost: the server may have granted it. */
  isInDoubt = false;
  #place: Place | undefined;
  #isStopped = false;
  #reject: (reason: unknown) => void = () => {};
  /** Rejects when it is stopped. */
  readonly stopped = new Promise<never>((_, reject) => (this.#reject = reject));
  readonly #patience: Patience;

  constructor(
    private readonly server: Server,
    private readonly room: WaitingRoom,
    private readonly request: Request,
    private readonly settings: Settings,
    private readonly note: (error: Error | undefined) => void,
  ) {
    this.#patience = new Patience(settings);
  }

  /** The caller has its error. What is on its way may still be granted. */
  stop(reason: unknown): void {
    this.#isStopped = true;
    this.isInDoubt = true;
    this.#place?.close();
    this.#reject(reason);
  }

  async run(): Promise<Granted> {
    try {
      // A channel may be named at once. A connection to block is for locks that are not free.
      let waiting = this.request.grace === undefined ? undefined : this.#listening();
      for (;;) {
        if (this.#isStopped) throw new Error("the wait was ended");
        const start = performance.now();
        const answer = await this.#inTime(() => this.#ask(waiting, start));
        if (!(answer instanceof Error)) return answer;
        if (this.#patience.isOver || this.server.driver.hasEnded) throw answer;
        waiting = await this.#next(answer, waiting, performance.now() - start);
      }
    } finally {
      this.#place?.leave();
    }
  }

  /** Asks once. The errors after which it goes on are returned. */
  async #ask(waiting: Waiting | undefined, start: number): Promise<Granted | Error> {
    const { request, server } = this;
    try {
      let sent = start;
      const asking = () => server.acquire(request, waiting);
      let grant: Grant = await (waiting ? this.#patience.spend(asking) : asking());
      this.note(undefined);
      const { found } = grant;
      if (found && grant.fence === 0) return { fence: 0, lease: new Lease(this.settings.driftFactor), found };
      const isAtPlace = waiting !== undefined && waiting.by === this.#place;
      const span = Math.min(request.duration, request.linger ?? Infinity);
      if (isAtPlace && request.linger !== undefined) {
        // A hold that lingers is bound to the connection that asked, which is to be the one for renewals.
        sent = performance.now();
        grant = await server.acquire(request);
      } else if (waiting && performance.now() - start > span / 10) {
        // The lease counts from before the asking, so the waiting has eaten of it. A renewal begins it anew.
        sent = performance.now();
        await server.renew(request, request.duration);
      }
      const lease = new Lease(this.settings.driftFactor, request.linger);
      lease.renew(sent, request.duration);
      if (grant.wire) lease.bind(grant.wire);
      return lease.isValid(performance.now())
        ? { fence: grant.fence, lease, found }
        : new Error("the grant came too late");
    } catch (error) {
      const failure = error instanceof Error ? error : new Error(String(error));
      this.note(failure);
      if (kindOf(failure) === "silent") this.isInDoubt = true;
      if (failure instanceof ResourceLockedError) return failure;
      if (kindOf(failure) === "final") throw failure;
      // Some of what was granted before, unheard, has ended since.
      if (wordOf(failure) === "PARTIAL") await server.release(request).catch(() => {});
      return failure;
    }
  }

  /** Pauses after a failure, and says how to wait next. */
  async #next(error: Error, waiting: Waiting | undefined, took: number): Promise<Waiting | undefined> {
    const patience = this.#patience;
    if (!(error instanceof ResourceLockedError)) {
      if (kindOf(error) === "elsewhere" || wordOf(error) === "UNBLOCKED") await patience.sleep(PAUSE_MS);
      else await patience.pause(waiting ? 0 : took);
      return undefined;
    }
    if (error instanceof StringLockError) return void (await patience.sleep(error.retryAfter));
    // Nobody tells when a string ends.
    if (this.server.isFallback(this.request)) return void (await patience.pause());
    // A guard that makes no new grant may answer at once.
    if (waiting && took < PAUSE_MS) await patience.sleep(PAUSE_MS);
    const listening = this.#listening();
    if (listening) return listening;
    this.#place ??= this.room.enter();
    const { retryDelay, grace } = this.settings;
    // Without a free connection the lock is asked for again, as node-redlock would, and the server keeps the place.
    const atMost = Math.min(retryDelay || PAUSE_MS, grace / 2, patience.left);
    const place = this.#place;
    const isReady = await patience.spend(() => place.isReadyWithin(atMost));
    return isReady ? { by: place, ms: this.#slice() } : undefined;
  }

  #listening(): Waiting | undefined {
    const { server, settings } = this;
    if (settings.waitBy !== "notify" || !server.canNotify || server.isFallback(this.request))
      return undefined;
    return { by: server.listener, ms: this.#slice() };
  }

  #slice(): number {
    return Math.min(this.#patience.left, this.settings.blockSlice, MAX_BLOCK_MS);
  }

  /** It does not wait longer for a client that looks for its server, or for a server that says nothing. */
  async #inTime<T>(ask: () => Promise<T>): Promise<T> {
    const { left } = this.#patience;
    if (!Number.isFinite(left)) return ask();
    try {
      return await within(left + ANSWER_MS, ask(), LATE);
    } catch (error) {
      if ((error as Error).message === LATE) this.isInDoubt = true;
      throw error;
    }
  }
}

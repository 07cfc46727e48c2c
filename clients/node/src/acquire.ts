import { setTimeout as sleep } from "node:timers/promises";
import type { Command } from "./driver.js";
import { ResourceLockedError, StringLockError, taken } from "./errors.js";
import { Lease } from "./lease.js";
import { kindOf, wordOf } from "./replies.js";
import type { Grant, Request, Server } from "./server.js";
import { pause } from "./settings.js";
import { End, LATE, MAX_TIMER_MS, within } from "./timer.js";
import type { Listener, WaitingRoom } from "./waiters.js";

/** Before a command is sent again that was answered at once, and not as if it had waited. */
const PAUSE_MS = 50;

/** How long after its time to wait an acquire may take for an answer. */
const ANSWER_MS = 2500;

/** How long an acquire waits for the release of what it gives up, and for how long that goes on. */
const GIVE_UP_MS = 1000;
const RELEASE_MS = 120_000;

/** How it waits, if it does. */
type Waiter = WaitingRoom | Listener | undefined;

/** A lock that was granted, or a value without one. */
export type Granted = Grant & { readonly lease?: Lease };

/** One acquire: a state machine of waits and pauses, which ends by a grant, an error or `stopped`. */
export class Acquire {
  /** An answer was lost: the server may have granted it. */
  #isInDoubt = false;
  /** How many requests may still be on their way. */
  #pending = 0;
  /** Resolves when a connection may wait for it, which has to be given back. */
  #isCalled: Promise<boolean> | undefined;
  #leave: (() => void) | undefined;
  /** Aborted from outside, the caller gets the reason. */
  readonly stopped = new End();

  /** `note` is called with the outcome of each request to the server. */
  constructor(
    private readonly server: Server,
    private readonly room: WaitingRoom,
    private readonly request: Request,
    private readonly deadline: number,
    private readonly note: (error: Error | undefined) => void,
  ) {}

  async run(): Promise<Granted> {
    const { request, server } = this;
    const { signal } = request;
    signal?.throwIfAborted();
    try {
      return await within(Infinity, this.#untilGranted(), LATE, this.stopped, signal);
    } catch (error) {
      // What is on its way may still be granted.
      if (this.stopped.aborted || signal?.aborted || kindOf(error) === "silent") this.#isInDoubt = true;
      this.stopped.abort(error);
      // It may be held if only the answer was lost, or have a place in the queue. A refusal without a wait leaves nothing.
      if (error instanceof ResourceLockedError && !request.waits && !this.#isInDoubt) throw error;
      const first = server.release(request);
      // A release on one connection may come before the request that was sent on another. So it is not the last one until that was
      // answered, nor if that was given up.
      const isLast = () => this.#pending === 0;
      void first.then((kind) => {
        if (kind === "final" && !this.#isInDoubt) return;
        return server.releaseLater(request, [], performance.now() + RELEASE_MS, isLast);
      });
      // A server that says nothing is not waited for.
      await within(GIVE_UP_MS, first, LATE).catch(() => {});
      throw error;
    }
  }

  async #untilGranted(): Promise<Granted> {
    try {
      // A channel may be named at once. A connection to block is for locks that are not free.
      let by = this.request.waits ? this.#listener() : undefined;
      for (;;) {
        this.stopped.throwIfAborted();
        const start = performance.now();
        // It does not wait longer for a client that looks for its server, or for a server that says nothing.
        const answer = await within(this.#left + ANSWER_MS, this.#ask(by, start), LATE);
        if (!(answer instanceof Error)) return answer;
        if (this.#left === 0 || this.server.driver.hasEnded()) throw answer;
        by = await this.#next(answer, by !== undefined, performance.now() - start);
      }
    } finally {
      this.#leave?.();
    }
  }

  /** Asks once. The errors after which it goes on are returned. */
  async #ask(by: Waiter, start: number): Promise<Granted | Error> {
    const { request, server } = this;
    const { duration, linger } = request;
    this.#pending++;
    let isLate = false;
    try {
      let sent = start;
      // The timers that watch over a wait are longer than it.
      const ms = Math.min(this.#left, request.blockSlice, MAX_TIMER_MS - ANSWER_MS);
      const wait = by && ((command: Command) => by.ask(request, command, ms, this.stopped));
      let grant = await server.acquire(request, this.#isInDoubt, wait);
      if (!grant) throw taken(request);
      this.note(undefined);
      if (grant.found && grant.fence === 0) return grant;
      if (linger !== undefined && by === this.room) {
        // A hold that lingers is bound to the connection that asked, which is to be the one for renewals.
        sent = performance.now();
        grant = await server.acquire(request);
        if (!grant) throw taken(request);
      } else if (by && performance.now() - start > Math.min(duration, linger ?? Infinity) / 10) {
        // The lease counts from before the asking, so the waiting has eaten of it. A renewal begins it anew.
        sent = performance.now();
        await server.asHolder("RENEW", request, [duration]);
      }
      const lease = new Lease(request, sent, grant.wire);
      if (!lease.isValid(performance.now())) return new Error("the grant came too late");
      return { ...grant, lease };
    } catch (error) {
      const failure = error instanceof Error ? error : new Error(String(error));
      this.note(failure);
      if (failure instanceof ResourceLockedError) return failure;
      const kind = kindOf(failure);
      if (kind === "silent") this.#isInDoubt = true;
      isLate = failure.message === LATE;
      if (kind === "final") throw failure;
      // Some of what was granted before, unheard, has ended since.
      if (wordOf(failure) === "PARTIAL") await server.release(request);
      return failure;
    } finally {
      if (!isLate) this.#pending--;
    }
  }

  /** Pauses after a failure, and says how to wait next. */
  async #next(error: Error, hasWaited: boolean, took: number): Promise<Waiter> {
    // It may be had elsewhere at once, and nobody tells when a string ends.
    const isSoon = kindOf(error) === "elsewhere" || error instanceof StringLockError;
    if (isSoon || wordOf(error) === "UNBLOCKED") return void (await sleep(PAUSE_MS));
    const hasQueue = error instanceof ResourceLockedError && !this.server.isFallback(this.request);
    if (!hasQueue) return void (await pause(this.request));
    // A guard that makes no new grant may answer at once.
    if (hasWaited && took < PAUSE_MS) await sleep(PAUSE_MS);
    const listener = this.#listener();
    if (listener) return listener;
    this.#isCalled ??= new Promise((call) => (this.#leave = this.room.enter(() => call(true))));
    const { retryDelay, grace } = this.request;
    // Without a free connection the lock is asked for again, as node-redlock would, and the server keeps the place.
    const atMost = Math.min(retryDelay || PAUSE_MS, grace / 2, this.#left);
    const isFree = await within(atMost, this.#isCalled, LATE).catch(() => false);
    return isFree ? this.room : undefined;
  }

  /** How long it may still wait. */
  get #left(): number {
    return Math.max(0, Math.floor(this.deadline - performance.now()));
  }

  #listener(): Waiter {
    const { listener } = this.server;
    return this.request.waitBy === "notify" && !listener.isRefused ? listener : undefined;
  }
}

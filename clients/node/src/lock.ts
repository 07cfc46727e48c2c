/// <reference lib="esnext.disposable" preserve="true" />
import type { Argument } from "./driver.js";
import { type ExecutionError, type ExecutionResult, LockError, lost, ResourceLockedError } from "./errors.js";
import type { Lease } from "./lease.js";
import type { Redlock } from "./redlock.js";
import { kindOf } from "./replies.js";
import type { Request } from "./server.js";
import { checkDuration, type ReleaseSettings, type Settings } from "./settings.js";
import { measure } from "./telemetry.js";
import { MAX_TIMER_MS, within } from "./timer.js";
import { ANSWER_MS, PONG_MS } from "./wire.js";

/** Between two extensions at least. */
const RETRY_MS = 50;

/** How long after the end of its lease, when nothing is left to release, a release is waited for. */
const RELEASED_MS = 2000;

const NOT_EXTENDED = "The lock was not extended before its lease was over.";
const NOT_RELEASED = "The release was not answered before the lease was over.";

/** Aborted when the lock is lost; `error` (and `reason`) say why. */
export type LockSignal = AbortSignal & { error?: Error };

/** What runs under a lock. The lock is given for its fence. */
export type Routine<T> = (signal: LockSignal, lock: Lock) => Promise<T>;

/** A lock that is held, or was. */
export class Lock implements ExecutionResult {
  readonly resources: readonly string[];
  /** The token, by which the server knows the owner. */
  readonly value: string;
  readonly #controller = new AbortController();
  readonly #endHold: ReturnType<typeof measure>;
  /** For the end of the lease, or for the next extension. */
  #timer: NodeJS.Timeout | undefined;
  /** When the next extension is due. Undefined while nobody wants to hear of the end of the lease either. */
  #due: number | undefined;
  #failure: ExecutionError | undefined;
  /** How many extensions were sent. */
  #extensions = 0;
  #isReleased = false;
  /** The answer to a release was lost. */
  #isInDoubt = false;
  /** Repeats a release without an answer. */
  #releasing: Promise<void> | undefined;
  /** @internal Why the lock was lost at the end of its lease. */
  endMessage = NOT_EXTENDED;

  /** @internal */
  constructor(
    readonly redlock: Redlock,
    /** @internal */
    readonly request: Request,
    /** Send it with every write, so that the resource can refuse a smaller one. Several resources have one fence. */
    readonly fence: number,
    /** @internal */
    readonly lease: Lease,
    /** One for each time that the server was asked. */
    readonly attempts: ExecutionResult["attempts"],
  ) {
    this.resources = request.resources;
    this.value = request.token;
    this.#endHold = measure("hold", request.resources);
    const { linger } = request;
    if (linger === undefined) return;
    // For as long as the lease lasts, a silent connection is asked whether it lives.
    const heart = setInterval(
      () => {
        if (!this.isValid) clearInterval(heart);
        else lease.pulse?.ping(linger / 4, Math.min(linger, PONG_MS));
      },
      Math.min(linger / 3, MAX_TIMER_MS),
    ).unref();
  }

  /** Whether the lease is not over yet, by this process's monotonic clock. */
  get isValid(): boolean {
    return this.lease.isValid(performance.now());
  }

  /** Milliseconds until the lease is over. */
  get remaining(): number {
    return this.lease.remaining(performance.now());
  }

  /** When the lease is over, in milliseconds since 1970; 0 after it, or `release`. To look at: what counts is a clock that is never set. */
  get expiration(): number {
    return this.isValid ? Math.floor(Date.now() + this.remaining) : 0;
  }

  /** Aborted when the lock is lost, at the end of its lease at the latest. A release is no loss. */
  get signal(): LockSignal {
    if (this.#due === undefined) this.#plan(Infinity);
    return this.#controller.signal;
  }

  /** Whether the server says that the lock is held now. True is old when it arrives: a write is guarded by `exec`, or by the fence. */
  async check(): Promise<boolean> {
    try {
      await this.redlock.insist(() => this.redlock.server.asHolder("CHECK", this.request));
      return true;
    } catch (error) {
      if ((error as Error).cause instanceof ResourceLockedError) return false;
      throw error;
    }
  }

  /**
   * Runs one command in the server, in the same step in which the server checks that the lock is held: `exec("SET", "stock:7", 3)`.
   * Rejects with an `ExecutionError` when the lock is lost; the command has not run then. Of several resources, the first one guards.
   */
  async exec(command: string, ...args: Argument[]): Promise<unknown> {
    try {
      const ms = Math.max(this.remaining, ANSWER_MS);
      return await this.redlock.server.exec(this.request, [command, ...args], ms);
    } catch (error) {
      // An error of the command itself is the caller's.
      const isOurs = error instanceof LockError || kindOf(error) === "silent";
      throw isOurs ? this.redlock.failed(error) : error;
    }
  }

  /** Gives the lock back. A release that was rejected for lack of an answer can be repeated, and is repeated by itself, too. */
  async release(settings: ReleaseSettings = {}): Promise<ExecutionResult> {
    const { lease, redlock, request } = this;
    const options: Argument[] = settings.atLeast === undefined ? [] : ["ATLEAST", settings.atLeast];
    clearTimeout(this.#timer);
    this.#isReleased = true;
    lease.isOver = true;
    const release = async () => {
      try {
        await redlock.server.asHolder("RELEASE", request, options);
      } catch (error) {
        if (kindOf(error) === "silent") this.#isInDoubt = true;
        // Sent twice, the first may have done it. For as long as the lease lasts that is what this answer is taken for.
        const isGone = error instanceof ResourceLockedError;
        if (!isGone || !this.#isInDoubt || performance.now() >= lease.until) throw error;
      }
    };
    try {
      const attempts = await redlock.insist(release, settings, lease);
      this.#endHold(true);
      return { attempts };
    } catch (error) {
      const { cause } = error as Error;
      this.#endHold(!(cause instanceof ResourceLockedError));
      // Most programs do not repeat it, and those who wait would wait for the rest of the ttl.
      if (kindOf(cause) !== "final")
        this.#releasing ??= redlock.server.releaseLater(request, options, lease.until);
      throw error;
    }
  }

  /** Sets the lease anew, from now on. Returns this lock. */
  async extend(duration: number, settings: Partial<Settings> = {}): Promise<Lock> {
    checkDuration(duration);
    await this.redlock.insist(() => this.#renew(duration), settings, this.lease);
    this.endMessage = NOT_EXTENDED;
    return this;
  }

  /** Extends the lock from now on, until it is released or lost. Returns this lock. */
  keep(): this {
    // At a third of the time within which it is needed, or before the threshold if that is sooner. One whose connection is lost lasts for
    // the linger only. Of a duration shorter than the threshold a third is enough.
    const { duration, linger = duration, automaticExtensionThreshold } = this.request;
    const third = Math.min(duration, linger) / 3;
    const left = this.remaining - Math.min(automaticExtensionThreshold, duration / 3);
    this.#plan(performance.now() + Math.max(RETRY_MS, Math.min(left, third)));
    return this;
  }

  /**
   * At the end of the block of an `await using`: releases the lock, unless that was tried, and rejects when the lock was lost. The
   * declaration reads this property, and from then on the lock is extended, as by `keep()`.
   */
  get [Symbol.asyncDispose](): () => Promise<void> {
    this.keep();
    return () => this.#end();
  }

  /** @internal Runs the routine, and releases the lock unless the routine has done so. */
  async use<T>(routine: Routine<T>, settings?: ReleaseSettings): Promise<T> {
    const { signal } = this;
    try {
      const value = await routine(signal, this);
      // The lease is asked, too: after a stop of the whole process its timer may not have had its turn.
      if (!this.isValid) this.#lose("The lease was over before the routine was.");
      signal.throwIfAborted();
      await this.#end(settings);
      return value;
    } catch (error) {
      // Nobody waits for a server that may not answer to release what is lost.
      const ended = this.#end(settings).catch(() => {});
      if (!signal.aborted) await ended;
      throw error;
    }
  }

  /** Releases the lock, unless that was tried: without an answer it goes on by itself. */
  async #end(settings?: ReleaseSettings): Promise<void> {
    if (this.#isReleased) return;
    const released = within(this.remaining + RELEASED_MS, this.release(settings), NOT_RELEASED);
    await released.catch((error) => Promise.reject(this.redlock.failed(error)));
  }

  async #renew(duration: number): Promise<void> {
    const { lease, request } = this;
    const { server } = this.redlock;
    if (!this.isValid) throw lost("its lease is over");
    const sent = performance.now();
    const mine = ++this.#extensions;
    // If it is shortened, then also by a request whose answer does not come.
    lease.shorten(sent, duration);
    this.#plan();
    try {
      // A silent connection is given up while there is time to ask on another one.
      const ms = Math.min(ANSWER_MS, Math.max(100, this.remaining / 2));
      const wire = await server.asHolder("RENEW", request, [duration], ms);
      if (!this.isValid) throw lost("its lease was over before the answer");
      // What the server does last is what was sent last.
      if (mine !== this.#extensions) return;
      lease.renew(sent, duration);
      if (request.linger === undefined || lease.pulse === wire) return;
      // Only an acquire binds a hold that lingers to the connection of now. Where it is not granted, as while a guard grants nothing, the
      // renewal counts, and the next one binds.
      const again = { ...request, duration, waits: false };
      const grant = await server.acquire(again).catch(() => undefined);
      if (grant && grant.fence !== this.fence) {
        // It was lost meanwhile. Nobody knows of this one.
        await server.release(again);
        throw lost("the lock was granted anew");
      }
      if (grant) lease.pulse = grant.wire;
    } catch (error) {
      // Its end in time, too: to release what is lost does not wait for a server that cannot do it.
      if (error instanceof ResourceLockedError) lease.shorten(-Infinity, 0);
      throw error;
    } finally {
      this.#plan();
    }
  }

  /** Answers of the connection move the end of the lease, and a timer may be early, or for longer than Node.js has one for. */
  #plan(due = this.#due): void {
    clearTimeout(this.#timer);
    this.#due = due;
    if (due === undefined || this.#isReleased || this.#controller.signal.aborted) return;
    const ms = Math.max(0, Math.min(this.remaining, due - performance.now()));
    const wake = () => {
      if (!this.isValid) this.#lose(this.endMessage);
      else if (performance.now() < due) this.#plan();
      else void this.#extendOnce();
    };
    this.#timer = setTimeout(wake, Math.min(Math.ceil(ms), MAX_TIMER_MS));
  }

  async #extendOnce(): Promise<void> {
    this.#plan(Infinity);
    try {
      await this.redlock.insist(() => this.#renew(this.request.duration));
      this.#failure = undefined;
      this.keep();
    } catch (error) {
      this.#failure = error as ExecutionError;
      // A final error ends the extensions. The end of the lease tells of it.
      if (kindOf(this.#failure.cause) !== "final") this.#plan(performance.now() + RETRY_MS);
    }
  }

  #lose(text: string): void {
    const { signal } = this.#controller;
    if (this.#isReleased || signal.aborted) return;
    const over = new ResourceLockedError("ERR_LOCK_LOST", text, { cause: this.#failure });
    // What the server has said is clearer than that the time is over.
    const error = this.redlock.failed(this.#failure?.code === over.code ? this.#failure : over);
    this.#endHold(false, error);
    (signal as LockSignal).error = error;
    this.#controller.abort(error);
  }
}

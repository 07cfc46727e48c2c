/** The longest time that Node.js has a timer for, 24.8 days. A timer that is set to more fires at once. */
export const MAX_TIMER_MS = 2 ** 31 - 1;

export const LATE = "no answer in time";

/**
 * An AbortController and its signal in one, for inside: each request listens to one, and to listen
 * to an AbortSignal is far more work. Nor does Node.js warn of many listeners here.
 */
export class End {
  aborted = false;
  reason: unknown;
  readonly #listeners = new Set<() => void>();

  abort(reason: unknown): void {
    if (this.aborted) return;
    this.aborted = true;
    this.reason = reason;
    for (const listener of this.#listeners) listener();
  }

  throwIfAborted(): void {
    if (this.aborted) throw this.reason;
  }

  addEventListener(_: "abort", listener: () => void): void {
    this.#listeners.add(listener);
  }

  removeEventListener(_: "abort", listener: () => void): void {
    this.#listeners.delete(listener);
  }
}

type Ending = AbortSignal | End | undefined;

/** Calls this with the reason when one of them is aborted. Returns what ends that. */
export function whenAborted(call: (reason: unknown) => void, ...ends: Ending[]) {
  const tell = () => call(ends.find((end) => end?.aborted)!.reason);
  for (const end of ends) end?.addEventListener("abort", tell);
  if (ends.some((end) => end?.aborted)) tell();
  return () => {
    for (const end of ends) end?.removeEventListener("abort", tell);
  };
}

/** Waits for a promise, but not longer than this or than these last. The promise is then left to itself. */
export function within<T>(ms: number, promise: Promise<T>, otherwise: string, ...ends: Ending[]): Promise<T> {
  return new Promise<T>((resolve, reject) => {
    let stop = () => {};
    const end = () => (clearTimeout(timer), stop());
    const fail = (reason: unknown) => (end(), reject(reason));
    const late = () => fail(new Error(otherwise));
    const timer = ms < Infinity ? setTimeout(late, Math.min(ms, MAX_TIMER_MS)) : undefined;
    stop = whenAborted(fail, ...ends);
    promise.then((value) => (end(), resolve(value)), fail);
  });
}

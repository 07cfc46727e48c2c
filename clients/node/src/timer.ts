import { setMaxListeners } from "node:events";

/** The longest time that Node.js has a timer for, 24.8 days. A timer that is set to more fires at once. */
export const MAX_TIMER_MS = 2 ** 31 - 1;

export const LATE = "no answer in time";

/** Calls this with the reason when one of the signals is aborted. Returns what ends that. */
export function whenAborted(call: (reason: unknown) => void, ...signals: (AbortSignal | undefined)[]) {
  const stops = signals.map((signal) => {
    const tell = () => call(signal!.reason);
    if (signal?.aborted) tell();
    signal?.addEventListener("abort", tell);
    return () => signal?.removeEventListener("abort", tell);
  });
  return () => stops.forEach((stop) => stop());
}

/** Waits for a promise, but not longer than this or than these signals last. The promise is then left to itself. */
export function within<T>(
  ms: number,
  promise: Promise<T>,
  otherwise: string,
  ...ends: AbortSignal[]
): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  let stop = () => {};
  return new Promise<T>((resolve, reject) => {
    if (ms < Infinity) timer = setTimeout(() => reject(new Error(otherwise)), Math.min(ms, MAX_TIMER_MS));
    stop = whenAborted(reject, ...ends);
    promise.then(resolve, reject);
  }).finally(() => {
    clearTimeout(timer);
    stop();
  });
}

/** For any number of listeners: Node.js warns of more than ten, as of a leak. */
export function endable(): AbortController {
  const controller = new AbortController();
  setMaxListeners(0, controller.signal);
  return controller;
}

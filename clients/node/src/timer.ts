/** The longest time that Node.js has a timer for, 24.8 days. A timer that is set to more fires at once. */
export const MAX_TIMER_MS = 2 ** 31 - 1;

/** Waits for a promise, but not longer than this. The promise is then left to itself. */
export async function within<T>(ms: number, promise: Promise<T>, otherwise: string): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(otherwise)), Math.min(ms, MAX_TIMER_MS));
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

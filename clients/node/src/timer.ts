/** The longest time that Node.js has a timer for, 24.8 days. One that is set to more fires at once. */
export const MAX_TIMER_MS = 2 ** 31 - 1;

/** A `setTimeout` of any length. Returns what takes it back. */
export function after(ms: number, run: () => void): () => void {
  let timer: NodeJS.Timeout;
  const set = (left: number) => {
    const slice = Math.min(left, MAX_TIMER_MS);
    timer = setTimeout(() => (left > slice ? set(left - slice) : run()), slice);
  };
  set(ms);
  return () => clearTimeout(timer);
}

/** The longest time that Node.js has a timer for, 24.8 days. One that is set to more fires at once. */
export const MAX_TIMER_MS = 2 ** 31 - 1;

/** A `setTimeout` of any length, which never fires early: Node's own may, by a millisecond. Returns what takes it back. */
export function after(ms: number, run: () => void): () => void {
  const end = performance.now() + ms;
  let timer: NodeJS.Timeout;
  const set = () => {
    const left = Math.max(0, Math.ceil(end - performance.now()));
    timer = setTimeout(() => (performance.now() < end ? set() : run()), Math.min(left, MAX_TIMER_MS));
  };
  set();
  return () => clearTimeout(timer);
}

/** What is to be locked, and how. */
export interface Target {
  /** Those of `acquire` in one order for all who use this package. */
  readonly resources: readonly string[];
  /** The permits of a semaphore. */
  readonly limit?: number;
  /** Of several resources only: those from this one on are shared. */
  readonly sharedFrom?: number;
  /** What its release will ask for, which not every server has. */
  readonly atLeast?: number;
  /** Of a value, whose name the resource is: it is early when it lives no longer than these milliseconds; null is never. */
  readonly early?: number | null;
}

/** One request for it. */
export interface Request extends Target {
  /** The resources with the client's prefix; of a value the lock under which it is made. */
  readonly keys: readonly string[];
  /** The key of the value. */
  readonly result: string | undefined;
  readonly token: string;
  readonly duration: number;
  readonly shared: boolean;
  /** How long the server keeps the place in its queue while nobody listens. Undefined for a request that does not wait. */
  readonly grace: number | undefined;
  readonly linger: number | undefined;
  /** Whether strings are wanted where the module is missing. */
  readonly mayFallBack: boolean;
}

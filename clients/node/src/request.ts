import type { Connection } from "./connection.js";

/** What is to be locked, and how. */
export interface Target {
  /** In one order for all who use this package, so that no two wait for each other. Those of a multi-lock in any. */
  readonly resources: readonly string[];
  /** The permits of a semaphore. */
  readonly limit?: number;
  /** Of a multi-lock only: the resources from this one on are shared. */
  readonly sharedFrom?: number;
  /** What its release will be asked for, which not every server has. */
  readonly atLeast?: number;
}

/** One wish to have it. */
export interface Request extends Target {
  readonly token: string;
  readonly duration: number;
  readonly shared: boolean;
  /** How long the server keeps the places in its queues while nobody listens. Undefined for a request that does not wait. */
  readonly grace?: number | undefined;
  readonly linger?: number | undefined;
  /** Only with `linger`. In a cluster: by key the node to whose connection it is bound, as far as that is known. */
  readonly boundAt: WeakMap<Connection, Map<string, string>> | undefined;
}

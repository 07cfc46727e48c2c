import type { Command, Connection } from "./connection.js";

/** A request for one lock, without the words for the way to wait. */
export interface Question {
  readonly key: string;
  readonly token: string;
  readonly command: Command;
  /** KEEP with its grace, or nothing. */
  readonly keep: readonly (string | number)[];
}

/** A way to wait in the server. */
export interface Waiter {
  /** Resolves with the fence, or with null if the lock was not granted within `ms`. */
  ask(question: Question, ms: number): Promise<unknown>;
}

/** One object for each connection, which all who use the connection share. */
export function oneForEach<T>(make: (shared: Connection) => T): (shared: Connection) => T {
  const known = new WeakMap<Connection, T>();
  return (shared) => {
    let one = known.get(shared);
    if (one === undefined) known.set(shared, (one = make(shared)));
    return one;
  };
}

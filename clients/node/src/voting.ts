import type { Client } from "./clients/client.js";
import type { ExecutionStats } from "./errors.js";
import type { Server } from "./server.js";

export interface Round<T> {
  /** Resolves as soon as a majority agrees, or none can any more. */
  readonly decided: Promise<Outcome<T>>;
  /** Resolves when all have answered. */
  readonly stats: Promise<ExecutionStats>;
}

export interface Outcome<T> {
  readonly isPassed: boolean;
  /** By the number of the server, as far as they have voted for it by now. */
  readonly answers: ReadonlyArray<T | undefined>;
  readonly errors: readonly Error[];
}

export function quorumOf(count: number): number {
  return Math.floor(count / 2) + 1;
}

/** Asks all servers at once. Who answers with an error votes against, which `onError` is told at once. */
export function vote<T>(
  servers: readonly Server[],
  ask: (server: Server) => Promise<T>,
  onError: (error: Error) => void = () => {},
): Round<T> {
  const quorumSize = quorumOf(servers.length);
  const votesFor = new Set<Client>();
  const votesAgainst = new Map<Client, Error>();
  const answers = new Array<T | undefined>(servers.length).fill(undefined);

  let decide: (outcome: Outcome<T>) => void;
  const decided = new Promise<Outcome<T>>((resolve) => (decide = resolve));
  const count = () => {
    const isPassed = votesFor.size >= quorumSize;
    if (!isPassed && votesAgainst.size <= servers.length - quorumSize) return;
    decide({ isPassed, answers: [...answers], errors: [...votesAgainst.values()] });
  };

  const votes = servers.map(async (server, i) => {
    try {
      answers[i] = await ask(server);
      votesFor.add(server.client);
    } catch (reason) {
      const error = reason instanceof Error ? reason : new Error(String(reason));
      votesAgainst.set(server.client, error);
      onError(error);
    } finally {
      // Also when a listener throws.
      count();
    }
  });
  const stats = { membershipSize: servers.length, quorumSize, votesFor, votesAgainst };
  return { decided, stats: Promise.all(votes).then(() => stats) };
}

import type { Command, Connection, Node } from "../connection.js";
import { EndWatch } from "./end-watch.js";
import { type NodeRedisClient, openDedicated, openSubscriber, quitOf, textsOf } from "./node-redis.js";

/** What of a node-redis Sentinel client (`createSentinel()`) is used. */
export interface NodeRedisSentinel {
  readonly isReady: boolean;
  readonly isOpen: boolean;
  getSentinelNode(): unknown;
  close(): Promise<unknown>;
  on(event: "client-error" | "topology-change", listener: (event: { type: string }) => void): unknown;
}

/** Runs something on the client of the master that it has leased: again, when the master was lost meanwhile. */
interface Leasing {
  _execute<T>(isReadonly: boolean, run: (master: NodeRedisClient) => T): Promise<Awaited<T>>;
  readonly _keyPrefix?: string | Buffer | undefined;
}

export class OfNodeRedisSentinel implements Connection, Node {
  readonly id = "";
  readonly isCluster = false;
  readonly knowsDatabase = true;
  resends = 0;

  readonly #leasing: Leasing;
  readonly #end: EndWatch;

  constructor(private readonly client: NodeRedisSentinel) {
    // Its public methods lend no client that could be duplicated, and say nothing of what they send again.
    this.#leasing = client as unknown as Leasing;
    if (typeof this.#leasing._execute !== "function")
      throw new TypeError("This version of node-redis's Sentinel client is not known to Redlock.");
    this.#end = new EndWatch(client);
  }

  get isOpen() {
    return this.client.isReady;
  }

  get hasEnded() {
    return this.#end.hasEnded;
  }

  send(command: Command) {
    let isAgain = false;
    return this.#leasing._execute(false, (master) => {
      if (isAgain) this.resends++;
      isAgain = true;
      return master.sendCommand(textsOf(command));
    });
  }

  async node() {
    return this;
  }

  async open() {
    this.#end.watch();
    return openDedicated(await this.#master());
  }

  async subscriber(onMessage: (message: Buffer) => void, onLost: () => void) {
    this.#end.watch();
    return openSubscriber(await this.#master(), onMessage, onLost, false);
  }

  async #master(): Promise<NodeRedisClient> {
    let found: NodeRedisClient | undefined;
    await this.#leasing._execute(false, async (master) => void (found = master));
    return found!;
  }

  async quit() {
    await quitOf({ close: () => this.client.close(), quit: () => this.client.close() });
    this.#end.check();
  }

  onEnd(listener: () => void) {
    this.#end.onEnd(listener);
  }

  onReconnect(listener: () => void) {
    this.client.on("client-error", ({ type }) => type === "MASTER" && listener());
    this.client.on("topology-change", ({ type }) => type === "MASTER_CHANGE" && listener());
  }

  key(resource: string) {
    return `${this.#leasing._keyPrefix ?? ""}${resource}`;
  }
}

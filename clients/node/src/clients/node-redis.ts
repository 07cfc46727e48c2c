import { errorMonitor } from "node:events";
import type { Command, Connection, Dedicated, Node, Subscriber } from "../connection.js";
import { connect } from "./opening.js";

/** What of a node-redis client (`createClient()`) is used. */
export interface NodeRedisClient {
  readonly isReady: boolean;
  readonly isOpen?: boolean | undefined;
  readonly options?: { readonly socket?: object; readonly keyPrefix?: string | Buffer } | undefined;
  sendCommand(command: (string | Buffer)[]): Promise<unknown>;
  duplicate(override?: object): NodeRedisClient;
  connect(): Promise<unknown>;
  /** Since version 5, as is `close`. */
  destroy?(): void;
  disconnect(): unknown;
  close?(): unknown;
  quit(): Promise<unknown>;
  ping(): Promise<unknown>;
  subscribe(channel: string, listener: (message: Buffer) => unknown, bufferMode: true): Promise<unknown>;
  sSubscribe?(channel: string, listener: (message: Buffer) => unknown, bufferMode: true): Promise<unknown>;
  on(
    event: "connect" | "error" | "end" | "reconnecting" | typeof errorMonitor,
    listener: () => void,
  ): unknown;
  on(event: "sharded-channel-moved", listener: () => void): unknown;
}

export class OfNodeRedis implements Connection, Node {
  readonly id = "";
  readonly isCluster = false;
  /** It tells nobody of the database that `select` has chosen, and `duplicate()` goes to that of its options. */
  readonly knowsDatabase = false;
  /** It rejects what is not answered when the connection is lost. */
  readonly resends = 0;

  #wasEnded = false;

  constructor(private readonly client: NodeRedisClient) {
    onEnded(client, () => (this.#wasEnded = true));
  }

  get isOpen() {
    return this.client.isReady;
  }

  get hasEnded() {
    return this.#wasEnded && !this.client.isOpen;
  }

  send(command: Command) {
    return this.client.sendCommand(textsOf(command));
  }

  async node() {
    return this;
  }

  open() {
    return openDedicated(this.client);
  }

  subscriber(onMessage: (message: Buffer) => void, onLost: () => void) {
    return openSubscriber(this.client, onMessage, onLost, false);
  }

  quit() {
    return quitOf(this.client);
  }

  onEnd(listener: () => void) {
    onEnded(this.client, listener);
  }

  onReconnect(listener: () => void) {
    this.client.on("reconnecting", () => listener());
  }

  key(resource: string) {
    return `${this.client.options?.keyPrefix ?? ""}${resource}`;
  }
}

/** When a client ends. One that does not connect again after a loss says so by an error only, which stays its program's to handle. */
export function onEnded(client: NodeRedisClient, listener: () => void): void {
  client.on("end", listener);
  client.on(errorMonitor, () => {
    if (!client.isOpen) listener();
  });
}

/** node-redis takes no numbers. */
export function textsOf(command: Command): (string | Buffer)[] {
  return command.map((arg) => (typeof arg === "number" ? String(arg) : arg));
}

/** Ends it after what is under way, by the name that this version has for it. */
export async function quitOf(client: Pick<NodeRedisClient, "close" | "quit">): Promise<void> {
  await (client.close ? client.close() : client.quit());
}

/** Another connection to the server of a client, for commands that block. */
export async function openDedicated(client: NodeRedisClient): Promise<Dedicated> {
  const own = await openClient(client);
  return {
    get isOpen() {
      return own.isReady;
    },
    send: (command) => own.sendCommand(textsOf(command)),
    close: () => end(own),
  };
}

/** Another connection to the server of a client, which listens to channels, or to shard channels. */
export async function openSubscriber(
  client: NodeRedisClient,
  onMessage: (message: Buffer) => void,
  onLost: () => void,
  isSharded: boolean,
): Promise<Subscriber> {
  const own = await openClient(client);
  let isLost = false;
  const lose = () => {
    if (isLost || own.isReady) return;
    isLost = true;
    onLost();
  };
  // A connection that is not made again ends with an error only.
  own.on("error", lose);
  own.on("end", lose);
  own.on("sharded-channel-moved", onLost);
  return {
    async subscribe(channel) {
      if (!isSharded) return own.subscribe(channel, onMessage, true);
      return own.sSubscribe!(channel, onMessage, true);
    },
    ping: () => own.ping(),
    close: () => end(own),
  };
}

async function openClient(client: NodeRedisClient): Promise<NodeRedisClient> {
  const own = client.duplicate({
    // A ping would stand behind the BLOCK.
    pingInterval: undefined,
    socket: { ...client.options?.socket, reconnectStrategy: false, socketTimeout: undefined },
  });
  // What goes wrong is told to who sends a command.
  own.on("error", () => {});
  try {
    await connect(own);
  } catch (error) {
    end(own);
    throw error;
  }
  return own;
}

function end(client: NodeRedisClient): void {
  if (!client.isOpen) return;
  if (client.destroy) client.destroy();
  else void Promise.resolve(client.disconnect()).catch(() => {});
}

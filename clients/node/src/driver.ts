import { within } from "./timer.js";

/** An argument of a command. */
export type Argument = string | number | Buffer;

export type Command = readonly [name: string, ...args: Argument[]];

/** Values may have any bytes: the replies to these commands are buffers. */
export function isOfBytes([name]: Command): boolean {
  return name === "GET" || name === "LOCK.ONCE";
}

/** How often the user's client is asked whether the program has ended it: not every library emits an event. */
const LOOK_MS = 100;

/** How long the server may be silent on a new connection, and how long opening may take in all. */
const OPEN_MS = 4000;

/** How long a cluster client may take to look for the nodes, and the time between two looks. */
const LOOK_FOR_NODES_MS = 1000;
const LOOK_AGAIN_MS = 500;

/** A connection of our own, to one server. Once it is lost it stays lost, and the library answers nothing on it any more. */
export interface Link {
  isOpen(): boolean;
  send(command: Command): Promise<unknown>;
  close(): unknown;
}

/** A link that listens to channels: in a cluster to shard channels. */
export interface Listening extends Link {
  subscribe(channel: string): Promise<unknown>;
}

/** A server, and how to reach it. */
export interface Node {
  /** Of its database; in a cluster its address. */
  readonly id: string;
  open(onLost: () => void): Promise<Link>;
  /** `onLost` is called too when only a channel was lost. */
  listen(onMessage: (message: Buffer) => void, onLost: () => void): Promise<Listening>;
}

/**
 * What the core needs of a library: open, send and listen. The user's client is only a template for connections of our own, so nothing
 * that prolongs or ends a hold waits behind the user's commands.
 */
export abstract class Driver {
  readonly isCluster: boolean = false;
  /** The program has ended its client, or the library will not connect it again. */
  abstract readonly hasEnded: boolean;
  /** Libraries do not add their prefix to keys of commands that they do not know. */
  abstract readonly prefix: string;
  /** Called when the client has ended. */
  onEnd: () => void = () => {};
  #timer: NodeJS.Timeout | undefined;
  #looking: Promise<unknown> | undefined;
  #lookedAt = -Infinity;

  /** Where the key is, as far as the client knows. */
  abstract node(key: string): Promise<Node>;
  /** The node of a cluster that has this address. */
  at(_address: string): Node {
    throw new Error("A single server sends nobody elsewhere.");
  }

  protected abstract end(): Promise<unknown>;

  /** Has a cluster client ask again where the slots are. */
  protected async discover(_key: string): Promise<unknown> {
    return undefined;
  }

  async refresh(key: string): Promise<void> {
    if (performance.now() - this.#lookedAt < LOOK_AGAIN_MS) return;
    this.#looking ??= within(LOOK_FOR_NODES_MS, this.discover(key), "no answer")
      .catch(() => {})
      .finally(() => {
        this.#looking = undefined;
        this.#lookedAt = performance.now();
      });
    await this.#looking;
  }

  /** Ends the user's client. node-redis would keep the connections of a look that is not over, and with them the process. */
  async quit(): Promise<void> {
    await this.#looking;
    await this.end();
    this.check();
  }

  /** Begins to look for the end of the user's client. This keeps no process alive. */
  watch(): void {
    this.#timer ??= setInterval(() => this.check(), LOOK_MS).unref();
  }

  check(): void {
    if (!this.hasEnded) return;
    clearInterval(this.#timer);
    this.#timer = undefined;
    this.onEnd();
  }
}

/** `host:port`, of which the host may have colons. */
export function hostOf(address: string): { host: string; port: number } {
  const colon = address.lastIndexOf(":");
  return { host: address.slice(0, colon), port: Number(address.slice(colon + 1)) };
}

/** Connects. The libraries have a time-out for the way to the server, and none for its answers. */
export async function connect<T extends { connect(): Promise<unknown> }>(
  own: T,
  end: (own: T) => unknown,
): Promise<T> {
  try {
    await within(OPEN_MS, own.connect(), "the server does not answer on a new connection");
    return own;
  } catch (error) {
    end(own);
    throw error;
  }
}

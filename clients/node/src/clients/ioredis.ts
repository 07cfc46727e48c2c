import type { Argument, Command, Connection, Dedicated, Node, Subscriber } from "../connection.js";
import { slotOf } from "../slot.js";
import { connect } from "./opening.js";

/** What of an ioredis or iovalkey client (`Redis`) is used. */
export interface IoredisClient {
  readonly status: string;
  readonly options: {
    readonly keyPrefix?: string | undefined;
    readonly host?: string | undefined;
    readonly port?: number | undefined;
    readonly db?: number | undefined;
  };
  /** Of its connection, while it has one. */
  readonly condition?: { readonly select: number } | null | undefined;
  call(command: string, ...args: Argument[]): Promise<unknown>;
  duplicate(override?: object): IoredisClient;
  connect(): Promise<unknown>;
  disconnect(): void;
  quit(): Promise<unknown>;
  ping(): Promise<unknown>;
  subscribe(channel: string): Promise<unknown>;
  on(event: "connect" | "error" | "close" | "end", listener: () => void): unknown;
  on(event: "messageBuffer", listener: (channel: Buffer, message: Buffer) => void): unknown;
}

/** What of an ioredis or iovalkey `Cluster` is used. */
export interface IoredisCluster {
  readonly isCluster: boolean;
  readonly status: string;
  readonly options: { readonly keyPrefix?: string | undefined };
  readonly slots: readonly (readonly string[] | undefined)[];
  nodes(role?: "master"): IoredisClient[];
  call(command: string, ...args: Argument[]): Promise<unknown>;
  sendCommand(command: never): unknown;
  quit(): Promise<unknown>;
  on(event: "end", listener: () => void): unknown;
  on(event: "+node", listener: (node: never) => void): unknown;
}

/** A command of ioredis, before it is sent. */
interface Prepared {
  getSlot(): number | null;
  readonly constructor: { checkFlag?(flag: string, command: string): boolean };
}

/** Since ioredis 5.3. Earlier ones send the command, which their list of commands has, and cannot read the messages. */
interface WithShardChannels {
  ssubscribe(channel: string): Promise<unknown>;
  on(event: "smessageBuffer", listener: (channel: Buffer, message: Buffer) => void): unknown;
  on(event: "moved", listener: () => void): unknown;
}

export class OfIoredis implements Connection, Node {
  readonly isCluster = false;
  readonly knowsDatabase = true;
  resends = 0;

  constructor(private readonly client: IoredisClient) {
    client.on("close", () => this.resends++);
  }

  /** A connection to wait with stays in its database when the client selects another one. */
  get id() {
    return String(databaseOf(this.client));
  }

  get isOpen() {
    return this.client.status === "ready";
  }

  get hasEnded() {
    return this.client.status === "end";
  }

  /** The library adds the prefix to the keys of commands that it knows: some versions by the name in lower case, some by any. */
  send([name, ...args]: Command, key?: string) {
    if (name.includes(".") || key === undefined) return this.client.call(name, ...args);
    const resource = key.slice(this.key("").length);
    return this.client.call(name.toLowerCase(), ...args.map((arg) => (arg === key ? resource : arg)));
  }

  async node() {
    return this;
  }

  open() {
    return openDedicated(this.client);
  }

  async subscriber(onMessage: (message: Buffer) => void, onLost: () => void): Promise<Subscriber> {
    const own = await openSubscriber(this.client, onLost);
    own.on("messageBuffer", (_, message) => onMessage(message));
    return {
      subscribe: (channel) => own.subscribe(channel),
      ping: () => own.ping(),
      close: () => own.disconnect(),
    };
  }

  quit() {
    return this.client.quit();
  }

  onEnd(listener: () => void) {
    this.client.on("end", listener);
  }

  onReconnect(listener: () => void) {
    this.client.on("close", () => listener());
  }

  key(resource: string) {
    return (this.client.options.keyPrefix ?? "") + resource;
  }
}

export class OfIoredisCluster implements Connection {
  readonly isCluster = true;
  readonly knowsDatabase = true;
  resends = 0;
  readonly #onReconnect: ((node: string) => void)[] = [];

  constructor(private readonly client: IoredisCluster) {
    const watch = (node: IoredisClient) =>
      node.on("close", () => {
        this.resends++;
        for (const listener of this.#onReconnect) listener(addressOf(node));
      });
    client.nodes().forEach(watch);
    client.on("+node", watch);
  }

  get isOpen() {
    return this.client.status === "ready";
  }

  get hasEnded() {
    return this.client.status === "end";
  }

  /** ioredis knows the keys of native commands only, and would ask any node. So it is told the slot. */
  send(command: Command, key: string) {
    const prepared = this.#prepare(command);
    const slot = slotOf(key);
    prepared.getSlot = () => slot;
    return this.client.sendCommand(prepared as never) as Promise<unknown>;
  }

  /** What `call` would send. */
  #prepare([name, ...args]: Command): Prepared {
    let prepared: Prepared | undefined;
    const catching = Object.create(this.client, {
      sendCommand: { value: (command: Prepared) => (prepared = command) },
      // It would go its way in a pipeline.
      isPipeline: { value: true },
      // The keys have the prefix. Names in lower case would not do: the library sends what it knows to replicas, if that is wanted.
      options: { value: { ...this.client.options, keyPrefix: "" } },
    }) as IoredisCluster;
    void catching.call(name, ...args);
    if (prepared === undefined) throw new TypeError("This version of ioredis is not known to Redlock.");
    return prepared;
  }

  async node(key: string): Promise<Node> {
    const address = this.client.slots[slotOf(key)]?.[0];
    const client = this.client.nodes("master").find((node) => addressOf(node) === address);
    if (address === undefined || client === undefined)
      throw new Error("UNREACHABLE the node of the key is not known");
    return {
      id: address,
      send: ([name, ...args]) => client.call(name, ...args),
      open: () => openDedicated(client),
      subscriber: (onMessage, onLost) => this.#subscriber(client, onMessage, onLost),
    };
  }

  async #subscriber(
    client: IoredisClient,
    onMessage: (message: Buffer) => void,
    onLost: () => void,
  ): Promise<Subscriber> {
    // ioredis 5.0 to 5.2 sends SSUBSCRIBE, and does not understand its answer.
    const Command = this.#prepare(["PING"]).constructor;
    if (!Command.checkFlag?.("ENTER_SUBSCRIBER_MODE", "ssubscribe"))
      throw new Error("ERR NOTIFY in a cluster needs shard channels, which this version of the client lacks");
    const own = (await openSubscriber(client, onLost)) as IoredisClient & WithShardChannels;
    own.on("smessageBuffer", (_, message) => onMessage(message));
    // The slot has gone. Older versions do not know what to do with the message that says so, and emit an error.
    own.on("moved", onLost);
    own.on("error", onLost);
    return {
      subscribe: (channel) => own.ssubscribe(channel),
      ping: () => own.ping(),
      close: () => own.disconnect(),
    };
  }

  quit() {
    return this.client.quit();
  }

  onEnd(listener: () => void) {
    this.client.on("end", listener);
  }

  onReconnect(listener: (node: string) => void) {
    this.#onReconnect.push(listener);
  }

  key(resource: string) {
    return (this.client.options.keyPrefix ?? "") + resource;
  }
}

/** As the slots name it. */
function addressOf({ options }: IoredisClient): string {
  return `${options.host}:${options.port}`;
}

async function openDedicated(client: IoredisClient): Promise<Dedicated> {
  const own = await openClient(client);
  return {
    get isOpen() {
      return own.status === "ready";
    },
    send: ([name, ...args]) => own.call(name, ...args),
    close: () => own.disconnect(),
  };
}

async function openSubscriber(client: IoredisClient, onLost: () => void): Promise<IoredisClient> {
  // The prefix is for keys. Nothing is resubscribed on a connection that is not made again.
  const own = await openClient(client, { keyPrefix: "", autoResubscribe: false });
  own.on("end", onLost);
  return own;
}

/** The one that was selected last. `duplicate()` goes to that of the options. */
function databaseOf(client: IoredisClient): number | undefined {
  return client.condition?.select ?? client.options.db;
}

async function openClient(client: IoredisClient, override: object = {}): Promise<IoredisClient> {
  const own = client.duplicate({
    db: databaseOf(client),
    lazyConnect: true,
    retryStrategy: null,
    // Asked once: who waits asks again.
    sentinelRetryStrategy: null,
    // These are meant for commands that are answered at once.
    commandTimeout: undefined,
    socketTimeout: undefined,
    // Without the second, commands in flight on a lost connection would never be answered at all.
    autoResendUnfulfilledCommands: false,
    maxRetriesPerRequest: 0,
    ...override,
  });
  // What goes wrong is told to who sends a command.
  own.on("error", () => {});
  try {
    await connect(own);
  } catch (error) {
    own.disconnect();
    throw error;
  }
  return own;
}

/** What of an ioredis client (`Redis`) is used. */
export interface IoredisClient {
  readonly status: string;
  readonly options: { readonly keyPrefix?: string | undefined };
  call(command: string, ...args: Argument[]): Promise<unknown>;
  duplicate(override?: object): IoredisClient;
  connect(): Promise<unknown>;
  disconnect(): void;
  quit(): Promise<unknown>;
  ping(): Promise<unknown>;
  subscribe(channel: string): Promise<unknown>;
  on(event: "error" | "close" | "end", listener: () => void): unknown;
  on(event: "messageBuffer", listener: (channel: Buffer, message: Buffer) => void): unknown;
}

/** What of a node-redis client (`createClient()`) is used. */
export interface NodeRedisClient {
  readonly isReady: boolean;
  readonly isOpen?: boolean | undefined;
  readonly options?: { readonly socket?: object } | undefined;
  sendCommand(command: readonly (string | Buffer)[]): Promise<unknown>;
  duplicate(override?: object): NodeRedisClient;
  connect(): Promise<unknown>;
  destroy(): void;
  close(): Promise<unknown>;
  ping(): Promise<unknown>;
  subscribe(channel: string, listener: (message: Buffer) => unknown, bufferMode: true): Promise<unknown>;
  on(event: "error" | "end" | "reconnecting", listener: () => void): unknown;
}

export type Client = IoredisClient | NodeRedisClient;

export type Argument = string | number | Buffer;

export type Command = readonly [name: string, ...args: Argument[]];

/** One connection, whichever library has made it. */
export interface Connection {
  readonly isOpen: boolean;
  /** The program has ended it, or the library will not make it again. */
  readonly hasEnded: boolean;
  /** Grows when the library may have sent again what was not answered yet, of which it tells nobody. */
  readonly resends: number;
  send(command: Command): Promise<unknown>;
  close(): void;
  /** Another one to the same server, for commands that block. Once it is lost it stays lost. */
  open(): Promise<Connection>;
  /** Another one to the same server, which listens to a channel. Once it is lost it stays lost, and `onLost` is called. */
  subscribe(channel: string, onMessage: (message: Buffer) => void, onLost: () => void): Promise<Subscription>;
  quit(): Promise<unknown>;
  onEnd(listener: () => void): void;
  /** The connection was lost. The library makes it again, perhaps to another server. */
  onReconnect(listener: () => void): void;
  /** The name of the resource's key: clients do not add their prefix to commands that they do not know. */
  key(resource: string): string;
}

/** A connection that listens to a channel. */
export interface Subscription {
  ping(): Promise<unknown>;
  close(): void;
}

const connections = new WeakMap<Client, Connection>();

/** The connection of a client: one, however many there are who use it. */
export function connectionOf(client: Client): Connection {
  let connection = connections.get(client);
  if (connection === undefined) connections.set(client, (connection = connect(client)));
  return connection;
}

function connect(client: Client): Connection {
  // One is ioredis's, the other node-redis's.
  if (("isCluster" in client && client.isCluster) || "masters" in client)
    throw new TypeError("Redlock does not know clusters yet: give it a client of the lock's node.");
  if ("call" in client) return new OfIoredis(client);
  // Pools and clients of sentinels send commands, too, but lack one of these.
  if ("isReady" in client && "duplicate" in client) return new OfNodeRedis(client);
  throw new TypeError("Redlock needs clients of ioredis (Redis) or of node-redis (createClient).");
}

class OfIoredis implements Connection {
  resends = 0;

  constructor(private readonly client: IoredisClient) {
    client.on("close", () => this.resends++);
  }

  get isOpen() {
    return this.client.status === "ready";
  }

  get hasEnded() {
    return this.client.status === "end";
  }

  send([name, ...args]: Command) {
    return this.client.call(name, ...args);
  }

  close() {
    this.client.disconnect();
  }

  async open() {
    return new OfIoredis(await this.#openClient());
  }

  async subscribe(channel: string, onMessage: (message: Buffer) => void, onLost: () => void) {
    // The prefix is for keys. Nothing is resubscribed on a connection that is not made again.
    const own = await this.#openClient({ keyPrefix: "", autoResubscribe: false });
    own.on("messageBuffer", (_, message) => onMessage(message));
    own.on("end", onLost);
    try {
      await own.subscribe(channel);
    } catch (error) {
      own.disconnect();
      throw error;
    }
    return { ping: () => own.ping(), close: () => own.disconnect() };
  }

  async #openClient(override: object = {}) {
    const own = this.client.duplicate({
      lazyConnect: true,
      retryStrategy: null,
      // These are meant for commands that are answered at once.
      commandTimeout: undefined,
      socketTimeout: undefined,
      // Without the second, commands in flight on a lost connection would never be answered at all.
      autoResendUnfulfilledCommands: false,
      maxRetriesPerRequest: 0,
      ...override,
    });
    own.on("error", ignore);
    await own.connect();
    return own;
  }

  quit() {
    return this.client.quit();
  }

  onEnd(listener: () => void) {
    this.client.on("end", listener);
  }

  onReconnect(listener: () => void) {
    this.client.on("close", listener);
  }

  key(resource: string) {
    return (this.client.options.keyPrefix ?? "") + resource;
  }
}

class OfNodeRedis implements Connection {
  /** It rejects what is not answered when the connection is lost. */
  readonly resends = 0;

  #wasEnded = false;

  constructor(private readonly client: NodeRedisClient) {
    client.on("end", () => (this.#wasEnded = true));
  }

  get isOpen() {
    return this.client.isReady;
  }

  get hasEnded() {
    return this.#wasEnded && !this.client.isOpen;
  }

  send(command: Command) {
    return this.client.sendCommand(command.map((arg) => (typeof arg === "number" ? String(arg) : arg)));
  }

  close() {
    this.client.destroy();
  }

  async open() {
    return new OfNodeRedis(await this.#openClient());
  }

  async subscribe(channel: string, onMessage: (message: Buffer) => void, onLost: () => void) {
    const own = await this.#openClient();
    let isLost = false;
    const lose = () => {
      if (isLost || own.isReady) return;
      isLost = true;
      onLost();
    };
    // A connection that is not made again ends with an error only.
    own.on("error", lose);
    own.on("end", lose);
    const close = () => {
      // It throws where nothing is left to close.
      if (own.isReady) own.destroy();
    };
    try {
      await own.subscribe(channel, onMessage, true);
    } catch (error) {
      close();
      throw error;
    }
    return { ping: () => own.ping(), close };
  }

  async #openClient() {
    const own = this.client.duplicate({
      // A ping would stand behind the BLOCK.
      pingInterval: undefined,
      socket: { ...this.client.options?.socket, reconnectStrategy: false, socketTimeout: undefined },
    });
    own.on("error", ignore);
    await own.connect();
    return own;
  }

  quit() {
    return this.client.close();
  }

  onEnd(listener: () => void) {
    this.client.on("end", listener);
  }

  onReconnect(listener: () => void) {
    this.client.on("reconnecting", listener);
  }

  key(resource: string) {
    return resource;
  }
}

/** What goes wrong on a connection is told to who sends a command on it. */
function ignore() {}

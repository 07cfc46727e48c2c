export type Argument = string | number | Buffer;

export type Command = readonly [name: string, ...args: Argument[]];

/** The user's client, whichever library has made it, and whether it has one server or a cluster. */
export interface Connection {
  readonly isOpen: boolean;
  /** The program has ended it, or the library will not make it again. */
  readonly hasEnded: boolean;
  readonly isCluster: boolean;
  /** Whether a connection to wait with is always of the database that the client has selected. */
  readonly knowsDatabase: boolean;
  /** Grows when the library may have sent again what was not answered yet, of which it tells nobody. */
  readonly resends: number;
  /** Sends a command to where this key is, as the library does: after redirections, if there are any. */
  send(command: Command, key: string): Promise<unknown>;
  /** Where the key is now, as far as the client knows. */
  node(key: string): Promise<Node>;
  quit(): Promise<unknown>;
  onEnd(listener: () => void): void;
  /** A connection was lost: in a cluster that to the node of this id. The library makes it again, perhaps to another server. */
  onReconnect(listener: (node?: string) => void): void;
  /** The name of the resource's key: clients do not add their prefix to commands that they do not know. */
  key(resource: string): string;
}

/** One server, as this client reaches it: for commands that wait, which follow no redirection. */
export interface Node {
  /** Of its address in a cluster. Elsewhere of its database, if that is known. */
  readonly id: string;
  /** Sends over the client's own connection. A redirection is an error. */
  send(command: Command): Promise<unknown>;
  /** Another connection to the same server, for commands that block. Once it is lost it stays lost. */
  open(): Promise<Dedicated>;
  /** Another connection, which listens to channels. Once it is lost, or one of its channels, `onLost` is called. */
  subscriber(onMessage: (message: Buffer) => void, onLost: () => void): Promise<Subscriber>;
}

/** A connection to wait with. */
export interface Dedicated {
  readonly isOpen: boolean;
  send(command: Command): Promise<unknown>;
  close(): void;
}

/** A connection that listens to channels: in a cluster to shard channels. */
export interface Subscriber {
  subscribe(channel: string): Promise<unknown>;
  ping(): Promise<unknown>;
  close(): void;
}

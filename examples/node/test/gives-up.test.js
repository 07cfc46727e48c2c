// A worker that gives up while it does not know whether it was granted: the reply is lost, and the server away for a while.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import net from "node:net";
import { it } from "node:test";
import { fileURLToPath } from "node:url";

const RUN = fileURLToPath(new URL("../run", import.meta.url));

/** What a client asks of a server before its first command, and LOCK.RELEASE. */
const ANSWERS = { CLIENT: "+OK", INFO: "$15\r\nredis_version:7", "LOCK.RELEASE": ":1" };

/** Grants, but never says so: the connections are cut, and no others taken for this long. */
class Server {
  /** @type {string[][]} */
  received = [];
  /** @type {Set<net.Socket>} */
  #sockets = new Set();

  constructor(/** @type {number} */ awayMs) {
    this.awayMs = awayMs;
    this.listener = net.createServer((socket) => {
      this.#sockets.add(socket);
      socket.on("error", () => {}).on("close", () => this.#sockets.delete(socket));
      socket.on("data", (data) => commandsIn(data).forEach((command) => this.#answer(socket, command)));
    });
  }

  async listen(port = 0) {
    await once(this.listener.listen(port, "127.0.0.1"), "listening");
    return /** @type {net.AddressInfo} */ (this.listener.address()).port;
  }

  /** No connection is left, and none can be made. */
  close() {
    this.listener.close();
    for (const socket of this.#sockets) socket.destroy();
  }

  #answer(/** @type {net.Socket} */ socket, /** @type {string[]} */ command) {
    const name = command[0].toUpperCase();
    if (name.startsWith("LOCK.")) this.received.push(command);
    if (name !== "LOCK.ACQUIRE") {
      const answer = ANSWERS[/** @type {keyof typeof ANSWERS} */ (name)] ?? "-ERR unknown command";
      return socket.write(`${answer}\r\n`);
    }
    const { port } = /** @type {net.AddressInfo} */ (this.listener.address());
    this.close();
    if (this.awayMs < Infinity) setTimeout(() => this.listen(port), this.awayMs);
  }
}

/** As clients send them: lists of strings, a write at a time. */
function commandsIn(/** @type {Buffer} */ data) {
  const lists = data.toString().split(/^\*\d+\r\n/m);
  return lists.slice(1).map((list) => list.split("\r\n").filter((_, i) => i % 2 === 1));
}

async function work(
  /** @type {string} */ library,
  /** @type {number} */ port,
  /** @type {string} */ options,
) {
  const url = `redis://127.0.0.1:${port}`;
  const worker = spawn(RUN, [library, "--url", url, "--lock", "a", "--token", "T", ...options.split(" ")]);
  let said = "";
  worker.stdout.on("data", (data) => (said += data));
  const [status] = await once(worker, "close");
  return { said, status };
}

for (const library of ["ioredis", "node-redis"]) {
  it(`${library}: gives back what it may have been granted`, { timeout: 30_000 }, async () => {
    const server = new Server(1500);
    try {
      const ended = await work(library, await server.listen(), "--ttl 60000 --block 400");
      assert.deepEqual(ended, { said: "gave-up\n", status: 2 });
      assert.deepEqual(
        server.received.map(([name, ...args]) => [name, ...args.slice(0, 2)]),
        [
          ["LOCK.ACQUIRE", "a", "T"],
          ["LOCK.RELEASE", "a", "T"],
        ],
      );
    } finally {
      server.close();
    }
  });

  it(`${library}: does not wait for ever to give it back`, { timeout: 30_000 }, async () => {
    const server = new Server(Infinity);
    const start = performance.now();
    const ended = await work(library, await server.listen(), "--ttl 60000 --block 400");
    const took = performance.now() - start;
    assert.deepEqual(ended, { said: "gave-up\n", status: 2 });
    assert.ok(took > 5000 && took < 25_000, `${took} ms`);
  });
}

// Works under a lock: see README.md. The story is in worker.js, what the two clients need in ioredis.js and node-redis.js.
import { randomUUID } from "node:crypto";
import { parseArgs } from "node:util";
import * as ioredis from "./ioredis.js";
import * as nodeRedis from "./node-redis.js";
import { Worker } from "./worker.js";

const clients = { ioredis, "node-redis": nodeRedis };

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    url: { type: "string", default: "redis://127.0.0.1:6379" },
    lock: { type: "string", default: "lock:stock" },
    resource: { type: "string", default: "stock" },
    ttl: { type: "string", default: "3000" },
    block: { type: "string", default: "10000" },
    writes: { type: "string", default: "10" },
    pause: { type: "string", default: "500" },
    shared: { type: "boolean", default: false },
    token: { type: "string", default: randomUUID() },
  },
});
const client = clients[/** @type {keyof clients} */ (positionals[0])];
if (!client) throw new Error("usage: run ioredis|node-redis [--url …] [--lock KEY] …");

const worker = new Worker({
  ...values,
  ttl: Number(values.ttl),
  block: Number(values.block),
  writes: Number(values.writes),
  pause: Number(values.pause),
});
process.exitCode = await worker.run(client);

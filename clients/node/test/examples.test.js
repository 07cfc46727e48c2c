// The recipes for frameworks, with the frameworks.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { after, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { Redlock } from "redis-lock-client";
import { Server, until, Redis } from "./harness.js";

const run = promisify(execFile);
const folder = fileURLToPath(new URL("../examples", import.meta.url));
// `make matrix` has none.
const skip = !existsSync(join(folder, "node_modules"));

const server = await Server.start();
after(server.stop);

it("BullMQ runs jobs about one thing one after the other", { skip, timeout: 120_000 }, async () => {
  const { Queue, Worker } = createRequire(join(folder, "package.json"))("bullmq");
  const { locked } = await import("../examples/bullmq/locked.js");
  const connection = { host: "127.0.0.1", port: server.port, maxRetriesPerRequest: null };
  const client = new Redis(server.port, { commandTimeout: 2000 });
  const inside = new Set();
  let [atOnce, delayed] = [0, 0];
  const process = async ({ data: { customer }, attemptsStarted }, signal, lock) => {
    assert.ok(!inside.has(customer), "one of a customer at a time");
    inside.add(customer);
    // Those that were delayed begin once more.
    delayed += attemptsStarted > 1 ? 1 : 0;
    atOnce = Math.max(atOnce, inside.size);
    await sleep(300);
    inside.delete(customer);
    signal.throwIfAborted();
    return lock.fence;
  };
  // Less than a job takes, and enough to open a connection on a busy machine.
  const times = { waitMs: 200, delayMs: 30 };
  const resourceOf = ({ data }) => `customer:${data.customer}`;
  const processor = locked(new Redlock([client]), resourceOf, process, times);
  const workers = [1, 2].map(() => new Worker("invoices", processor, { connection, concurrency: 4 }));
  const [fences, failures] = [[[], [], []], []];
  for (const worker of workers) {
    worker.on("completed", (job, fence) => fences[job.data.customer].push(fence));
    worker.on("failed", (job, error) => failures.push(error));
    worker.on("error", () => {});
  }
  const queue = new Queue("invoices", { connection });
  const jobs = Array.from({ length: 12 }, (_, i) => ({ name: "invoice", data: { customer: i % 3 } }));
  await queue.addBulk(jobs);
  await until(() => fences.flat().length + failures.length === jobs.length, "all jobs are done", 60_000);
  await Promise.all([...workers, queue].map((one) => one.close()));
  client.disconnect();
  assert.deepEqual(failures, []);
  assert.ok(atOnce > 1, "those of different customers run at the same time");
  assert.ok(delayed > 0, "a job that waits too long makes room");
  for (const some of fences) assert.equal(new Set(some).size, 4);
});

it("NestJS injects the Redlock, locks methods, and quits with it", { skip, timeout: 300_000 }, async () => {
  const tsc = fileURLToPath(new URL("../node_modules/typescript/bin/tsc", import.meta.url));
  await run("node", [tsc, "-p", join(folder, "nestjs")]).catch(({ stdout }) => assert.fail(stdout));
  const env = { ...process.env, REDIS_URL: `redis://127.0.0.1:${server.port}` };
  const app = join(folder, "nestjs/dist/app.js");
  const { stdout, stderr } = await run("node", [app], { env, timeout: 120_000 });
  assert.equal(stderr, "");
  const { most, metadata, name } = JSON.parse(stdout);
  assert.deepEqual([most, metadata, name], [1, ["above", "below"], "sell"]);
  assert.deepEqual(await server.clients(), [], "it has closed its connections");
  assert.deepEqual(await server.admin.keys("stock:*"), []);
});

// The recipes for frameworks, with the frameworks.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { Redlock } from "redis-lock-client";
import { Server, until, Redis } from "./harness.js";

const run = promisify(execFile);
const folder = fileURLToPath(new URL("../examples", import.meta.url));
// `make matrix` has none.
const skip = !existsSync(join(folder, "node_modules"));

let server;
before(async () => (server = await Server.start()));
after(() => server?.stop());

describe("BullMQ", { skip }, () => {
  it(
    "runs jobs about one thing one after the other, and others meanwhile",
    { timeout: 120_000 },
    async () => {
      const { Queue, Worker } = createRequire(join(folder, "package.json"))("bullmq");
      const { locked } = await import("../examples/bullmq/locked.js");
      const connection = { host: "127.0.0.1", port: server.port, maxRetriesPerRequest: null };
      const client = new Redis(server.port, { commandTimeout: 2000 });
      const redlock = new Redlock([client]);
      const inside = new Map();
      let [atOnce, delayed] = [0, 0];
      const process = async ({ data: { customer }, attemptsStarted }, signal, lock) => {
        inside.set(customer, (inside.get(customer) ?? 0) + 1);
        assert.equal(inside.get(customer), 1, "one of a customer at a time");
        // Those that were delayed begin once more.
        delayed += attemptsStarted > 1 ? 1 : 0;
        atOnce = Math.max(
          atOnce,
          [...inside.values()].reduce((sum, n) => sum + n),
        );
        await sleep(300);
        inside.set(customer, inside.get(customer) - 1);
        signal.throwIfAborted();
        return lock.fence;
      };
      const processor = locked(redlock, ({ data }) => `customer:${data.customer}`, process, {
        waitMs: 200, // Less than a job takes, and enough to open a connection on a busy machine.
        delayMs: 30,
      });
      const workers = [1, 2].map(() => new Worker("invoices", processor, { connection, concurrency: 4 }));
      const [results, failures] = [[], []];
      for (const worker of workers) {
        worker.on("completed", (job, fence) => results.push([job.data.customer, fence]));
        worker.on("failed", (job, error) => failures.push(error));
        worker.on("error", () => {});
      }
      const queue = new Queue("invoices", { connection });
      const jobs = Array.from({ length: 12 }, (_, i) => ({ name: "invoice", data: { customer: i % 3 } }));
      await queue.addBulk(jobs);
      await until(() => results.length + failures.length === jobs.length, "all jobs are done", 60_000);
      await Promise.all([...workers, queue].map((one) => one.close()));
      client.disconnect();
      assert.deepEqual(failures, []);
      assert.ok(atOnce > 1, "those of different customers run at the same time");
      assert.ok(delayed > 0, "a job that waits too long makes room");
      for (const customer of [0, 1, 2]) {
        const fences = results.filter(([of]) => of === customer).map(([, fence]) => fence);
        assert.deepEqual(
          fences,
          fences.toSorted((a, b) => a - b),
        );
        assert.equal(new Set(fences).size, 4);
      }
    },
  );
});

describe("NestJS", { skip }, () => {
  it(
    "injects the Redlock, runs methods under locks, and quits with the application",
    { timeout: 300_000 },
    async () => {
      const tsc = fileURLToPath(new URL("../node_modules/typescript/bin/tsc", import.meta.url));
      await run("node", [tsc, "-p", join(folder, "nestjs")]).catch(({ stdout }) => assert.fail(stdout));
      const env = { ...process.env, REDIS_URL: server.url };
      const { stdout, stderr } = await run("node", [join(folder, "nestjs/dist/app.js")], {
        env,
        timeout: 120_000,
      });
      assert.equal(stderr, "");
      const { most, fences, metadata, name } = JSON.parse(stdout);
      assert.equal(most, 1);
      assert.ok(fences[1] > fences[0]);
      assert.deepEqual([metadata, name], [["above", "below"], "sell"]);
      assert.deepEqual(await server.clients(), [], "it has closed its connections");
      assert.deepEqual(await server.admin.keys("stock:*"), []);
    },
  );
});

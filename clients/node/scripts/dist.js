// Packs the package, checks it, installs it in a clean folder, and takes a lock with it on a real server. It uploads nothing.
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { Server } from "../test/harness.js";

const folder = fileURLToPath(new URL("..", import.meta.url));
const target = join(folder, "target/dist");
const { devDependencies } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));

const run = (command, args, cwd, options = {}) =>
  execFileSync(command, args, { cwd, encoding: "utf8", stdio: ["ignore", "pipe", "inherit"], ...options });

rmSync(target, { recursive: true, force: true });
mkdirSync(target, { recursive: true });
const text = run("npm", ["pack", "--json", "--silent", "--pack-destination", target], folder);
const [packed] = JSON.parse(text.slice(text.indexOf("[")));
const file = join(target, packed.filename);

const wanted = ["README.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE", "package.json"];
const missing = wanted.filter((name) => !packed.files.some(({ path }) => path === name));
if (missing.length > 0) throw new Error(`not in the package: ${missing}`);
process.stdout.write(run("npx", ["--no-install", "publint", "run", file, "--strict"], folder));

const app = mkdtempSync(join(tmpdir(), "redis-lock-client-"));
const server = await Server.start();
try {
  writeFileSync(join(app, "package.json"), '{ "private": true }');
  for (const library of ["ioredis", "iovalkey", "redis"]) {
    const packages = [file, `${library}@${devDependencies[library]}`];
    run("npm", ["install", "--silent", "--no-audit", "--no-fund", "--prefer-offline", ...packages], app);
  }
  const env = { ...process.env, PORT: server.port };
  const body = `
    const client = new Redis(Number(process.env.PORT));
    new Redlock([client]).using(["stock:7"], 5000, async (signal, lock) => lock.fence).then((fence) => {
      console.log("a lock with fence " + fence);
      client.disconnect();
    });`;
  for (const [kind, imports] of [
    ["commonjs", 'const { Redlock } = require("redis-lock-client"); const { Redis } = require("ioredis");'],
    ["module", 'import { Redlock } from "redis-lock-client"; import { Redis } from "iovalkey";'],
  ]) {
    const words = [`--input-type=${kind}`, "-e", imports + body];
    process.stdout.write(run("node", words, app, { env, timeout: 20_000 }));
  }
  // With nothing else that could declare `Symbol.asyncDispose`, and with the declarations of the package checked.
  const types = `import type { Redlock } from "redis-lock-client";
    export async function work(redlock: Redlock): Promise<number> {
      await using lock = await redlock.acquire(["a"], 1000);
      return lock.fence;
    }`;
  writeFileSync(join(app, "app.mts"), types);
  const modern = ["--strict", "--noEmit", "--target", "es2022", "--module", "nodenext", "--lib", "es2022"];
  const roots = ["--typeRoots", join(folder, "node_modules/@types"), "--types", "node"];
  run("node", [join(folder, "node_modules/typescript/bin/tsc"), ...modern, ...roots, "app.mts"], app);
} finally {
  await server.stop();
  rmSync(app, { recursive: true, force: true });
}

console.log(
  `${packed.name} ${packed.version}: ${packed.files.length} files, ${packed.size} bytes, ${packed.integrity}`,
);

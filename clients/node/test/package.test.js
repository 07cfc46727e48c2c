// What a user gets who installs the folder as it is in the repository, where nothing is built, and the README's code for tests.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { once } from "node:events";
import { copyFileSync, cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import net from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { it } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const run = promisify(execFile);
const folder = fileURLToPath(new URL("..", import.meta.url));
// `make matrix` runs a copy of the tests beside an installed package.
const skip = JSON.parse(readFileSync(join(folder, "package.json"), "utf8")).name !== "redis-lock-client";

it("is installed from the folder, with its code", { skip, timeout: 240_000 }, async (t) => {
  const dir = mkdtempSync(join(tmpdir(), "redis-lock-client-"));
  t.after(() => rmSync(dir, { recursive: true, force: true }));
  const [clean, cwd] = [join(dir, "repository/clients/node"), join(dir, "app")];
  mkdirSync(clean, { recursive: true });
  mkdirSync(cwd);
  const left = ["node_modules", "dist", "target", "examples", "LICENSE-MIT", "LICENSE-APACHE"];
  const filter = (path) => !left.some((name) => path === join(folder, name));
  cpSync(folder, clean, { recursive: true, filter });
  for (const name of ["LICENSE-MIT", "LICENSE-APACHE"])
    copyFileSync(join(folder, "../..", name), join(dir, "repository", name));
  writeFileSync(join(cwd, "package.json"), '{ "private": true }');
  const words = ["install", "--no-audit", "--no-fund", "--silent", "--prefer-offline", clean];
  await run("npm", words, { cwd });
  for (const [kind, code] of [
    ["commonjs", 'const { Redlock, Lock } = require("redis-lock-client");'],
    ["module", 'import Redlock, { Lock } from "redis-lock-client";'],
  ]) {
    const script = `${code} console.log(typeof Redlock, typeof Lock)`;
    const { stdout } = await run("node", [`--input-type=${kind}`, "-e", script], { cwd });
    assert.equal(stdout, "function function\n");
  }
});

const IMPORTS = `import { spawn } from "node:child_process";
import { after, it } from "node:test";
import { Redis } from "ioredis";
import { Redlock } from "redis-lock-client";
`;

it("the README's test of an application, on a free port", { skip, timeout: 60_000 }, async (t) => {
  const [, code] = /test my code\?.*?```js\n(.*?)```/s.exec(readFileSync(join(folder, "README.md"), "utf8"));
  const free = net.createServer().listen(0, "127.0.0.1");
  await once(free, "listening");
  const { port } = free.address();
  free.close();
  // Below the package, which finds itself by its name.
  const cwd = join(folder, `target/readme-${port}`);
  mkdirSync(cwd, { recursive: true });
  t.after(() => rmSync(cwd, { recursive: true }));
  writeFileSync(join(cwd, "app.test.js"), IMPORTS + code.replaceAll("7777", port));
  const { NODE_TEST_CONTEXT, REDIS_LOCK_SERVERS, REDIS_LOCK_SERVER = "redis-7.0.15", ...env } = process.env;
  env.REDIS_SERVER = join(REDIS_LOCK_SERVERS, REDIS_LOCK_SERVER, "bin/server");
  const { stdout } = await run(process.execPath, ["--test", "--test-reporter=tap"], { cwd, env });
  assert.match(stdout, /^# pass 1$/m);
});

// What a user gets who installs the folder as it is in the repository: nothing is built there.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { copyFileSync, cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { it } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const folder = fileURLToPath(new URL("..", import.meta.url));
// `make matrix` runs a copy of the tests beside an installed package.
const isHere = JSON.parse(readFileSync(join(folder, "package.json"), "utf8")).name === "redis-lock-client";

it("is installed from the folder, with its code", { skip: !isHere, timeout: 240_000 }, async (t) => {
  const dir = mkdtempSync(join(tmpdir(), "redis-lock-client-"));
  t.after(() => rmSync(dir, { recursive: true, force: true }));
  const [clean, app] = [join(dir, "repository/clients/node"), join(dir, "app")];
  mkdirSync(clean, { recursive: true });
  mkdirSync(app);
  const left = ["node_modules", "dist", "target", "examples", "LICENSE-MIT", "LICENSE-APACHE"];
  const filter = (path) => !left.some((name) => path === join(folder, name));
  cpSync(folder, clean, { recursive: true, filter });
  for (const name of ["LICENSE-MIT", "LICENSE-APACHE"])
    copyFileSync(join(folder, "../..", name), join(dir, "repository", name));
  writeFileSync(join(app, "package.json"), '{ "private": true }');
  const run = async (...command) => (await promisify(execFile)(...command, { cwd: app })).stdout;
  await run("npm", ["install", "--no-audit", "--no-fund", "--silent", "--prefer-offline", clean]);
  const commonjs = 'const { Redlock } = require("redis-lock-client"); console.log(typeof Redlock)';
  const modules =
    'import Redlock, { Lock } from "redis-lock-client"; console.log(typeof Redlock, typeof Lock)';
  assert.equal(await run("node", ["-e", commonjs]), "function\n");
  assert.equal(await run("node", ["--input-type=module", "-e", modules]), "function function\n");
});

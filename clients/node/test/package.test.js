// What a user installs: the folder as it is in the repository, and the packed file.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { copyFileSync, cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, it } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const run = promisify(execFile);
const folder = fileURLToPath(new URL("..", import.meta.url));
const root = join(folder, "../..");
// `make matrix` runs a copy of the tests beside an installed package.
const isHere = JSON.parse(readFileSync(join(folder, "package.json"), "utf8")).name === "redis-lock-client";

let dir, clean;
before(() => {
  if (!isHere) return;
  dir = mkdtempSync(join(tmpdir(), "redis-lock-client-"));
  // As it comes from the repository: nothing is built, nothing installed.
  clean = join(dir, "repository/clients/node");
  mkdirSync(clean, { recursive: true });
  const left = ["node_modules", "dist", "target", "examples", "LICENSE-MIT", "LICENSE-APACHE"];
  cpSync(folder, clean, {
    recursive: true,
    filter: (path) => !left.some((name) => path === join(folder, name)),
  });
  for (const name of ["LICENSE-MIT", "LICENSE-APACHE"])
    copyFileSync(join(root, name), join(dir, "repository", name));
});
after(() => dir && rmSync(dir, { recursive: true, force: true }));

/** A project with nothing but what is named. */
async function project(name, ...packages) {
  const app = join(dir, name);
  mkdirSync(app);
  writeFileSync(join(app, "package.json"), '{ "private": true }');
  await run("npm", ["install", "--no-audit", "--no-fund", "--silent", "--prefer-offline", ...packages], {
    cwd: app,
  });
  return app;
}

const loads = async (app) => {
  const commonjs = 'const { Redlock } = require("redis-lock-client"); console.log(typeof Redlock)';
  const modules =
    'import Redlock, { Lock } from "redis-lock-client"; console.log(typeof Redlock, typeof Lock)';
  assert.equal((await run("node", ["-e", commonjs], { cwd: app })).stdout, "function\n");
  const asModule = ["--input-type=module", "-e", modules];
  assert.equal((await run("node", asModule, { cwd: app })).stdout, "function function\n");
};

it("is installed from the folder, with its code", { skip: !isHere, timeout: 240_000 }, async () => {
  const app = await project("from-folder", clean);
  await loads(app);
});

it(
  "is installed from the packed file, with its code, licences and types",
  { skip: !isHere, timeout: 120_000 },
  async () => {
    // It was built when the folder was installed. `make dist` packs it with all that npm runs before.
    const pack = ["pack", "--json", "--ignore-scripts", "--pack-destination", dir];
    const { stdout } = await run("npm", pack, { cwd: clean });
    const [{ filename, files }] = JSON.parse(stdout.slice(stdout.indexOf("[")));
    const paths = files.map(({ path }) => path);
    for (const path of [
      "LICENSE-MIT",
      "LICENSE-APACHE",
      "README.md",
      "CHANGELOG.md",
      "dist/esm/index.js",
      "dist/cjs/index.d.ts",
    ])
      assert.ok(paths.includes(path), `${path} is in ${paths}`);
    assert.deepEqual(
      paths.filter((path) => /^(src|test|scripts|node_modules|target)\//.test(path)),
      [],
    );
    const app = await project("from-file", join(dir, filename));
    await loads(app);

    // With nothing else that could declare `Symbol.asyncDispose`, and with the declarations of the package checked.
    writeFileSync(
      join(app, "app.mts"),
      `import type { Redlock } from "redis-lock-client";
     export async function work(redlock: Redlock): Promise<number> {
       await using lock = await redlock.acquire(["a"], 1000);
       return lock.fence;
     }
     // @ts-expect-error a single resource is a list, too
     export const wrong = (redlock: Redlock) => redlock.acquire("a", 1000);`,
    );
    const options = ["--strict", "--noEmit", "--target", "es2022", "--module", "nodenext", "--lib", "es2022"];
    const types = ["--typeRoots", join(folder, "node_modules/@types"), "--types", "node"];
    const tsc = join(folder, "node_modules/typescript/bin/tsc");
    await run("node", [tsc, ...options, ...types, "app.mts"], { cwd: app }).catch(({ stdout }) =>
      assert.fail(stdout),
    );
  },
);

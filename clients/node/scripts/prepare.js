// What npm runs before it packs this folder, and when a project installs the folder. In that case nobody has installed the compiler.
import { execSync } from "node:child_process";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";

const folder = fileURLToPath(new URL("..", import.meta.url));
// npm tells its children of the installation that it is busy with, and that may be a global one, or one without compilers.
const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !/^npm_config_/i.test(name)));
const run = (command) => execSync(command, { cwd: folder, stdio: ["ignore", 2, 2], env });

if (!existsSync(new URL("../node_modules/typescript", import.meta.url)))
  run("npm ci --ignore-scripts --silent --include=dev --prefer-offline");
run("npm run --silent build");

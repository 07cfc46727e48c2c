// Parses each Mermaid block of the documents that are given: node check.js FILE…
import { readFileSync } from "node:fs";
import { JSDOM } from "jsdom";

// Mermaid cleans texts by the document of a browser, also when it draws nothing.
globalThis.window = new JSDOM("").window;
globalThis.document = window.document;
const { default: mermaid } = await import("mermaid");

let seen = 0;
let failed = 0;
for (const file of process.argv.slice(2)) {
  const text = readFileSync(file, "utf8");
  for (const block of text.matchAll(/^```mermaid\n(.*?)^```$/gms)) {
    seen += 1;
    try {
      await mermaid.parse(block[1]);
    } catch (error) {
      failed += 1;
      const line = text.slice(0, block.index).split("\n").length;
      console.error(`${file}:${line}: ${error.message}`);
    }
  }
}
if (seen === 0) {
  console.error("mermaid: no diagram was found");
  failed += 1;
}
if (failed > 0) process.exit(1);
console.log(`mermaid: ${seen} diagrams can be drawn`);

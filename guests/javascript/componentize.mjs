// Makes a component of one JavaScript file: `node componentize.mjs AGENT.js WIT-FOLDER OUT.wasm`. NODE_TOOLS is the folder into which
// npm installed @bytecodealliance/componentize-js.
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [sourcePath, witPath, out] = process.argv.slice(2);
const home = join(process.env.NODE_TOOLS, "node_modules/@bytecodealliance/componentize-js");
const { exports } = JSON.parse(await readFile(join(home, "package.json"), "utf8"));
const { componentize } = await import(pathToFileURL(join(home, exports.import)));
const { component } = await componentize({ sourcePath, witPath, worldName: "landfall:agent/agent" });
await writeFile(out, component);

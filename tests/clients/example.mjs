// Runs all tests of the programs that are named, as an editor would: node example.mjs build/unit_tests
import { spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:net";
import rpc from "vscode-jsonrpc/node"; // npm install vscode-jsonrpc

// The client listens, Heeler dials.
const listener = createServer().listen(0, "127.0.0.1");
await once(listener, "listening");
const words = [...process.argv.slice(2), "--server", "--client-port", String(listener.address().port)];
const heeler = spawn(process.env.HEELER ?? "heeler", words, { stdio: ["ignore", "ignore", "inherit"] });
const left = once(heeler, "exit");
const early = left.then(([code]) => { throw new Error(`heeler left with code ${code} before it dialled`); });
const [socket] = await Promise.race([once(listener, "connection"), early]);
early.catch(() => {}); // From now on its end is in order.
listener.close();

const server = rpc.createMessageConnection(new rpc.SocketMessageReader(socket), new rpc.SocketMessageWriter(socket));
const runId = randomUUID();
const tests = new Map();
const completed = new Promise((resolve) => {
  server.onNotification("testing/testUpdates/tests", (params) => {
    if (params.runId !== runId) return;
    if (params.changes === null) return resolve(); // Nothing more of this run comes.
    // A group has no state; it comes before what names it as `parent`.
    for (const { node } of params.changes) if (node["node-type"] === "action") tests.set(node.uid, node);
  });
});
server.onNotification("client/log", ({ level, message }) => console.error(`${level}: ${message}`));
server.listen();

const clientInfo = { name: "example", version: "1.0.0" };
const capabilities = { testing: { debuggerProvider: false } };
await server.sendRequest("initialize", { processId: process.pid, clientInfo, capabilities });
// With a cancellation token as third argument the run can be cancelled; with `tests: [{ uid }, …]` it is a selection.
await server.sendRequest("testing/runTests", { runId });
await completed;
for (const node of tests.values()) {
  console.log(`${node["execution-state"].padEnd(10)} ${node.uid} ${node["error.message"] ?? ""}`.trimEnd());
}
await server.sendNotification("exit", {});
await left;

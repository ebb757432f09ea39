// Runs all tests; each worker of Heeler dials this client: node callback_example.mjs build/unit_tests
import { spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:net";
import rpc from "vscode-jsonrpc/node"; // npm install vscode-jsonrpc

const [runId, tests, files] = [randomUUID(), new Map(), new Set()];
let complete;
const completed = new Promise((resolve) => { complete = resolve; });
const handle = (method, params) => {
  if (method === "testing/testUpdates/tests" && params.runId === runId) {
    if (params.changes === null) complete(); // Nothing more of this run comes, on any connection.
    for (const { node } of params.changes ?? []) if (node["node-type"] === "action") tests.set(node.uid, node);
  } else if (method === "testing/testUpdates/attachments") params.attachments?.forEach(({ uri }) => files.add(uri));
  else if (method === "client/log") console.error(`${params.level}: ${params.message}`);
  return null; // The answer to a request says that everything before it has been handled.
};
const connect = (socket) => { // Every connection is handled in the same way, and left open.
  const peer = rpc.createMessageConnection(new rpc.SocketMessageReader(socket), new rpc.SocketMessageWriter(socket));
  peer.onNotification(handle);
  peer.onRequest(handle); // Updates come as requests as well.
  peer.listen();
  return peer;
};
const [main, callback] = [createServer(), createServer(connect)];
for (const listener of [main, callback]) await once(listener.listen(0, "127.0.0.1"), "listening");
const words = [...process.argv.slice(2), "--server", "--client-port", String(main.address().port)];
const heeler = spawn(process.env.HEELER ?? "heeler", words, { stdio: ["ignore", "ignore", "inherit"] });
const server = connect((await once(main, "connection"))[0]);
const [clientInfo, callbackProvider] = [{ name: "example", version: "1.0.0" }, { port: callback.address().port }];
const testing = { debuggerProvider: false, attachmentsSupport: true, callbackProvider };
await server.sendRequest("initialize", { processId: process.pid, clientInfo, capabilities: { testing } });
await server.sendRequest("testing/runTests", { runId });
await completed;
for (const node of tests.values()) console.log(`${node["execution-state"].padEnd(10)} ${node.uid}`);
console.log(`${files.size} files`);
await server.sendNotification("exit", {});
await once(heeler, "exit");
for (const listener of [main, callback]) listener.close();

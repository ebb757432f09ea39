// Runs all tests; each worker of Heeler dials this client: node callback_example.mjs build/unit_tests
import { spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:net";
import rpc from "vscode-jsonrpc/node"; // npm install vscode-jsonrpc

const [runId, tests, files] = [randomUUID(), new Map(), new Set()];
let complete;
const completed = new Promise((resolve) => { complete = resolve; });

const connect = (socket) => { // Every connection is handled in the same way.
  const reader = new rpc.SocketMessageReader(socket), writer = new rpc.SocketMessageWriter(socket);
  const connection = rpc.createMessageConnection(reader, writer);
  const handlers = {
    "testing/testUpdates/tests": (params) => {
      if (params.runId !== runId) return;
      if (params.changes === null) complete(); // Nothing more of this run comes, on any connection.
      for (const { node } of params.changes ?? []) if (node["node-type"] === "action") tests.set(node.uid, node);
    },
    "testing/testUpdates/attachments": ({ attachments }) => attachments?.forEach(({ uri }) => files.add(uri)),
    "client/log": ({ level, message }) => console.error(`${level}: ${message}`),
    "telemetry/update": () => {},
  };
  for (const [method, handle] of Object.entries(handlers)) {
    connection.onNotification(method, handle);
    // As a request it asks whether everything before it has been handled.
    connection.onRequest(method, (params) => { handle(params); return null; });
  }
  connection.listen();
  return connection;
};
const listen = async (onConnection) => {
  const server = createServer(onConnection).listen(0, "127.0.0.1");
  await once(server, "listening");
  return server;
};
const [main, callback] = [await listen(), await listen(connect)];
const words = [...process.argv.slice(2), "--server", "--client-port", String(main.address().port)];
const heeler = spawn(process.env.HEELER ?? "heeler", words, { stdio: ["ignore", "ignore", "inherit"] });
const server = connect((await once(main, "connection"))[0]);
main.close();
const testing = { debuggerProvider: false, attachmentsSupport: true, callbackProvider: { port: callback.address().port } };
const clientInfo = { name: "callback example", version: "1.0.0" };
await server.sendRequest("initialize", { processId: process.pid, clientInfo, capabilities: { testing } });
await server.sendRequest("testing/runTests", { runId });
await completed;
for (const node of tests.values()) console.log(`${node["execution-state"].padEnd(10)} ${node.uid}`);
console.log(`${files.size} files`);
await server.sendNotification("exit", {});
await once(heeler, "exit");
callback.close();

// Starts each suite of the programs that are named, one after the other: node rsp_example.mjs build/unit_tests
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import rsp from "rsp-client"; // npm install rsp-client

const words = ["serve", "rsp", ...process.argv.slice(2)];
const heeler = spawn(process.env.HEELER ?? "heeler", words, { stdio: ["ignore", "ignore", "pipe"] });
const left = once(heeler, "exit");
const [line] = await once(createInterface({ input: heeler.stderr }), "line");
const client = new rsp.RSPClient("127.0.0.1", Number(line.split(":").at(-1)));
await client.connect();

const suites = client.getOutgoingHandler();
const events = client.getIncomingHandler();
events.onServerProcessOutputAppended(({ text }) => process.stderr.write(text));
for (const { id, type } of await suites.getServerHandles()) {
  const stopped = new Promise((resolve) => {
    events.onServerStateChanged(({ server, state }) => { if (server.id === id && state === 4) resolve(); });
  });
  // A filter, the number of jobs, or the failed tests of the latest run: attributes: { rerun: "failed" }
  await suites.startServerAsync({ mode: "run", params: { serverType: type.id, id, attributes: {} } });
  await stopped;
}
client.shutdownServer();
await left;

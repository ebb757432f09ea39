// A client of the Mutation Server Protocol 0.0.1-alpha.1, written from its specification on `ws` and `json-rpc-2.0`:
// node mutation_alpha.mjs SCENARIO PORT
import assert from "node:assert/strict";
import rpc from "json-rpc-2.0";
import WebSocket from "ws";

const [scenario, port] = process.argv.slice(2);
const VERSION = "0.0.1-alpha.1";

/** Connects to `localhost`, like an editor's client. */
async function connect() {
  const socket = new WebSocket(`ws://localhost:${port}`);
  await new Promise((resolve, reject) => {
    socket.on("open", resolve);
    socket.on("error", reject);
  });
  const order = [];
  const peer = new rpc.JSONRPCServerAndClient(
    new rpc.JSONRPCServer(),
    new rpc.JSONRPCClient((request) => socket.send(JSON.stringify(request))),
  );
  peer.addMethod("progress", (params) => {
    order.push(params);
  });
  socket.on("message", (data, isBinary) => {
    assert.equal(isBinary, false);
    peer.receiveAndSend(JSON.parse(data.toString()));
  });
  return { socket, peer, order, request: (method, params) => peer.request(method, params) };
}

const initialize = (client, version = VERSION) => client.request("initialize", { clientInfo: { version } });

/** Returns the error code of a request's response. */
async function codeOf(answer) {
  try {
    await answer;
  } catch (error) {
    return error.code;
  }
  assert.fail("expected an error");
}

const isMutant = (mutant) => {
  assert.match(mutant.fileName, /^\//);
  assert.ok(mutant.id && typeof mutant.id === "string");
  assert.equal(typeof mutant.replacement, "string");
  assert.equal(typeof mutant.mutatorName, "string");
  for (const end of [mutant.location.start, mutant.location.end]) assert.ok(end.line >= 1 && end.column >= 1);
  const statuses = "Killed Survived NoCoverage CompileError RuntimeError Timeout Ignored Pending".split(" ");
  assert.ok(statuses.includes(mutant.status));
};

const scenarios = {
  async lists_and_tests() {
    const client = await connect();
    const { serverInfo, capabilities } = await initialize(client);
    assert.equal(serverInfo.version, VERSION);
    // Editors do not mutate without this capability.
    assert.equal(capabilities.mutationTestProvider.partialResults, true);
    assert.ok(capabilities.instrumentationProvider);
    const found = await client.request("instrument", { globPatterns: ["src"] });
    found.forEach(isMutant);
    assert.deepEqual(new Set(found.map((one) => one.status)), new Set(["Pending"]));
    const partialResultToken = "5f6f349e-4f81-4a3b-afff-ee04bff96804";
    const result = await client.request("mutate", { globPatterns: ["src"], partialResultToken });
    assert.deepEqual(result, []);
    assert.ok(client.order.every((progress) => progress.token === partialResultToken));
    const tested = client.order.flatMap((progress) => progress.value);
    tested.forEach(isMutant);
    assert.deepEqual(tested.map((one) => one.id).sort(), found.map((one) => one.id).sort());
    const whole = await client.request("mutate", { globPatterns: ["src"] });
    assert.deepEqual(whole, tested);
    client.socket.close();
  },

  async errors() {
    const client = await connect();
    assert.equal(await codeOf(client.request("mutate", {})), -32001);
    assert.equal(await codeOf(initialize(client, "1.0.0")), -5000);
    assert.equal(await codeOf(client.request("initialize", {})), -32602);
    await initialize(client);
    assert.equal(await codeOf(initialize(client)), -32600);
    assert.equal(await codeOf(client.request("$/cancelRequest", { id: 1 })), -32601);
    assert.equal(await codeOf(client.request("mutate", [])), -32602);
    assert.equal(await codeOf(client.request("unknown", {})), -32601);
    client.socket.close();
    // Binary frames are not messages, and end the connection with a reason.
    const other = await connect();
    const closed = new Promise((resolve) => other.socket.on("close", resolve));
    other.socket.send(Buffer.from("{}"));
    assert.equal(await closed, 1003);
  },

  async leaves_in_the_middle() {
    const client = await connect();
    await initialize(client);
    client.request("mutate", { partialResultToken: 0 }).catch(() => {});
    // The answer proves that the preceding request was read.
    await client.request("instrument", {});
    process.exit(0);
  },
};

await scenarios[scenario]();
console.log(`${scenario} passed`);

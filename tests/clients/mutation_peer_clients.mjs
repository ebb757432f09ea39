// Clients of the Mutation Server Protocol with one interface for both versions. The `path` of a result is relative to
// the server's directory.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import net from "node:net";
import path from "node:path";
import { ConfigureResult, DiscoverResult, MutationTestResult } from "mutation-server-protocol";
import { JSONRPCClient, JSONRPCServer, JSONRPCServerAndClient } from "json-rpc-2.0";
import jsonrpc from "vscode-jsonrpc/node";
import WebSocket from "ws";

/** The id of bodies sent without the libraries. */
const UNREAD_ID = 1000000000;

const flat = (files) =>
  Object.entries(files).flatMap(([path, { mutants }]) => mutants.map((mutant) => ({ path, ...mutant })));

/** Results of a request in progress; `reported` resolves at the first result. */
class Collected {
  results = [];
  #hasFirst;
  reported = new Promise((resolve) => (this.#hasFirst = resolve));

  add(results) {
    this.results.push(...results);
    if (results.length > 0) this.#hasFirst();
  }
}

/** A reader that hides error responses to raw bodies from the connection, which did not send those bodies. */
class PeerReader extends jsonrpc.StreamMessageReader {
  waiting = [];

  listen(callback) {
    return super.listen((message) => {
      const isAnswer = message.error !== undefined && [null, UNREAD_ID].includes(message.id);
      return isAnswer ? this.waiting.shift()(message.error.code) : callback(message);
    });
  }
}

/** A client of 0.4, on the streams of a server that it starts or on a port. */
export async function connectV04(kind, ...words) {
  let child, reading, writing;
  if (kind === "start") {
    child = spawn(words[0], words.slice(1), { stdio: ["pipe", "pipe", "inherit"] });
    [reading, writing] = [child.stdout, child.stdin];
  } else {
    reading = writing = net.connect(Number(words[0]), "localhost");
  }
  const reader = new PeerReader(reading);
  const connection = jsonrpc.createMessageConnection(reader, new jsonrpc.StreamMessageWriter(writing));
  // The server handles one mutation test request at a time, in order of arrival.
  const collecting = [];
  connection.onNotification("reportMutationTestProgress", (params) => {
    collecting[0].add(flat(MutationTestResult.strict().parse(params).files));
  });
  connection.onUnhandledNotification((message) => assert.fail(message.method));
  connection.listen();
  return {
    child,
    request: (method, params) =>
      Array.isArray(params)
        ? connection.sendRequest(method, jsonrpc.ParameterStructures.byPosition, ...params)
        : connection.sendRequest(method, params),
    async begin() {
      const configured = ConfigureResult.strict().parse(await connection.sendRequest("configure", {}));
      assert.match(configured.version, /^0\.4\./);
    },
    async list() {
      return flat(DiscoverResult.strict().parse(await connection.sendRequest("discover", {})).files);
    },
    test(place) {
      const collected = new Collected();
      const source = new jsonrpc.CancellationTokenSource();
      collecting.push(collected);
      const params = place === undefined ? {} : { files: [{ path: place }] };
      const answer = connection
        .sendRequest("mutationTest", params, source.token)
        .then((result) => {
          assert.deepEqual(MutationTestResult.strict().parse(result), { files: {} });
          return collected.results;
        })
        .finally(() => collecting.splice(collecting.indexOf(collected), 1));
      return { answer, reported: collected.reported, cancel: () => source.cancel() };
    },
    /** Sends a body that is not a request; returns the error code of the response. */
    codeOfBody(body) {
      const answered = new Promise((resolve) => reader.waiting.push(resolve));
      writing.write(`Content-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`);
      return answered;
    },
    async end() {
      connection.dispose();
      if (child === undefined) return writing.destroy();
      const exited = new Promise((resolve) => child.on("exit", (...exit) => resolve(exit)));
      writing.end();
      assert.deepEqual(await exited, [0, null]);
    },
  };
}

/** A client of 0.0.1-alpha.1 on a WebSocket. */
export async function connectAlpha(kind, port) {
  assert.equal(kind, "port");
  const socket = new WebSocket(`ws://localhost:${port}`);
  await new Promise((resolve, reject) => {
    socket.on("open", resolve);
    socket.on("error", reject);
  });
  let lastId = 0;
  const peer = new JSONRPCServerAndClient(
    new JSONRPCServer(),
    new JSONRPCClient(
      (request) => socket.send(JSON.stringify(request)),
      () => ++lastId,
    ),
  );
  const collecting = new Map();
  // The server reports absolute paths; it was started in this directory.
  const relative = (mutants) =>
    mutants.map(({ fileName, ...mutant }) => ({ path: path.relative(process.cwd(), fileName), ...mutant }));
  peer.addMethod("progress", ({ token, value }) => collecting.get(token).add(relative(value)));
  const bodies = [];
  socket.on("message", (data) => {
    const message = JSON.parse(data.toString());
    if (message.error !== undefined && [null, UNREAD_ID].includes(message.id)) {
      return bodies.shift()(message.error.code);
    }
    peer.receiveAndSend(message);
  });
  return {
    request: (method, params) => peer.request(method, params),
    async begin() {
      const params = { clientInfo: { version: "0.0.1-alpha.1" } };
      const { serverInfo, capabilities } = await peer.request("initialize", params);
      assert.equal(serverInfo.version, "0.0.1-alpha.1");
      assert.equal(capabilities.mutationTestProvider.partialResults, true);
    },
    async list() {
      return relative(await peer.request("instrument", {}));
    },
    test(place) {
      const collected = new Collected();
      const partialResultToken = `results ${lastId + 1}`;
      collecting.set(partialResultToken, collected);
      const globPatterns = place === undefined ? undefined : [place];
      const sent = peer.request("mutate", { globPatterns, partialResultToken });
      const id = lastId;
      const answer = sent.then((result) => {
        assert.deepEqual(result, []);
        return collected.results;
      });
      return { answer, reported: collected.reported, cancel: () => peer.notify("$/cancelRequest", { id }) };
    },
    codeOfBody(body) {
      const answered = new Promise((resolve) => bodies.push(resolve));
      socket.send(body);
      return answered;
    },
    async end() {
      socket.close();
    },
  };
}

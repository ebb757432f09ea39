// Offers the test suites of the first folder to Runtime Server Protocol UI: `heeler serve rsp` is started in the
// folder, and each suite is a server of its view.
"use strict";
const { spawn } = require("node:child_process");
const { createInterface } = require("node:readline");
const vscode = require("vscode");

const [STARTING, STARTED, STOPPED] = [1, 2, 4];
let heeler, report = () => {};

/** Starts Heeler; resolves with its address, which it prints when it listens. */
const startRSP = (stdout, stderr) => new Promise((resolve, reject) => {
  const [program, ...args] = vscode.workspace.getConfiguration("heeler").get("command");
  heeler = spawn(program, args, { cwd: vscode.workspace.workspaceFolders[0].uri.fsPath });
  report(STARTING);
  const left = (error) => { report(STOPPED); reject(error); };
  heeler.on("error", left).on("exit", (code) => left(new Error(`${program} exited with code ${code}`)));
  heeler.stdout.on("data", (bytes) => stdout(String(bytes)));
  createInterface({ input: heeler.stderr }).on("line", (line) => {
    stderr(`${line}\n`);
    const [, host, port] = /listening on ([\w.]+):(\d+)/.exec(line) ?? [];
    if (port) { report(STARTED); resolve({ host, port: Number(port), spawned: true }); }
  });
});

exports.activate = async () => {
  const ui = await vscode.extensions.getExtension("redhat.vscode-rsp-ui").activate();
  // Not awaited: the view starts this provider, and waits for the end of this activation.
  ui.registerRSPProvider({ state: STOPPED, type: { id: "heeler.heeler-rsp", visibilename: "Heeler" } });
  const onRSPServerStateChanged = (listener) => { report = listener; };
  return { startRSP, stopRSP: async () => { heeler?.kill(); }, getImage: () => undefined, onRSPServerStateChanged };
};
exports.deactivate = () => heeler?.kill();

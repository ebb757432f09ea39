// Offers the test suites of the first folder to Runtime Server Protocol UI: `heeler serve rsp` is started in the
// folder, and each suite is a server of its view.
"use strict";
const { spawn } = require("node:child_process");
const { createInterface } = require("node:readline");
const vscode = require("vscode");

const [STARTING, STARTED, STOPPED] = [1, 2, 4];
let heeler, report = () => {};

/** Starts Heeler; resolves with its address, which it prints when it listens. */
const startRSP = (_stdout, stderr) => new Promise((resolve, reject) => {
  const [program, ...args] = vscode.workspace.getConfiguration("heeler").get("command");
  const { fsPath: cwd } = vscode.workspace.workspaceFolders[0].uri;
  const started = heeler = spawn(program, args, { cwd, stdio: ["ignore", "ignore", "pipe"] });
  report(STARTING);
  const lines = [];
  // The exit of an earlier Heeler does not change the state of the present one.
  const left = (reason) => { if (started === heeler) report(STOPPED); reject(new Error(reason)); };
  started.on("error", ({ message }) => left(`${message}, see the setting heeler.command`));
  started.on("close", (code) => left([...lines, `${program} exited with code ${code}`].join(" ")));
  createInterface({ input: started.stderr }).on("line", (line) => {
    lines.push(line);
    const [, host, port] = /listening on ([\w.]+):(\d+)/.exec(line) ?? [];
    if (port) { report(STARTED); resolve({ host, port: Number(port), spawned: true }); }
    // The view disposes its output channels at the first stop, and then throws for each line.
    try { stderr(`${line}\n`); } catch { /* The lines of an error are in the reason. */ }
  });
});

exports.activate = async ({ extensionUri }) => {
  const ui = await vscode.extensions.getExtension("redhat.vscode-rsp-ui").activate();
  // Not awaited: the view starts this provider, and waits for the end of this activation.
  ui.registerRSPProvider({ state: STOPPED, type: { id: "heeler.heeler-rsp", visibilename: "Heeler" } });
  const onRSPServerStateChanged = (listener) => { report = listener; };
  // Without an image, the icons of the view's nodes are null, and VS Code does not show such nodes.
  const getImage = () => vscode.Uri.joinPath(extensionUri, "icon.svg");
  return { startRSP, stopRSP: async () => { heeler?.kill(); }, getImage, onRSPServerStateChanged };
};
exports.deactivate = () => heeler?.kill();

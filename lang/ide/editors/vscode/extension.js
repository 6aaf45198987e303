// The client of `monarch lsp`: it starts the server, and shows the files of the standard library and
// the pages of diagnostics, which the binary carries in itself.
"use strict";

const { workspace, commands, window } = require("vscode");
const { LanguageClient, TransportKind } = require("vscode-languageclient/node");

// As `libraryScheme` promises to the server.
const SCHEME = "monarch-std";

let client;

function start() {
  const command = workspace.getConfiguration("monarch").get("path", "monarch");
  const run = { command, args: ["lsp"], transport: TransportKind.stdio };
  client = new LanguageClient(
    "monarch",
    "monarch",
    { run, debug: run },
    {
      documentSelector: [
        { scheme: "file", language: "mon" },
        { scheme: "untitled", language: "mon" },
        { scheme: SCHEME, language: "mon" },
      ],
      initializationOptions: { libraryScheme: true },
      synchronize: { fileEvents: workspace.createFileSystemWatcher("**/*.mon") },
    },
  );
  return client.start().catch((error) => {
    window.showErrorMessage(
      `monarch: \`${command} lsp\` cannot be started (${error.message}); ` +
        "set `monarch.path` to the binary",
    );
  });
}

function activate(context) {
  const provider = {
    async provideTextDocumentContent(uri) {
      const answer = await client.sendRequest("monarch/source", { uri: uri.toString(true) });
      return answer.text;
    },
  };
  context.subscriptions.push(
    workspace.registerTextDocumentContentProvider(SCHEME, provider),
    commands.registerCommand("monarch.restart", async () => {
      await deactivate();
      await start();
    }),
  );
  return start();
}

async function deactivate() {
  const old = client;
  client = undefined;
  // One that never started cannot be stopped.
  if (old && old.needsStop()) {
    await old.stop();
  }
}

module.exports = { activate, deactivate };

// A client of the official TypeScript SDK, version 1 or 2: connects to the URL, or starts the command, that it is given,
// and prints what it gets as one line of JSON.
const [version, command, ...args] = process.argv.slice(2);
const files = {
  1: ["sdk/client/index.js", "sdk/client/stdio.js", "sdk/client/streamableHttp.js", "sdk/types.js"],
  2: ["client", "client/stdio"],
};
const sdk = Object.assign({}, ...(await Promise.all(files[version].map((file) => import(`@modelcontextprotocol/${file}`)))));
const transport = command.startsWith("http")
  ? new sdk.StreamableHTTPClientTransport(new URL(command))
  : new sdk.StdioClientTransport({ command, args });
const capabilities = { elicitation: { form: {}, url: {} } };
const client = new sdk.Client({ name: "typescript", version: "1" }, { capabilities, versionNegotiation: { mode: "auto" } });
const asked = [];
client.setRequestHandler(sdk.ElicitRequestSchema ?? "elicitation/create", ({ params }) => {
  asked.push(params.message);
  return { action: "accept", content: { username: "ada", email: "ada@example.org" } };
});
const logged = [];
client.setNotificationHandler(sdk.LoggingMessageNotificationSchema ?? "notifications/message", ({ params }) => logged.push(params.data));
await client.connect(transport);

const progress = [];
const text = (result) => result.content.map((block) => block.text ?? block.type);
const call = (params, options) => client.callTool(params, ...(version === "1" ? [undefined] : []), options);
const structured = (n) => call({ name: "test_structured_content", arguments: { n } });
const large = async ({ isError, structuredContent: { toolcrib } }) => {
  const [part] = (await client.readResource({ uri: toolcrib.uri })).contents;
  return [isError ?? false, toolcrib.size, part.text.slice(0, 16)];
};
const found = {
  tools: (await client.listTools()).tools.length > 20, // so results are checked by their schemas
  structured: (await structured(2)).structuredContent,
  large: await large(await structured(20000)),
  elicited: text(await call({ name: "test_elicitation", arguments: { message: "Who?" } })),
  progressed: text(
    await call({ name: "test_tool_with_progress" }, { onprogress: ({ progress: done }) => progress.push(done) }),
  ),
  logs: text(await call({ name: "test_tool_with_logging", _meta: { "io.modelcontextprotocol/logLevel": "info" } })),
  kinds: text(await call({ name: "test_multiple_content_types" })),
  failed: (await call({ name: "test_error_handling" })).isError,
  resource: (await client.readResource({ uri: "test://template/7/data" })).contents[0].text,
  prompt: (await client.getPrompt({ name: "test_prompt_with_arguments", arguments: { arg1: "a", arg2: "b" } })).messages[0].content.text,
};
await client.close();
console.log(JSON.stringify({ ...found, asked, progress, logged }));

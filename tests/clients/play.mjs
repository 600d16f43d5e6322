// What a client of either line of the TypeScript SDK does with a gateway in front of two servers: `every-thing`
// (tests/conformance/everything_server.py) and `mirror` (tests/servers/mirror.py). It goes to URL with KEY, or
// starts COMMAND (JSON) and speaks over its pipes. It prints what came of it as JSON. typescript_1.mjs and
// typescript_2.mjs say it in the words of their line.

export const INFO = { name: 'foreign', version: '1' };

// The transport to use, of the two that the line has.
export function transportOf(Http, Stdio) {
  if (process.env.COMMAND) {
    const [command, ...args] = JSON.parse(process.env.COMMAND);
    return new Stdio({ command, args, env: process.env });
  }
  const headers = { Authorization: `Bearer ${process.env.KEY}` };
  return new Http(new URL(process.env.URL), { requestInit: { headers } });
}

export const CAPABILITIES = { elicitation: {}, sampling: {} };

// Accepts or declines as the question says, and fills in every field.
export function elicit({ params }) {
  if (params.message === 'decline') return { action: 'decline' };
  const fields = Object.keys(params.requestedSchema.properties);
  return { action: 'accept', content: Object.fromEntries(fields.map(name => [name, 'told'])) };
}

export function sample() {
  return { role: 'assistant', model: 'none', content: { type: 'text', text: 'told' } };
}

const updated = later();
const changed = later();
export const onUpdated = ({ params }) => updated.resolve(params.uri);
export const listChanged = {
  tools: { onChanged: (error, tools) => (error ? changed.reject(error) : changed.resolve(tools)) },
};

// `call(name, args, options)` and `subscribe(uri)` are those of the line; the client is connected.
export async function play({ client, transport, version, call, subscribe }) {
  const text = async (name, args = {}, options = {}) => {
    const { content } = await call(`every_thing__${name}`, args, options);
    return content[0].text;
  };
  const found = { version };

  const { tools } = await client.listTools();
  found.listed = tools.map(tool => tool.name);
  found.called = await text('test_simple_text');

  found.progress = [];
  await text('test_tool_with_progress', {}, { onprogress: ({ progress }) => found.progress.push(progress) });

  await subscribe('test://watched-resource');
  await text('test_trigger_resource_update');
  found.updated = await updated.promise;

  await text('test_trigger_tool_change');
  found.changed = difference(found.listed, (await changed.promise).map(tool => tool.name));

  found.accepted = await text('test_elicitation', { message: 'accept' });
  found.declined = await text('test_elicitation', { message: 'decline' });
  found.sampled = await text('test_sampling', { prompt: 'What?' });
  found.cancelled = await cancelled(call);

  await transport.terminateSession?.(); // which is nothing in the newer era, and not there on stdio
  await client.close();
  console.log(JSON.stringify(found));
}

// How many calls the server saw cancelled, after one was.
async function cancelled(call) {
  const seen = async () => (await call('mirror__seen', {}, {})).structuredContent;
  const before = await seen();
  const abort = new AbortController();
  const waiting = call('mirror__wait', {}, { signal: abort.signal }).then(
    () => { throw new Error('the call was answered'); },
    () => {},
  );
  while ((await seen()).waiting <= before.waiting) await pause();
  abort.abort();
  await waiting;
  while ((await seen()).cancelled <= before.cancelled) await pause();
  return (await seen()).cancelled - before.cancelled;
}

function difference(one, other) {
  return [...one.filter(each => !other.includes(each)), ...other.filter(each => !one.includes(each))];
}

function later() {
  let resolve, reject;
  const promise = new Promise((...both) => { [resolve, reject] = both; });
  return { promise, resolve, reject };
}

function pause() {
  return new Promise(resolve => setTimeout(resolve, 20));
}

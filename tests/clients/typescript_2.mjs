// A client of the second line of the official TypeScript SDK, in the era MODE says: `legacy`, or `auto`, which
// finds out by itself what the gateway can.

import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { CAPABILITIES, INFO, elicit, listChanged, onUpdated, play, sample, transportOf } from './play.mjs';

const client = new Client(INFO, {
  capabilities: CAPABILITIES,
  listChanged,
  versionNegotiation: { mode: process.env.MODE },
});
client.setRequestHandler('elicitation/create', elicit);
client.setRequestHandler('sampling/createMessage', sample);
client.setNotificationHandler('notifications/resources/updated', onUpdated);

const transport = transportOf(StreamableHTTPClientTransport, StdioClientTransport);
await client.connect(transport);
await play({
  client,
  transport,
  version: client.getNegotiatedProtocolVersion(),
  call: (name, args, options) => client.callTool({ name, arguments: args }, options),
  subscribe: uri =>
    client.getProtocolEra() === 'modern'
      ? client.listen({ resourceSubscriptions: [uri] })
      : client.subscribeResource({ uri }),
});

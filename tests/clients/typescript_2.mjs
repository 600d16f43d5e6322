// A client of the second line of the official TypeScript SDK, in the era MODE says: `legacy`, or `auto`, which
// finds out by itself what the gateway can.

import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import {
  CAPABILITIES, INFO, URL_OF_GATEWAY, WITH_KEY, elicit, listChanged, onUpdated, play, sample,
} from './play.mjs';

const client = new Client(INFO, {
  capabilities: CAPABILITIES,
  listChanged,
  versionNegotiation: { mode: process.env.MODE },
});
client.setRequestHandler('elicitation/create', elicit);
client.setRequestHandler('sampling/createMessage', sample);
client.setNotificationHandler('notifications/resources/updated', onUpdated);

const transport = new StreamableHTTPClientTransport(URL_OF_GATEWAY, WITH_KEY);
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

// A client of the first line of the official TypeScript SDK, which knows sessions alone.

import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import {
  CreateMessageRequestSchema,
  ElicitRequestSchema,
  ResourceUpdatedNotificationSchema,
} from '@modelcontextprotocol/sdk/types.js';
import { CAPABILITIES, INFO, elicit, listChanged, onUpdated, play, sample, transportOf } from './play.mjs';

const client = new Client(INFO, { capabilities: CAPABILITIES, listChanged });
client.setRequestHandler(ElicitRequestSchema, elicit);
client.setRequestHandler(CreateMessageRequestSchema, sample);
client.setNotificationHandler(ResourceUpdatedNotificationSchema, onUpdated);

const transport = transportOf(StreamableHTTPClientTransport, StdioClientTransport);
transport.setProtocolVersion ??= version => { transport.protocolVersion = version; };
await client.connect(transport);
await play({
  client,
  transport,
  version: transport.protocolVersion,
  call: (name, args, options) => client.callTool({ name, arguments: args }, undefined, options),
  subscribe: uri => client.subscribeResource({ uri }),
});

"""A client of the protocol that writes its messages by hand, in either era, and reads whatever comes.

For what an SDK would not send (colliding ids, broken envelopes) and for what it would not show (bytes).
"""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

LEGACY, MODERN = "2025-11-25", "2026-07-28"
ACCEPT = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
META = "io.modelcontextprotocol/"
NAMED = {"resources": "uri", "tasks": "taskId"}
"""Where the name is that a request of the newer era says in a header too."""


class Answer:
    def __init__(
        self, status: int, headers: Mapping[str, str], body: bytes, heard: list[dict[str, Any]]
    ) -> None:
        self.status = status
        self.headers = headers
        self.body = body
        self.heard = heard
        """What came before the answer."""

    @property
    def message(self) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self.body)
        return answer

    @property
    def result(self) -> dict[str, Any]:
        assert "result" in self.message, self.message
        result: dict[str, Any] = self.message["result"]
        return result

    @property
    def code(self) -> int:
        assert "error" in self.message, self.message
        return int(self.message["error"]["code"])


class McpClient:
    def __init__(
        self,
        session: aiohttp.ClientSession,
        url: str,
        key: str,
        *,
        modern: bool,
        capabilities: dict[str, Any] | None = None,
    ) -> None:
        self.url = url
        self.modern = modern
        self.headers = {**ACCEPT, "Authorization": f"Bearer {key}"}
        self.capabilities = capabilities or {}
        self._session = session
        self._ids = itertools.count(1)

    async def open(self) -> None:
        """The handshake, where the era has one."""
        if self.modern:
            return
        params = {
            "protocolVersion": LEGACY,
            "capabilities": self.capabilities,
            "clientInfo": {"name": "by hand", "version": "1"},
        }
        answer = await self.ask("initialize", params)
        assert answer.status == 200, answer.body
        self.headers["Mcp-Session-Id"] = answer.headers["Mcp-Session-Id"]
        self.headers["MCP-Protocol-Version"] = LEGACY
        assert (await self.post({"jsonrpc": "2.0", "method": "notifications/initialized"})).status == 202

    async def ask(
        self, method: str, params: dict[str, Any] | None = None, *, id: int | str | None = None, **meta: Any
    ) -> Answer:
        message, headers = self.request(method, params, id=id, **meta)
        return await self.post(message, headers)

    def request(
        self, method: str, params: dict[str, Any] | None = None, *, id: int | str | None = None, **meta: Any
    ) -> tuple[dict[str, Any], dict[str, str]]:
        params, headers = dict(params or {}), {}
        if self.modern:
            meta = {META + "protocolVersion": MODERN, META + "clientCapabilities": self.capabilities, **meta}
            headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": method}
            if name := params.get(NAMED.get(method.partition("/")[0], "name")):
                headers["Mcp-Name"] = name
        if meta:
            params["_meta"] = meta
        identity = next(self._ids) if id is None else id
        return {"jsonrpc": "2.0", "id": identity, "method": method, "params": params}, headers

    async def post(self, message: object, headers: dict[str, str] | None = None) -> Answer:
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        sent = {**self.headers, **(headers or {})}
        async with self._session.post(self.url, data=body, headers=sent) as response:
            heard = []
            answer = b""
            if response.content_type == "text/event-stream":
                async for event in events(response):
                    if "method" in json.loads(event):
                        heard.append(json.loads(event))
                        await self.on_heard(heard[-1])
                    else:
                        answer = event
            else:
                answer = await response.read()
            return Answer(response.status, response.headers.copy(), answer, heard)

    async def on_heard(self, message: dict[str, Any]) -> None:
        """Something came before the answer; nothing is done about it."""

    @asynccontextmanager
    async def listening(self, *uris: str, task_ids: Sequence[str] = ()) -> AsyncIterator["Heard"]:
        """Hears of changes, as the era has it, until the context ends."""
        heard = Heard()
        kinds = {"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": True}
        if self.modern:
            of_tasks = {"taskIds": list(task_ids)} if task_ids else {}
            wanted = {"notifications": {**kinds, "resourceSubscriptions": list(uris), **of_tasks}}
            message, headers = self.request("subscriptions/listen", wanted)
            method, body = "POST", json.dumps(message)
        else:
            method, headers, body = "GET", {"Accept": "text/event-stream"}, None
        sent = {**self.headers, **headers}
        async with self._session.request(method, self.url, data=body, headers=sent) as response:
            assert response.status == 200, await response.text()
            reading = asyncio.ensure_future(heard.read(response))
            if self.modern:
                await asyncio.wait_for(heard.wait_for("notifications/subscriptions/acknowledged"), 10)
            for uri in () if self.modern else uris:
                assert (await self.ask("resources/subscribe", {"uri": uri})).result == {}
            yield heard
            reading.cancel()

    async def call(self, name: str, arguments: dict[str, Any] | None = None, **more: Any) -> Answer:
        return await self.ask("tools/call", {"name": name, "arguments": arguments or {}}, **more)


class Heard:
    """What a stream of changes tells."""

    def __init__(self) -> None:
        self._messages: list[dict[str, Any]] = []
        self._news = asyncio.Event()

    async def read(self, response: aiohttp.ClientResponse) -> None:
        async for event in events(response):
            self._messages.append(json.loads(event))
            self._news.set()

    @property
    def methods(self) -> list[str]:
        """Of what came, in order; an answer has none."""
        return [message.get("method", "") for message in self._messages]

    async def wait_for(
        self, method: str | None, holds: Callable[[dict[str, Any]], bool] = lambda message: True
    ) -> dict[str, Any]:
        """The first message of this method of which it holds; without a method, the answer."""
        while True:
            for message in self._messages:
                if message.get("method") == method and holds(message):
                    return message
            self._news.clear()
            await self._news.wait()


async def events(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """The data of each event that has some."""
    async for line in response.content:
        if line.startswith(b"data: ") and line[6:].strip():
            yield line[6:].strip()


@asynccontextmanager
async def mcp_client(
    url: str, key: str, *, modern: bool, capabilities: dict[str, Any] | None = None
) -> AsyncIterator[McpClient]:
    async with aiohttp.ClientSession(read_bufsize=32 * 1024 * 1024) as session:
        client = McpClient(session, url, key, modern=modern, capabilities=capabilities)
        await client.open()
        yield client

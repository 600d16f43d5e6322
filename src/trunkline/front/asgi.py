"""Has an ASGI application answer an exchange: the bridge to the framework behind the admin API.

The body is there already and within limits; after it the application hears only that the client has gone.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from trunkline.front.answers import Answer
from trunkline.front.exchange import Exchange

Message = MutableMapping[str, Any]
Application = Callable[
    [MutableMapping[str, Any], Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]],
    Awaitable[None],
]


async def run(application: Application, exchange: Exchange, more: Mapping[str, object]) -> None:
    """`more` goes into the scope."""
    scope: MutableMapping[str, Any] = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.0" if exchange.http10 else "1.1",
        "scheme": "http",
        "method": exchange.method,
        "path": exchange.path,
        "raw_path": exchange.target.partition(b"?")[0],
        "query_string": exchange.query,
        "root_path": "",
        "headers": list(exchange.headers),
        "client": exchange.client,
        "server": exchange.local,
        "state": {},
        **more,
    }
    bridge = _Bridge(exchange)
    try:
        await application(scope, bridge.receive, bridge.send)
    finally:
        exchange.when_gone(None)


class _Bridge:
    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._given = False
        self._gone = asyncio.Event()
        self._status = 500
        self._headers: tuple[tuple[bytes, bytes], ...] = ()
        exchange.when_gone(self._gone.set)

    async def receive(self) -> Message:
        if not self._given:
            self._given = True
            return {"type": "http.request", "body": self._exchange.body, "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        exchange = self._exchange
        if message["type"] == "http.response.start":
            self._status = message["status"]
            self._headers = tuple(message.get("headers", ()))
            return
        body = message.get("body", b"")
        if not message.get("more_body") and not exchange.started:
            kept = tuple(each for each in self._headers if each[0].lower() != b"content-length")
            exchange.reply(Answer(self._status, body, kept, content_type=None))
            return
        if not exchange.started:
            exchange.begin(self._status, self._headers)
        await exchange.write(body)
        if not message.get("more_body"):
            exchange.end()

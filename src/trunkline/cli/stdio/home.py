"""Which gateway the messages go to: the one that runs, or one of our own when none does.

A data folder has one gateway at a time. So a gateway opened here leaves word like one that `serve` opened;
other commands and other clients' `trunkline stdio` find it, and when it goes with its client, one of those
that used it opens the next. The place of one that `serve` runs is not taken: it may come back, and would
find its folder in use. An address that somebody named is never replaced either.
"""

import asyncio
import contextlib
import functools
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trunkline.app import open_gateway
from trunkline.cli.failures import Failure, NoGateway, Refused
from trunkline.cli.gateway_client import GatewayAddress, GatewayClient, find_gateway
from trunkline.cli.serve import word_left
from trunkline.errors import NotSent, StartRefused, UpstreamError
from trunkline.front.server import serve
from trunkline.security.outbound import Outbound
from trunkline.settings import Settings
from trunkline.telemetry import Redactor
from trunkline.upstream.outbound_client import OutboundClient
from trunkline.upstream.passage import Passage

log = logging.getLogger(__name__)

LOOK_SECONDS = 10.0
"""How long to look on while a gateway is neither there nor can be opened: one may be coming or going."""
LOOK_PAUSE = 0.3
_STOPPING = 503

_ANYWHERE = Outbound(allowed_networks=("0.0.0.0/0", "::/0"), on_loopback=True, allow_insecure_http=True)
"""The address is the user's own choice, as it is for every other command."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the command line said."""

    url: str | None
    key: str | None
    data_dir: Path | None
    path: str
    """Of the MCP address at the gateway."""

    @property
    def named(self) -> bool:
        return bool(self.url or os.environ.get("MCP_AGGREGATOR_URL"))


class Home:
    def __init__(
        self, wanted: Wanted, settings: Settings, redactor: Redactor, *, on_own_ended: Callable[[], None]
    ) -> None:
        self._wanted = wanted
        self._settings = settings
        self._client = OutboundClient(_ANYWHERE)
        self._own = _OwnGateway(settings, redactor, on_own_ended)
        self._address: GatewayAddress | None = None
        self._passage: Passage | None = None
        self._doubted = False
        self._staying = False
        self._looking = asyncio.Lock()

    async def passage(self) -> Passage:
        """The way to a gateway that answered not long ago. Raises `NotSent`."""
        try:
            return await self.find()
        except Failure as failure:
            raise NotSent(failure.message, phase="connect") from None

    async def find(self) -> Passage:
        """The same for who starts. Raises `Failure`."""
        async with self._looking:
            if self._passage is None or (self._doubted and not self._staying):
                await self._move_to(await self._look())
            if self._passage is None:
                raise AssertionError("there is a way now")
            return self._passage

    def doubt(self, passage: Passage) -> None:
        """It did not answer as it should: look again before it is used again."""
        if passage is self._passage:
            self._doubted = True

    def stay(self) -> None:
        """The end has come: no other gateway is looked for, or opened."""
        self._staying = True

    async def _move_to(self, address: GatewayAddress) -> None:
        self._doubted = False
        if address == self._address:
            return
        left, self._address = self._passage, address
        headers = {"Authorization": f"Bearer {address.key}"} if address.key else {}
        url = address.url + self._wanted.path
        try:
            self._passage = Passage(self._client, url, headers, limit=2 * self._settings.message_limit)
        except UpstreamError as error:
            raise Failure(f"{address.url} cannot be used: {error.reason}") from None
        log.info("Messages go to the gateway at %s", address.url)
        if left is not None:
            left.close()

    @property
    def _may_open(self) -> bool:
        return not self._wanted.named and (self._address is None or self._address.passing)

    async def _look(self) -> GatewayAddress:
        loop = asyncio.get_running_loop()
        until = loop.time() + LOOK_SECONDS
        while True:
            try:
                return await self._running()
            except NoGateway as none:
                failure: Failure = none
                if not self._may_open:
                    raise
            try:
                await self._own.open()
                continue
            except StartRefused as refused:
                failure = Failure(refused.detail)
            if loop.time() > until:
                raise failure
            await asyncio.sleep(LOOK_PAUSE)

    async def _running(self) -> GatewayAddress:
        """Raises `NoGateway` where none answers."""
        address = find_gateway(self._wanted.url, self._wanted.key, self._wanted.data_dir)
        try:
            await asyncio.to_thread(GatewayClient(address).get, "/health")
        except Refused as refused:
            if refused.status != _STOPPING:
                raise
            raise NoGateway(f"The gateway at {address.url} is stopping") from None
        return address

    async def close(self) -> None:
        if self._passage is not None:
            self._passage.close()
        await self._own.close()


class _OwnGateway:
    def __init__(self, settings: Settings, redactor: Redactor, on_ended: Callable[[], None]) -> None:
        self._settings = settings
        self._open_gateway = functools.partial(open_gateway, redactor=redactor)
        self._on_ended = on_ended
        self._serving: asyncio.Task[int] | None = None

    async def open(self) -> None:
        """Returns when it listens and has left word. Raises `StartRefused`."""
        listening: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        serving = asyncio.create_task(self._serve(listening))
        either: set[asyncio.Future[Any]] = {serving, listening}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            serving.result()
            raise StartRefused("The gateway ended as it was starting")
        self._serving = serving
        serving.add_done_callback(lambda _: self._on_ended())

    async def _serve(self, listening: "asyncio.Future[str]") -> int:
        with contextlib.ExitStack() as while_running:

            def on_listening(url: str) -> None:
                while_running.enter_context(word_left(self._settings, url, passing=True))
                listening.set_result(url)

            return await serve(self._settings, self._open_gateway, on_listening)

    async def close(self) -> None:
        if self._serving is not None:
            self._serving.cancel()
            await asyncio.gather(self._serving, return_exceptions=True)

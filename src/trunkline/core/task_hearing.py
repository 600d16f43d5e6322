"""One client hears of its tasks at one server: a subscription there for it alone, until they have ended.

What a server told while its stream was broken is asked after when there is a stream again, so that nobody
waits for the end of a task that has long ended. Where the server will not tell any more, that is said.
"""

import asyncio
import contextlib
import random
from collections.abc import Callable, Coroutine, Mapping

from trunkline.core.request_router import RequestRouter
from trunkline.errors import ProtocolViolation, RpcError, ServerNotFound, TrunklineError
from trunkline.model import Counterpart, Errand
from trunkline.upstream.connection import Connection
from trunkline.upstream.listening import ACKNOWLEDGED, NotOffered, keep_listening
from trunkline.wire import jsonrpc, tasks

AGREE_SECONDS = 5.0

Tell = Callable[[bytes], None]
"""Takes a task under the client's id, as a server tells of it; returns at once."""


class TaskHearing:
    def __init__(
        self,
        router: RequestRouter,
        server_id: str,
        shown: Mapping[str, str],
        *,
        client: Counterpart,
        tell: Tell,
        on_lost: Callable[[], None],
    ) -> None:
        """`shown` is the server's own id of a task → the client's."""
        self._router = router
        self._server_id = server_id
        self._shown = dict(shown)
        self._client = client
        self._tell = tell
        self._on_lost = on_lost
        self._agreed: asyncio.Future[frozenset[str]] = asyncio.get_running_loop().create_future()
        self._work: set[asyncio.Task[None]] = set()
        self._rng = random.Random()  # noqa: S311 - spreads reconnects, guards nothing

    async def open(self) -> frozenset[str]:
        """The client's ids of what will be heard of: what the server agrees to in time."""
        self._start(self._keep())
        await asyncio.wait({self._agreed}, timeout=AGREE_SECONDS)
        if self._agreed.done():
            return self._agreed.result()
        self._end()
        return frozenset()

    async def close(self) -> None:
        self._end()
        await asyncio.gather(*self._work, return_exceptions=True)

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    def _end(self) -> None:
        for task in self._work:
            task.cancel()

    # The stream

    async def _keep(self) -> None:
        await keep_listening(self._listen, self._rng)
        self._give_up()

    def _give_up(self) -> None:
        """The server tells no more."""
        if not self._agreed.done():
            self._agreed.set_result(frozenset())
        else:
            self._on_lost()

    async def _listen(self) -> float:
        try:
            await self._router.on_connection(self._server_id, tasks.TOLD, self._hear)
        except ServerNotFound:
            raise NotOffered from None
        except TrunklineError:
            pass  # it is away for now
        return 0.0

    async def _hear(self, connection: Connection) -> None:
        if not connection.introduction.modern:
            raise NotOffered
        try:
            await connection.hear_tasks(self._shown, self._client, self._on_told)
        except (RpcError, ProtocolViolation):
            raise NotOffered from None

    # What comes on it

    def _on_told(self, method: str, params: bytes) -> None:
        if method == ACKNOWLEDGED:
            self._on_agreed(tasks.agreed(params) & self._shown.keys())
        elif method == tasks.TOLD:
            with contextlib.suppress(jsonrpc.Malformed):
                self._pass_on(params)

    def _on_agreed(self, own_ids: frozenset[str]) -> None:
        if self._agreed.done():
            self._start(self._catch_up(own_ids))
            return
        self._shown = {own: self._shown[own] for own in own_ids}
        self._agreed.set_result(frozenset(self._shown.values()))
        if not own_ids:
            self._end()

    def _pass_on(self, told: bytes) -> None:
        """Raises `Malformed`."""
        task = tasks.read(told)
        shown = self._shown.get(task.task_id)
        if shown is None:
            return
        self._tell(tasks.with_id(told, shown))
        if task.status in tasks.FINAL:
            del self._shown[task.task_id]
            if not self._shown:
                self._end()

    async def _catch_up(self, agreed: frozenset[str]) -> None:
        """There is a stream again: ask how the tasks are, since what was told in between was not heard."""
        for own in list(self._shown):
            errand = Errand(tasks.GET, tasks.params_of(own), own, counterpart=self._client)
            try:
                self._pass_on((await self._router.relay(self._server_id, errand)).result)
            except (TrunklineError, jsonrpc.Malformed):
                agreed -= {own}
        if not agreed >= self._shown.keys():
            self._on_lost()

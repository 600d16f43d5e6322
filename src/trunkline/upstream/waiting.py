"""Carries an errand to its end, also where its server turns it into a task that the caller cannot ask after.

Callers of the newer era say whether they take tasks, and get them. Others do not know any: a tool that runs
no other way is called as if they did, its task is waited for here, and they get its result. What the task
asks is put to them over the same seam as in `rounds.py`; one nobody waits for any more is cancelled.
"""

import asyncio
import contextlib
from dataclasses import replace

from trunkline.errors import (
    Declined,
    Lost,
    NotSent,
    ProtocolViolation,
    RpcError,
    UpstreamBusy,
    UpstreamError,
    UpstreamTimeout,
)
from trunkline.model import Counterpart, Errand
from trunkline.upstream.connection import Connection
from trunkline.upstream.rounds import ask_all, carry_in_rounds
from trunkline.wire import eras, jsonrpc, tasks, translate
from trunkline.wire.tasks import Told

USUAL_PAUSE, SHORTEST_PAUSE, LONGEST_PAUSE = 1.0, 0.1, 30.0
"""Seconds before a task is asked after again, where its server names none, too few or too many."""
PAUSES = (0.5, 2.0)
"""Seconds before a request about a task is made again that was lost."""
CANCEL_SECONDS = 5.0

_CALL = "tools/call"


class TakesTasks:
    """A caller as its server sees it while its task is waited for; otherwise who it is, or nobody."""

    modern = False
    log_level = None

    def __init__(self, caller: Counterpart | None) -> None:
        """Raises `Malformed`."""
        self._caller = caller
        self.capabilities = tasks.declaring(caller.capabilities if caller is not None else b"{}")
        self.info = caller.info if caller is not None else b""
        self.meta = caller.meta if caller is not None else b""

    def on_progress(self, params: bytes) -> None:
        if self._caller is not None:
            self._caller.on_progress(params)

    def on_log(self, params: bytes) -> None:
        """Not asked for."""

    async def ask(self, method: str, params: bytes) -> bytes:
        if self._caller is None:
            raise Declined(jsonrpc.METHOD_NOT_FOUND, f"Nobody is there to answer {method}")
        return await self._caller.ask(method, params)


async def carry_to_the_end(connection: Connection, errand: Errand) -> bytes:
    """The raw result; a task only for a caller that takes tasks. Raises `UpstreamError`."""
    try:
        result = await carry_in_rounds(connection, errand)
    except RpcError as refusal:
        if not _runs_as_task_alone(refusal, errand):
            raise
        return await _carry_as_task(connection, errand)
    if connection.introduction.modern and not takes_task(errand) and tasks.is_task(result):
        raise ProtocolViolation("answered with a task, and nobody had said that one is welcome")
    return result


def takes_task(errand: Errand) -> bool:
    """Whether its caller said that the answer may be a task."""
    caller = errand.counterpart
    return errand.method == _CALL and caller is not None and tasks.declared(caller.capabilities)


def _runs_as_task_alone(refusal: RpcError, errand: Errand) -> bool:
    """Whether the server refused for lack of the extension. A newer caller is told so, and may declare it."""
    caller = errand.counterpart
    return (
        refusal.rpc_code == eras.MISSING_CAPABILITY
        and errand.method == _CALL
        and not (caller is not None and caller.modern)
        and tasks.required(refusal.data)
    )


async def _carry_as_task(connection: Connection, errand: Errand) -> bytes:
    """It counts as one call all the time, so that a server that is taken down in good order waits for it."""
    caller = TakesTasks(errand.counterpart)
    connection.begin_call()
    try:
        result = await carry_in_rounds(connection, replace(errand, counterpart=caller))
        if not tasks.is_task(result):
            return result
        return await _outcome(connection, caller, tasks.read(result))
    except jsonrpc.Malformed as error:
        raise ProtocolViolation(f"sent {error}") from None
    finally:
        connection.end_call()


async def _outcome(connection: Connection, caller: TakesTasks, task: Told) -> bytes:
    try:
        async with asyncio.timeout(connection.longest_call):
            return await _until_final(connection, caller, task)
    except TimeoutError:
        await _cancel(connection, caller, task.task_id)
        raise UpstreamTimeout(f"no end of its task within {connection.longest_call:g} s") from None
    except (asyncio.CancelledError, UpstreamError) as error:
        await asyncio.shield(_cancel(connection, caller, task.task_id))
        if isinstance(error, NotSent):  # the call itself was sent: it must not be sent again for this
            raise Lost(error.reason) from None
        raise


async def _until_final(connection: Connection, caller: TakesTasks, task: Told) -> bytes:
    """Ask after the task until it has ended, and put what it asks to the caller, each question once."""
    task_id, asked_before = task.task_id, set[str]()
    while True:
        await asyncio.sleep(_pause(task))
        told = await _carried(connection, _about(task_id, tasks.GET, caller))
        task = tasks.read(told)
        if task.status == tasks.COMPLETED:
            return tasks.result_of(told)
        if task.status in tasks.FINAL:
            return _failure(task)
        if task.status == tasks.INPUT_REQUIRED:
            asked, _ = translate.questions(told)
            fresh = {key: question for key, question in asked.items() if key not in asked_before}
            asked_before |= fresh.keys()
            if fresh:
                given = translate.answers(await ask_all(caller, fresh), b"")
                await _carried(connection, _about(task_id, tasks.UPDATE, caller, given))


async def _carried(connection: Connection, errand: Errand) -> bytes:
    """A task does not end with a request about it that was lost, and such a request may be made twice."""
    for pause in (*PAUSES, None):
        try:
            return await connection.carry(errand)
        except (NotSent, Lost, UpstreamBusy):
            if pause is None or not connection.alive:
                raise
            await asyncio.sleep(pause)
    raise AssertionError("the last attempt has ended in one way or the other")


def _about(task_id: str, method: str, caller: TakesTasks, more: bytes = b"") -> Errand:
    return Errand(method, tasks.params_of(task_id, more), task_id, counterpart=caller)


def _pause(task: Told) -> float:
    wished = USUAL_PAUSE if task.poll_interval_ms is None else task.poll_interval_ms / 1000
    return min(LONGEST_PAUSE, max(SHORTEST_PAUSE, wished))


def _failure(task: Told) -> bytes:
    """What is no result of a tool, as one that says so."""
    said = f"The task was {task.status}" if task.status == tasks.CANCELLED else "The task has failed"
    reason = task.error.message or task.status_message
    text = f"{said}: {reason}" if reason else said
    return b'{"content":[{"type":"text","text":%b}],"isError":true}' % jsonrpc.quote(text)


async def _cancel(connection: Connection, caller: TakesTasks, task_id: str) -> None:
    """Nobody waits any more. Never raises."""
    with contextlib.suppress(UpstreamError, TimeoutError):
        async with asyncio.timeout(CANCEL_SECONDS):
            await connection.carry(_about(task_id, tasks.CANCEL, caller))

"""Lets a server of the newer era ask a client of the older one: its question comes as the result of a call.

The client is asked over the one seam, `Counterpart.ask`, and the call is made again with the answers, as
often as the server wants within reason. A client of the newer era gets the question itself and calls again
by itself; then there is nothing to do here.
"""

import asyncio
from dataclasses import replace

from trunkline.errors import Declined, ProtocolViolation, RpcError
from trunkline.model import Counterpart, Errand
from trunkline.upstream.connection import Connection
from trunkline.wire import jsonrpc, translate

MOST_ROUNDS = 10
FIRST_WAIT = 0.25
"""Before a call is repeated that only has to wait; doubled each time."""


async def carry_in_rounds(connection: Connection, errand: Errand) -> bytes:
    """The raw result of the last round. Raises `UpstreamError`."""
    result = await connection.carry(errand)
    client = errand.counterpart
    if client is None or client.modern or not connection.introduction.modern:
        return result
    for number in range(MOST_ROUNDS):
        if translate.result_type(result) != translate.INPUT_REQUIRED:
            return result
        try:
            asked, state = translate.questions(result)
        except jsonrpc.Malformed as error:
            raise ProtocolViolation(f"sent {error}") from None
        if not asked:
            await asyncio.sleep(FIRST_WAIT * 2**number)
        answers = translate.answers(await ask_all(client, asked), state)
        result = await connection.carry(replace(errand, answers=answers))
    raise ProtocolViolation(f"asked for input more than {MOST_ROUNDS} times in one call")


async def ask_all(client: Counterpart, asked: dict[str, tuple[str, bytes]]) -> dict[str, bytes]:
    """All at the same time. A refusal ends the call: the newer era has no word for it. Raises `RpcError`."""
    tasks = {
        key: asyncio.ensure_future(client.ask(method, params)) for key, (method, params) in asked.items()
    }
    try:
        return {key: await task for key, task in tasks.items()}
    except Declined as declined:
        raise RpcError(
            declined.code, f"The client refused what the server asked: {declined.message}"
        ) from None
    finally:
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)

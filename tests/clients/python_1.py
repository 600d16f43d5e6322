"""A client of the first line of the official Python SDK, which knows sessions alone; runs under `mcp` 1.x.

It does what `play.mjs` does, with a gateway at URL, with KEY, or over the pipes of COMMAND, and prints what
came of it as JSON.
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any

mcp: Any = import_module("mcp")
types: Any = import_module("mcp.types")
http: Any = import_module("mcp.client.streamable_http")
stdio: Any = import_module("mcp.client.stdio")


async def elicit(context: object, params: Any) -> Any:
    """Accepts or declines as the question says, and fills in every field."""
    if params.message == "decline":
        return types.ElicitResult(action="decline")
    content = dict.fromkeys(params.requestedSchema["properties"], "told")
    return types.ElicitResult(action="accept", content=content)


async def sample(context: object, params: Any) -> Any:
    told = types.TextContent(type="text", text="told")
    return types.CreateMessageResult(role="assistant", content=told, model="none")


class Heard:
    def __init__(self) -> None:
        self.updated: asyncio.Future[str] = asyncio.Future()
        self.changed = asyncio.Event()
        self.progress: list[float] = []

    async def on_message(self, message: Any) -> None:
        match getattr(message, "root", None):
            case types.ResourceUpdatedNotification(params=params):
                self.updated.set_result(str(params.uri))
            case types.ToolListChangedNotification():
                self.changed.set()

    async def on_progress(self, progress: float, total: float | None, message: str | None) -> None:
        self.progress.append(progress)


async def play(session: Any, heard: Heard) -> dict[str, Any]:
    async def text(tool: str, arguments: dict[str, str] | None = None, **more: Any) -> str:
        result = await session.call_tool(f"every_thing__{tool}", arguments or {}, **more)
        return str(result.content[0].text)

    async def listed() -> list[str]:
        return [tool.name for tool in (await session.list_tools()).tools]

    found: dict[str, Any] = {"version": (await session.initialize()).protocolVersion}
    found["listed"] = await listed()
    found["called"] = await text("test_simple_text")

    await text("test_tool_with_progress", progress_callback=heard.on_progress)
    found["progress"] = heard.progress

    await session.subscribe_resource("test://watched-resource")
    await text("test_trigger_resource_update")
    found["updated"] = await heard.updated

    await text("test_trigger_tool_change")
    await heard.changed.wait()
    found["changed"] = list(set(found["listed"]) ^ set(await listed()))

    found["accepted"] = await text("test_elicitation", {"message": "accept"})
    found["declined"] = await text("test_elicitation", {"message": "decline"})
    found["sampled"] = await text("test_sampling", {"prompt": "What?"})
    found["cancelled"] = await cancelled(session)
    return found


async def cancelled(session: Any) -> int:
    """How many calls the server saw cancelled, after one was. This line leaves the message to the program."""

    async def seen(what: str) -> int:
        return int((await session.call_tool("mirror__seen")).structuredContent[what])

    async def seen_more(what: str, than: int) -> None:
        for _ in range(500):
            if await seen(what) > than:
                return
            await asyncio.sleep(0.02)
        raise TimeoutError(what)

    waiting, before = await seen("waiting"), await seen("cancelled")
    identity = session._request_id
    call = asyncio.create_task(session.call_tool("mirror__wait"))
    await asyncio.sleep(0)  # so that the number is this call's
    await seen_more("waiting", waiting)
    params = types.CancelledNotificationParams(requestId=identity)
    await session.send_notification(types.ClientNotification(types.CancelledNotification(params=params)))
    await seen_more("cancelled", before)
    assert not call.done()
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    return await seen("cancelled") - before


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[Any, Any]]:
    """What to read from and to write to."""
    if "COMMAND" in os.environ:
        command, *arguments = json.loads(os.environ["COMMAND"])
        started = stdio.StdioServerParameters(command=command, args=arguments, env=dict(os.environ))
        async with stdio.stdio_client(started) as (reading, writing):
            yield reading, writing
        return
    with_key = http.create_mcp_http_client(headers={"Authorization": f"Bearer {os.environ['KEY']}"})
    async with http.streamable_http_client(os.environ["URL"], http_client=with_key) as (reading, writing, _):
        yield reading, writing


async def main() -> None:
    heard = Heard()
    async with connected() as (reading, writing):
        callbacks = {
            "elicitation_callback": elicit,
            "sampling_callback": sample,
            "message_handler": heard.on_message,
        }
        async with mcp.ClientSession(reading, writing, **callbacks) as session:
            found = await play(session, heard)
    print(json.dumps(found))


if __name__ == "__main__":
    asyncio.run(main())

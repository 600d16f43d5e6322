"""The tasks extension for the SDK's own client, which leaves extensions to those who want them.

`Client(..., extensions=[Waiting(...)])` takes tasks, and `call_tool` then returns what a task came to.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import mcp_types as types
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from pydantic import ConfigDict
from pydantic.alias_generators import to_camel

EXTENSION = "io.modelcontextprotocol/tasks"
WIRE = ConfigDict(alias_generator=to_camel, populate_by_name=True)


class Task(types.Result):
    model_config = WIRE

    result_type: Literal["task"] = "task"
    task_id: str
    status: str
    poll_interval_ms: int = 100


class Told(types.Result):
    model_config = WIRE

    task_id: str
    status: str
    result: dict[str, Any] | None = None


class About(types.RequestParams):
    model_config = WIRE

    task_id: str


class GetTask(types.Request[About, Literal["tasks/get"]]):
    method: Literal["tasks/get"] = "tasks/get"
    params: About
    name_param: ClassVar[str | None] = "taskId"


class CancelTask(types.Request[About, Literal["tasks/cancel"]]):
    method: Literal["tasks/cancel"] = "tasks/cancel"
    params: About
    name_param: ClassVar[str | None] = "taskId"


class Waiting(ClientExtension):
    identifier = EXTENSION

    def __init__(self) -> None:
        self.begun: list[str] = []

    def claims(self) -> Sequence[ResultClaim[Any]]:
        return [ResultClaim(result_type="task", model=Task, resolve=self._wait)]

    async def _wait(self, task: Task, ctx: ClaimContext) -> types.CallToolResult:
        self.begun.append(task.task_id)
        async with asyncio.timeout(20):
            while True:
                await asyncio.sleep(task.poll_interval_ms / 1000)
                told = await ctx.session.send_request(GetTask(params=About(task_id=task.task_id)), Told)
                assert told.task_id == task.task_id
                if told.status == "completed":
                    return types.CallToolResult.model_validate(told.result)
                assert told.status == "working"

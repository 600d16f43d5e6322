"""The tasks of the everything-server: what has become of each, and the requests by which it is asked after.

The SDK knows the extension by name alone, so the methods, the header that mirrors a task's id, and the
subscription to tasks are written here by its specification (io.modelcontextprotocol/tasks of 2026-07-28).
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, cast

import mcp_types as types
from mcp.server import ServerRequestContext
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ServerEvent
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import SUBSCRIPTION_ID_META_KEY, event_matches, event_to_notification
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter
from pydantic.alias_generators import to_camel

Context = ServerRequestContext[Any, Any]

EXTENSION = "io.modelcontextprotocol/tasks"
REQUIRED: dict[str, Any] = {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
FINAL = ("completed", "failed", "cancelled")
ANSWERS: TypeAdapter[types.InputResponses] = TypeAdapter(types.InputResponses)


def takes_tasks(ctx: Context) -> bool:
    if ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        return False
    capabilities = ctx.session.client_capabilities
    return EXTENSION in ((capabilities.extensions if capabilities is not None else None) or {})


def require_tasks(ctx: Context) -> None:
    if not takes_tasks(ctx):
        raise MCPError(
            types.MISSING_REQUIRED_CLIENT_CAPABILITY, "Missing required client capability", REQUIRED
        )


class Params(types.RequestParams):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="allow")

    task_id: str
    input_responses: dict[str, Any] = Field(default_factory=dict)


class TaskTold(BaseModel):
    method: Literal["notifications/tasks"] = "notifications/tasks"
    params: dict[str, Any]


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass
class Job:
    """One task, as its tool sees it: something it can ask its client in."""

    on_changed: Callable[["Job"], None]
    id: str = field(default_factory=lambda: secrets.token_urlsafe(16))
    status: str = "working"
    created: str = field(default_factory=now)
    updated: str = field(default_factory=now)
    payload: dict[str, Any] = field(default_factory=dict)
    questions: dict[str, types.InputRequest] = field(default_factory=dict)
    answers: dict[str, types.InputResponse] = field(default_factory=dict)
    answered: asyncio.Event = field(default_factory=asyncio.Event)
    work: "asyncio.Task[None] | None" = None

    def become(self, status: str, **payload: Any) -> None:
        if self.status in FINAL:
            return
        self.status, self.payload, self.updated = status, payload, now()
        self.on_changed(self)

    async def ask(self, questions: types.InputRequests) -> types.InputResponses:
        self.questions = dict(questions)
        self._say_questions()
        while self.questions:
            self.answered.clear()
            await self.answered.wait()
        self.become("working")
        return {key: self.answers[key] for key in questions}

    def _say_questions(self) -> None:
        asked = {
            key: question.model_dump(by_alias=True, mode="json", exclude_none=True)
            for key, question in self.questions.items()
        }
        self.become("input_required", inputRequests=asked)

    def answer(self, responses: dict[str, Any]) -> None:
        known = {key: value for key, value in responses.items() if key in self.questions}
        self.answers |= ANSWERS.validate_python(known)
        for key in known:
            del self.questions[key]
        if known and self.questions:
            self._say_questions()
        self.answered.set()

    def shown(self) -> dict[str, Any]:
        return {
            "taskId": self.id,
            "status": self.status,
            "createdAt": self.created,
            "lastUpdatedAt": self.updated,
            "ttlMs": 600_000,
            "pollIntervalMs": 100,
            **self.payload,
        }


Work = Callable[[Job], Awaitable[types.CallToolResult]]


class Jobs:
    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}
        self._listeners: set[Callable[[Job], None]] = set()

    def begin(self, work: Work) -> dict[str, Any]:
        """The answer to the call that becomes a task."""
        job = Job(self._on_changed)
        self._jobs[job.id] = job
        result = {"resultType": "task", **job.shown()}
        job.work = asyncio.create_task(self._run(job, work))
        return result

    async def _run(self, job: Job, work: Work) -> None:
        try:
            result = await work(job)
        except asyncio.CancelledError:
            job.become("cancelled")
        except MCPError as error:
            job.become("failed", error=error.error.model_dump(mode="json", exclude_none=True))
        else:
            job.become("completed", result=result.model_dump(by_alias=True, mode="json", exclude_none=True))

    def _on_changed(self, job: Job) -> None:
        for listener in list(self._listeners):
            listener(job)

    # Requests

    async def get(self, ctx: Context, params: Params) -> dict[str, Any]:
        return {"resultType": "complete", **self._job(ctx, params).shown()}

    async def update(self, ctx: Context, params: Params) -> dict[str, Any]:
        self._job(ctx, params).answer(params.input_responses)
        return {"resultType": "complete"}

    async def cancel(self, ctx: Context, params: Params) -> dict[str, Any]:
        work = self._job(ctx, params).work
        if work is not None:
            work.cancel()
        return {"resultType": "complete"}

    def _job(self, ctx: Context, params: Params) -> Job:
        if ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            raise MCPError(types.METHOD_NOT_FOUND, "Method not found")
        if ctx.request is not None and ctx.request.headers.get("mcp-name") != params.task_id:
            raise MCPError(types.HEADER_MISMATCH, "Mcp-Name and params.taskId are not the same")
        require_tasks(ctx)
        if params.task_id not in self._jobs:
            raise MCPError(types.INVALID_PARAMS, "Failed to retrieve task: Task not found")
        return self._jobs[params.task_id]

    # Subscriptions

    def listening(self, bus: InMemorySubscriptionBus) -> "Listening":
        return Listening(self, bus)

    def listen(self, listener: Callable[[Job], None]) -> Callable[[], None]:
        self._listeners.add(listener)
        return lambda: self._listeners.discard(listener)

    def known(self, task_ids: list[str]) -> list[str]:
        return [each for each in task_ids if each in self._jobs]


class Listening:
    """`subscriptions/listen`: the SDK's own, unless tasks are among what is wanted."""

    def __init__(self, jobs: Jobs, bus: InMemorySubscriptionBus) -> None:
        self._jobs = jobs
        self._bus = bus
        self._of_sdk = ListenHandler(bus)

    async def __call__(
        self, ctx: Context, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        wanted = params.notifications
        task_ids = (wanted.model_extra or {}).get("taskIds")
        if not task_ids:
            return await self._of_sdk(ctx, params)
        require_tasks(ctx)
        meta: dict[str, Any] = {SUBSCRIPTION_ID_META_KEY: ctx.request_id}
        agreed = types.SubscriptionFilter.model_validate(
            {**wanted.model_dump(by_alias=True, exclude_none=True), "taskIds": self._jobs.known(task_ids)}
        )
        uris = frozenset(wanted.resource_subscriptions or ())
        news: asyncio.Queue[ServerEvent | dict[str, Any]] = asyncio.Queue()

        def on_job(job: Job) -> None:
            if job.id in task_ids:
                news.put_nowait(job.shown())

        def on_event(event: ServerEvent) -> None:
            if event_matches(wanted, uris, event):
                news.put_nowait(event)

        ends = [self._jobs.listen(on_job), self._bus.subscribe(on_event)]
        try:
            params_told = types.SubscriptionsAcknowledgedNotificationParams(notifications=agreed, _meta=meta)
            await self._say(ctx, types.SubscriptionsAcknowledgedNotification(params=params_told))
            while True:
                told = await news.get()
                if isinstance(told, dict):
                    await self._say(ctx, TaskTold(params={**told, "_meta": meta}))
                else:
                    await self._say(ctx, event_to_notification(told, meta))
        finally:
            for end in ends:
                end()

    async def _say(self, ctx: Context, notification: BaseModel) -> None:
        await ctx.session.send_notification(
            cast(types.ServerNotification, notification), related_request_id=ctx.request_id
        )

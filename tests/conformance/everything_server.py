"""A server with everything the official conformance suite asks for, on the Python SDK 2.3.

Run it with `stdio` or `http PORT` (then at http://127.0.0.1:PORT/mcp). It speaks both eras; `--era legacy`
knows nothing of 2026-07-28 and `--era modern` nothing but that. Every tool exists in both eras: what asks its
client does so by a request of its own in a session, and by `input_required` where there is none, so that the
scenarios of one era can be played through a gateway to a server of the other; tasks alone are of the newer.
"""

import argparse
import asyncio
import json
import re
import sys
import warnings
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast, get_args

import mcp_types as types
import uvicorn
from mcp.server import Server, ServerRequestContext
from mcp.server._streamable_http_modern import handle_modern_request
from mcp.server.caching import CacheableMethod, CacheHint
from mcp.server.lowlevel.server import NotificationOptions
from mcp.server.models import InitializationOptions
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.server.runner import _serve_modern_stream, serve_loop
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http import EventCallback, EventMessage, EventStore
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    PromptsListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.exceptions import MCPDeprecationWarning, MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_HANDSHAKE_VERSION, MODERN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

sys.path.append(str(Path(__file__).resolve().parents[2]))  # run as a script, it has to find its other half
from tests.conformance.everything_tasks import (
    EXTENSION,
    Job,
    Jobs,
    Params,
    require_tasks,
    takes_tasks,
)

Context = ServerRequestContext[Any, Any]
Content = list[types.ContentBlock]
Schema = dict[str, Any]

PATH = "/mcp"
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
SECURITY = TransportSecuritySettings(
    enable_dns_rebinding_protection=True,
    allowed_hosts=[f"{host}:*" for host in LOOPBACK],
    allowed_origins=[f"http://{host}:*" for host in LOOPBACK],
)
LISTS: tuple[CacheableMethod, ...] = (
    "server/discover",
    "tools/list",
    "prompts/list",
    "resources/list",
    "resources/templates/list",
)
RESOURCE_NOT_FOUND = -32002  # what a session is told; 2026-07-28 says "invalid params"
WATCHED = "test://watched-resource"

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR42mP4z8AAAAMBAQD3A0FDAAAAAElFTkSuQmCC"
SOUND = "UklGRiwAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQgAAACAgICAgICAgA=="


# What a tool or a prompt asks its client

CAPABILITIES = {
    "elicitation/create": "elicitation",
    "sampling/createMessage": "sampling",
    "roots/list": "roots",
}
ANSWERS: TypeAdapter[types.InputResponses] = TypeAdapter(types.InputResponses)


class Unanswered(Exception):
    """The request cannot go on before the client has answered; 2026-07-28 only."""

    def __init__(self, result: types.InputRequiredResult) -> None:
        super().__init__()
        self.result = result


class Begun(Exception):
    """The call goes on as a task."""

    def __init__(self, task: dict[str, Any]) -> None:
        super().__init__()
        self.task = task


@dataclass
class Call:
    """One tools/call or prompts/get under way, and the questions it may put to its client."""

    ctx: Context
    params: types.CallToolRequestParams | types.GetPromptRequestParams
    server: "Everything"

    @property
    def modern(self) -> bool:
        return self.ctx.protocol_version in MODERN_PROTOCOL_VERSIONS

    def argument(self, name: str) -> str:
        return str((self.params.arguments or {})[name])

    def can(self, request: types.InputRequest) -> bool:
        capabilities = self.ctx.session.client_capabilities
        return getattr(capabilities, CAPABILITIES[request.method], None) is not None

    async def ask(
        self, questions: types.InputRequests, *, remember: bool = False, blindly: bool = False
    ) -> types.InputResponses:
        """The answers, under the keys of the questions.

        In a session they are requested at once and awaited. Without one they come with the request or not at
        all. `remember` keeps them in the request state, so that a later question does not lose them; then
        answers without the state that belongs to them do not count. `blindly` asks in a session even what its
        client never said it can be asked, as careless servers do.
        """
        for question in questions.values():
            if self.modern or not blindly:
                self._demand(question)
        if not self.modern:
            answers = await asyncio.gather(*(self._request(question) for question in questions.values()))
            return dict(zip(questions, answers, strict=True))
        known: types.InputResponses = {}
        if self.params.request_state is not None:
            known = ANSWERS.validate_json(self.params.request_state)
        if not remember or self.params.request_state is not None:
            known |= self.params.input_responses or {}
        if questions.keys() <= known.keys():
            return {key: known[key] for key in questions}
        state = ANSWERS.dump_json(known, by_alias=True, exclude_none=True).decode() if remember else None
        raise Unanswered(types.InputRequiredResult(input_requests=questions, request_state=state))

    def _demand(self, question: types.InputRequest) -> None:
        if self.can(question):
            return
        capability = CAPABILITIES[question.method]
        if not self.modern:
            raise ValueError(f"the client cannot do {capability}")
        raise MCPError(
            types.MISSING_REQUIRED_CLIENT_CAPABILITY,
            f"This needs a client that can do {capability}",
            {"requiredCapabilities": {capability: {}}},
        )

    async def _request(self, question: types.InputRequest) -> types.InputResponse:
        here = ServerMessageMetadata(related_request_id=self.ctx.request_id)
        session = self.ctx.session
        match question:
            case types.ElicitRequest():
                return await session.send_request(question, types.ElicitResult, metadata=here)
            case types.CreateMessageRequest():
                return await session.send_request(question, types.CreateMessageResult, metadata=here)
            case types.ListRootsRequest():
                return await session.send_request(question, types.ListRootsResult, metadata=here)

    async def as_task(self, work: "Callable[[Asker], Awaitable[str]]", *, required: bool = False) -> str:
        """Do the work as a task where the client takes tasks; where it does not, at once or not at all."""
        if not takes_tasks(self.ctx):
            if required and self.modern:
                require_tasks(self.ctx)
            if required:
                raise ValueError("the client cannot do tasks")
            return await work(self)

        async def to_result(job: Job) -> types.CallToolResult:
            return await result_of(work(job))

        raise Begun(self.server.jobs.begin(to_result))

    async def log(self, text: str) -> None:
        """At level info: a session may have asked for less, a request without one must have asked for it."""
        if not self.modern and not self.server.wants_info(self.ctx):
            return
        await self.ctx.session.send_log_message("info", text, "everything", self.ctx.request_id)


class Asker(Protocol):
    """What can put questions to the client: a call, or the task it has become."""

    async def ask(self, questions: types.InputRequests) -> types.InputResponses: ...


async def result_of(work: Awaitable[str | Content]) -> types.CallToolResult:
    """What a tool has come to. A fault of the protocol's is none of its results."""
    try:
        result = await work
    except (MCPError, Unanswered, Begun):
        raise
    except Exception as failure:
        return types.CallToolResult(content=[types.TextContent(text=str(failure))], is_error=True)
    return types.CallToolResult(
        content=[types.TextContent(text=result)] if isinstance(result, str) else result
    )


def form(message: str, properties: Schema, required: list[str] | None = None) -> types.ElicitRequest:
    schema: Schema = {"type": "object", "properties": properties}
    if required:
        schema["required"] = required
    return types.ElicitRequest(params=types.ElicitRequestFormParams(message=message, requested_schema=schema))


def form_of_one(message: str, name: str, kind: str = "string") -> types.ElicitRequest:
    return form(message, {name: {"type": kind}}, [name])


def completion(prompt: str) -> types.CreateMessageRequest:
    said = types.SamplingMessage(role="user", content=types.TextContent(text=prompt))
    return types.CreateMessageRequest(
        params=types.CreateMessageRequestParams(messages=[said], max_tokens=100)
    )


def told(answer: types.InputResponse) -> str:
    """What the client answered, for a reader."""
    match answer:
        case types.ElicitResult():
            return f"action={answer.action}, content={json.dumps(answer.content)}"
        case types.ListRootsResult():
            return ", ".join(str(root.uri) for root in answer.roots)
        case _:
            return getattr(answer.content, "text", "(no text)")


# Tools

Tool = Callable[[Call], Awaitable[str | Content]]
TOOLS: dict[str, tuple[types.Tool, Tool]] = {}


def tool(description: str, schema: Schema | None = None) -> Callable[[Tool], Tool]:
    def add(function: Tool) -> Tool:
        name = function.__name__
        wanted = schema or {"type": "object", "properties": {}}
        TOOLS[name] = (types.Tool(name=name, description=description, input_schema=wanted), function)
        return function

    return add


def texts(*names: str, **more: Any) -> Schema:
    """The schema of a tool all of whose arguments are required strings."""
    properties = {name: {"type": "string", **more} for name in names}
    return {"type": "object", "properties": properties, "required": list(names)}


@tool("Answers with a text")
async def test_simple_text(call: Call) -> str:
    return "This is a simple text response for testing."


@tool("Answers with an image")
async def test_image_content(call: Call) -> Content:
    return [types.ImageContent(data=PIXEL, mime_type="image/png")]


@tool("Answers with a sound")
async def test_audio_content(call: Call) -> Content:
    return [types.AudioContent(data=SOUND, mime_type="audio/wav")]


@tool("Answers with a resource in full")
async def test_embedded_resource(call: Call) -> Content:
    return [embedded("test://embedded-resource", "This is an embedded resource content.")]


@tool("Answers with contents of three kinds")
async def test_multiple_content_types(call: Call) -> Content:
    return [
        types.TextContent(text="Multiple content types test:"),
        types.ImageContent(data=PIXEL, mime_type="image/png"),
        embedded("test://mixed-content-resource", '{"test":"data","value":123}', "application/json"),
    ]


@tool("Fails, as tools do")
async def test_error_handling(call: Call) -> str:
    raise ValueError("This tool intentionally returns an error for testing")


@tool("Logs three times on its way")
async def test_tool_with_logging(call: Call) -> str:
    await call.log("Tool execution started")
    await asyncio.sleep(0.05)
    await call.log("Tool processing data")
    await asyncio.sleep(0.05)
    await call.log("Tool execution completed")
    return "Logged three times"


@tool("Logs once, if that is wanted")
async def test_logging_tool(call: Call) -> str:
    await call.log("This tool was called")
    return "Logged once"


@tool("Reports progress three times on its way")
async def test_tool_with_progress(call: Call) -> str:
    for percent in (0, 50, 100):
        await call.ctx.session.report_progress(percent, 100)
        await asyncio.sleep(0.05)
    return "Done"


@tool("Closes its stream, then answers on the one the client opens instead")
async def test_reconnection(call: Call) -> str:
    await call.log("The stream is about to close")
    if call.ctx.close_sse_stream is not None:
        await call.ctx.close_sse_stream()
        await asyncio.sleep(0.1)
    return "Reconnection test completed"


@tool("Asks the model of the client", texts("prompt"))
async def test_sampling(call: Call) -> str:
    answers = await call.ask({"reply": completion(call.argument("prompt"))})
    return f"LLM response: {told(answers['reply'])}"


@tool("Asks the model of the client, in a session even if there is none")
async def test_missing_capability(call: Call) -> str:
    answers = await call.ask({"reply": completion("Can you be asked?")}, blindly=True)
    return told(answers["reply"])


@tool("Asks the user for a name and an address", texts("message"))
async def test_elicitation(call: Call) -> str:
    described = {
        "username": {"type": "string", "description": "User's response"},
        "email": {"type": "string", "description": "User's email address"},
    }
    answers = await call.ask({"user": form(call.argument("message"), described, list(described))})
    return f"User response: {told(answers['user'])}"


@tool("Asks the user on the stream of the call")
async def test_streaming_elicitation(call: Call) -> str:
    await call.ctx.session.report_progress(0, 1)
    answers = await call.ask({"go_on": form_of_one("Shall this go on?", "ok", "boolean")})
    return told(answers["go_on"])


@tool("Asks for values that have defaults")
async def test_elicitation_sep1034_defaults(call: Call) -> str:
    fields: Schema = {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": True},
    }
    answers = await call.ask({"values": form("Please check these values", fields)})
    return f"Elicitation completed: {told(answers['values'])}"


@tool("Asks for choices in all five notations")
async def test_elicitation_sep1330_enums(call: Call) -> str:
    plain = ["option1", "option2", "option3"]
    titled = [{"const": f"value{n}", "title": f"Choice {n}"} for n in (1, 2, 3)]
    fields: Schema = {
        "untitledSingle": {"type": "string", "enum": plain},
        "titledSingle": {"type": "string", "oneOf": titled},
        "legacyEnum": {"type": "string", "enum": ["opt1", "opt2"], "enumNames": ["Option One", "Option Two"]},
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": plain}},
        "titledMulti": {"type": "array", "items": {"anyOf": titled}},
    }
    answers = await call.ask({"choices": form("Please choose", fields)})
    return f"Elicitation completed: {told(answers['choices'])}"


@tool("Asks the user one question")
async def test_input_required_result_elicitation(call: Call) -> str:
    answers = await call.ask({"user_name": form_of_one("What is your name?", "name")})
    return f"Hello: {told(answers['user_name'])}"


@tool("Asks the model of the client one question")
async def test_input_required_result_sampling(call: Call) -> str:
    answers = await call.ask({"capital_question": completion("What is the capital of France?")})
    return told(answers["capital_question"])


@tool("Asks the client for its roots")
async def test_input_required_result_list_roots(call: Call) -> str:
    answers = await call.ask({"client_roots": types.ListRootsRequest()})
    return told(answers["client_roots"])


@tool("Asks a question whose answer counts only with the state that went with it")
async def test_input_required_result_request_state(call: Call) -> str:
    answers = await call.ask({"confirm": form_of_one("Please confirm", "ok", "boolean")}, remember=True)
    return f"state-ok: {told(answers['confirm'])}"


@tool("Asks a question with a state that must come back as it went")
async def test_input_required_result_tampered_state(call: Call) -> str:
    answers = await call.ask({"confirm": form_of_one("Please confirm", "ok", "boolean")}, remember=True)
    return told(answers["confirm"])


@tool("Asks three questions of three kinds at once")
async def test_input_required_result_multiple_inputs(call: Call) -> str:
    answers = await call.ask(
        {
            "user_name": form_of_one("What is your name?", "name"),
            "greeting": completion("Generate a greeting"),
            "client_roots": types.ListRootsRequest(),
        },
        remember=True,
    )
    return "; ".join(told(answer) for answer in answers.values())


@tool("Asks two questions, one after the other")
async def test_input_required_result_multi_round(call: Call) -> str:
    first = await call.ask({"step1": form_of_one("Step 1: What is your name?", "name")}, remember=True)
    second = await call.ask(
        {"step2": form_of_one("Step 2: What is your favorite color?", "color")}, remember=True
    )
    return f"{told(first['step1'])}; {told(second['step2'])}"


@tool("Asks only what the client can be asked")
async def test_input_required_result_capabilities(call: Call) -> str:
    questions: types.InputRequests = {
        "name": form_of_one("What is your name?", "name"),
        "greeting": completion("Generate a greeting"),
        "roots": types.ListRootsRequest(),
    }
    answers = await call.ask({key: asked for key, asked in questions.items() if call.can(asked)})
    return "; ".join(told(answer) for answer in answers.values()) or "nothing could be asked"


@tool("Adds a tool to the list or takes it away again, and says so")
async def test_trigger_tool_change(call: Call) -> str:
    call.server.more_tools = not call.server.more_tools
    await call.server.tell(ToolsListChanged(), types.ToolListChangedNotification())
    return "The list of tools is another one now"


@tool("Adds a prompt to the list or takes it away again, and says so")
async def test_trigger_prompt_change(call: Call) -> str:
    call.server.more_prompts = not call.server.more_prompts
    await call.server.tell(PromptsListChanged(), types.PromptListChangedNotification())
    return "The list of prompts is another one now"


@tool("Tells those who subscribed to the watched resource that it changed")
async def test_trigger_resource_update(call: Call) -> str:
    updated = types.ResourceUpdatedNotification(params=types.ResourceUpdatedNotificationParams(uri=WATCHED))
    await call.server.tell(ResourceUpdated(uri=WATCHED), updated, call.server.watchers)
    return "The watched resource is another one now"


@tool("Takes an argument that also travels as a header", texts("region", **{"x-mcp-header": "Region"}))
async def test_header_parameter(call: Call) -> str:
    return f"Region: {call.argument('region')}"


@tool(
    "Tool with JSON Schema 2020-12 features",
    {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
            }
        },
        "properties": {
            "name": {"type": "string"},
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": {"type": "string"},
            "email": {"type": "string"},
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": False,
    },
)
async def json_schema_2020_12_tool(call: Call) -> str:
    return f"Called with: {json.dumps(call.params.arguments)}"


@tool("Sends the user to an address, and says in a session when he has been there")
async def send_away(call: Call) -> str:
    visit = types.ElicitRequestURLParams(
        message="Please go there", url="https://visit.me/", elicitation_id=None if call.modern else "visit-1"
    )
    answers = await call.ask({"visit": types.ElicitRequest(params=visit)})
    if not call.modern:
        await call.ctx.session.send_elicit_complete("visit-1")
    return told(answers["visit"])


# Tools that take long


@tool("Greets, at once", texts("name"))
async def greet(call: Call) -> str:
    return f"Hello, {call.argument('name')}!"


@tool(
    "Takes as long as it is told, as a task; else no longer than a second",
    {"type": "object", "properties": {"seconds": {"type": "number"}, "label": {"type": "string"}}},
)
async def slow_compute(call: Call) -> str:
    seconds = float(call.argument("seconds"))

    async def work(asker: Asker) -> str:
        await asyncio.sleep(min(seconds, 1) if asker is call else seconds)
        return f"Computed for {seconds:g} s"

    return await (call.as_task(work) if seconds else work(call))


@tool("Fails after a moment; only as a task")
async def failing_job(call: Call) -> str:
    async def work(asker: Asker) -> str:
        await asyncio.sleep(0.2)
        raise ValueError("The job has failed")

    return await call.as_task(work, required=True)


@tool("Comes to no result at all")
async def protocol_error_job(call: Call) -> str:
    async def work(asker: Asker) -> str:
        raise MCPError(types.INTERNAL_ERROR, "The job is out of order")

    return await call.as_task(work)


@tool("Asks before it deletes", texts("filename"))
async def confirm_delete(call: Call) -> str:
    async def work(asker: Asker) -> str:
        answers = await asker.ask({"confirm": form_of_one("Delete it?", "confirm", "boolean")})
        return f"{call.argument('filename')}: {told(answers['confirm'])}"

    return await call.as_task(work)


@tool("Asks two questions at once, for good or never; only as a task")
async def multi_input(call: Call) -> str:
    async def work(asker: Asker) -> str:
        answers = await asker.ask(
            {"first": form_of_one("First?", "name"), "second": form_of_one("Second?", "name")}
        )
        return "; ".join(told(answer) for answer in answers.values())

    return await call.as_task(work, required=True)


@tool("Asks, then goes on as a task; only as a task")
async def test_tool_with_task(call: Call) -> str:
    answers = await call.ask({"user_name": form_of_one("What is your name?", "name")})

    async def work(asker: Asker) -> str:
        return f"Hello, {told(answers['user_name'])}!"

    return await call.as_task(work, required=True)


@tool("In the list only every other time that list is changed")
async def test_tool_that_comes_and_goes(call: Call) -> str:
    return "Here"


# Prompts and resources

PROMPTS = {
    prompt.name: prompt
    for prompt in (
        types.Prompt(name="test_simple_prompt", description="A prompt without arguments"),
        types.Prompt(
            name="test_prompt_with_arguments",
            description="A prompt with arguments",
            arguments=[
                types.PromptArgument(name=name, description=f"The {nth} argument", required=True)
                for name, nth in (("arg1", "first"), ("arg2", "second"))
            ],
        ),
        types.Prompt(
            name="test_prompt_with_embedded_resource",
            description="A prompt with a resource in full",
            arguments=[types.PromptArgument(name="resourceUri", description="Which one", required=True)],
        ),
        types.Prompt(name="test_prompt_with_image", description="A prompt with an image"),
        types.Prompt(name="test_input_required_result_prompt", description="A prompt that asks the user"),
        types.Prompt(name="test_prompt_that_comes_and_goes", description="Listed every other time"),
    )
}
RESOURCES = [
    types.Resource(uri="test://static-text", name="text", description="A text", mime_type="text/plain"),
    types.Resource(uri="test://static-binary", name="image", description="A pixel", mime_type="image/png"),
    types.Resource(uri=WATCHED, name="watched", description="It may change", mime_type="text/plain"),
]
TEMPLATE = types.ResourceTemplate(
    uri_template="test://template/{id}/data",
    name="template",
    description="A resource for each id",
    mime_type="application/json",
)


def embedded(uri: str, text: str, kind: str = "text/plain") -> types.EmbeddedResource:
    contents = types.TextResourceContents(uri=uri, mime_type=kind, text=text)
    return types.EmbeddedResource(resource=contents)


async def messages(call: Call, name: str) -> Content:
    match name:
        case "test_simple_prompt":
            return [types.TextContent(text="This is a simple prompt for testing.")]
        case "test_prompt_with_arguments":
            said = f"Prompt with arguments: arg1='{call.argument('arg1')}', arg2='{call.argument('arg2')}'"
            return [types.TextContent(text=said)]
        case "test_prompt_with_embedded_resource":
            resource = embedded(call.argument("resourceUri"), "Embedded resource content for testing.")
            return [resource, types.TextContent(text="Please process the embedded resource above.")]
        case "test_prompt_with_image":
            image = types.ImageContent(data=PIXEL, mime_type="image/png")
            return [image, types.TextContent(text="Please analyze the image above.")]
        case "test_input_required_result_prompt":
            question = form_of_one("What context should the prompt use?", "context")
            answers = await call.ask({"user_context": question})
            return [types.TextContent(text=f"Consider: {told(answers['user_context'])}")]
        case _:
            return [types.TextContent(text="Here")]


# The server

LEVELS: tuple[str, ...] = get_args(types.LoggingLevel)


class Everything(Server[Any]):
    """The server, and what it has to know of the sessions it has.

    A session is known by its id, or as `stdio`: the level of logs it wants, whether it watches the resource,
    and how to tell it that a list changed. Requests without a session listen on the bus instead.
    """

    def __init__(self) -> None:
        self.bus = InMemorySubscriptionBus()
        self.sessions: dict[str, Context] = {}
        self.levels: dict[str, types.LoggingLevel] = {}
        self.watchers: set[str] = set()
        self.more_tools = False
        self.more_prompts = False
        self.jobs = Jobs()
        super().__init__(
            "everything",
            version="1.0.0",
            instructions="Every tool is named after the scenario that calls it.",
            cache_hints={method: CacheHint(ttl_ms=5000, scope="public") for method in LISTS},
            get_tool_input_schema=self._schema_of,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_prompts=self._list_prompts,
            on_get_prompt=self._get_prompt,
            on_list_resources=self._list_resources,
            on_list_resource_templates=self._list_templates,
            on_read_resource=self._read_resource,
            on_subscribe_resource=self._subscribe,
            on_unsubscribe_resource=self._unsubscribe,
            on_completion=self._complete,
            on_subscriptions_listen=self.jobs.listening(self.bus),
        )
        self.extensions[EXTENSION] = {}
        for method, handler in (
            ("tasks/get", self.jobs.get),
            ("tasks/update", self.jobs.update),
            ("tasks/cancel", self.jobs.cancel),
        ):
            self.add_request_handler(method, Params, handler)
        self.add_request_handler("logging/setLevel", types.SetLevelRequestParams, self._set_level)
        self.add_notification_handler(
            "notifications/initialized", types.NotificationParams, self._initialized
        )
        self.middleware.append(
            RequestStateBoundary(RequestStateSecurity.ephemeral(), default_audience="everything")
        )

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        """The SDK's HTTP transport passes no options, and lists would then never be said to change."""
        return super().create_initialization_options(
            NotificationOptions(prompts_changed=True, resources_changed=True, tools_changed=True)
        )

    def wants_info(self, ctx: Context) -> bool:
        return LEVELS.index(self.levels.get(session_of(ctx), "debug")) <= LEVELS.index("info")

    async def tell(
        self, event: ServerEvent, notification: types.ServerNotification, only: set[str] | None = None
    ) -> None:
        """Every listening client of 2026-07-28, and every session or those in `only`."""
        await self.bus.publish(event)
        for name, ctx in list(self.sessions.items()):
            if only is None or name in only:
                with suppress(Exception):  # the session may have ended
                    await ctx.session.send_notification(notification)

    async def _initialized(self, ctx: Context, params: types.NotificationParams) -> None:
        self.sessions[session_of(ctx)] = ctx

    async def _set_level(self, ctx: Context, params: types.SetLevelRequestParams) -> types.EmptyResult:
        self.levels[session_of(ctx)] = params.level
        return types.EmptyResult()

    def _schema_of(self, name: str) -> Schema | None:
        return TOOLS[name][0].input_schema if name in TOOLS else None

    async def _list_tools(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        listed = [tool for tool, _ in TOOLS.values()]
        return types.ListToolsResult(tools=listed if self.more_tools else listed[:-1])

    async def _call_tool(
        self, ctx: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        if params.name not in TOOLS:
            raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {params.name}")
        _, run = TOOLS[params.name]
        call = Call(ctx, params, self)
        try:
            return await result_of(run(call))
        except Unanswered as unanswered:
            return unanswered.result
        except Begun as begun:
            return cast(types.CallToolResult, begun.task)  # a kind of result the SDK has no type for
        except MCPError as failure:
            if call.modern:
                raise
            return types.CallToolResult(content=[types.TextContent(text=str(failure))], is_error=True)

    async def _list_prompts(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListPromptsResult:
        listed = list(PROMPTS.values())
        return types.ListPromptsResult(prompts=listed if self.more_prompts else listed[:-1])

    async def _get_prompt(
        self, ctx: Context, params: types.GetPromptRequestParams
    ) -> types.GetPromptResult | types.InputRequiredResult:
        if params.name not in PROMPTS:
            raise MCPError(types.INVALID_PARAMS, f"Unknown prompt: {params.name}")
        try:
            contents = await messages(Call(ctx, params, self), params.name)
        except Unanswered as unanswered:
            return unanswered.result
        return types.GetPromptResult(
            messages=[types.PromptMessage(role="user", content=content) for content in contents]
        )

    async def _list_resources(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        return types.ListResourcesResult(resources=RESOURCES)

    async def _list_templates(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        return types.ListResourceTemplatesResult(resource_templates=[TEMPLATE])

    async def _read_resource(
        self, ctx: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        contents: types.TextResourceContents | types.BlobResourceContents
        uri = params.uri
        if uri == "test://static-binary":
            contents = types.BlobResourceContents(uri=uri, mime_type="image/png", blob=PIXEL)
        elif uri in ("test://static-text", WATCHED):
            said = "This is the content of the static text resource."
            contents = types.TextResourceContents(uri=uri, mime_type="text/plain", text=said)
        elif found := re.fullmatch(r"test://template/([^/]+)/data", uri):
            said = json.dumps({"id": found[1], "templateTest": True, "data": f"Data for ID: {found[1]}"})
            contents = types.TextResourceContents(uri=uri, mime_type="application/json", text=said)
        else:
            modern = ctx.protocol_version in MODERN_PROTOCOL_VERSIONS
            code = types.INVALID_PARAMS if modern else RESOURCE_NOT_FOUND
            raise MCPError(code, "Resource not found", {"uri": uri})
        return types.ReadResourceResult(contents=[contents])

    async def _subscribe(self, ctx: Context, params: types.SubscribeRequestParams) -> types.EmptyResult:
        if params.uri == WATCHED:
            self.watchers.add(session_of(ctx))
        return types.EmptyResult()

    async def _unsubscribe(self, ctx: Context, params: types.UnsubscribeRequestParams) -> types.EmptyResult:
        if params.uri == WATCHED:
            self.watchers.discard(session_of(ctx))
        return types.EmptyResult()

    async def _complete(self, ctx: Context, params: types.CompleteRequestParams) -> types.CompleteResult:
        cities = [city for city in ("paris", "park", "party") if city.startswith(params.argument.value)]
        return types.CompleteResult(completion=types.Completion(values=cities, total=len(cities)))


def session_of(ctx: Context) -> str:
    """The name of the session a request belongs to; there is but one on stdio."""
    return "stdio" if ctx.request is None else str(ctx.request.headers.get("mcp-session-id", ""))


class Replay(EventStore):
    """Keeps what went out on streams of a session, so that a client that lost one can read on."""

    def __init__(self) -> None:
        self._kept: list[tuple[str, types.JSONRPCMessage | None]] = []

    async def store_event(self, stream_id: str, message: types.JSONRPCMessage | None) -> str:
        self._kept.append((stream_id, message))
        return str(len(self._kept))

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        last = int(last_event_id)
        stream = self._kept[last - 1][0]
        for place, (of, message) in enumerate(self._kept[last:], last + 1):
            if of == stream and message is not None:
                await send_callback(EventMessage(message, str(place)))
        return stream


# How it is reached


def both_eras(server: Everything) -> Starlette:
    return server.streamable_http_app(
        streamable_http_path=PATH, event_store=Replay(), retry_interval=50, transport_security=SECURITY
    )


def legacy_only(server: Everything) -> ASGIApp:
    """Answers what it does not know as `mcp` 1.30 does: a version nobody told it of opens no session."""
    known = both_eras(server)

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            version = headers.get("mcp-protocol-version", LATEST_HANDSHAKE_VERSION)
            if version not in HANDSHAKE_PROTOCOL_VERSIONS:
                if "mcp-session-id" in headers:
                    await refusal(f"Bad Request: Unsupported protocol version: {version}")(
                        scope, receive, send
                    )
                    return
                rest = [pair for pair in scope["headers"] if pair[0] != b"mcp-protocol-version"]
                scope = {**scope, "headers": rest}
        await known(scope, receive, send)

    return serve


def refusal(message: str) -> JSONResponse:
    error = {"code": types.INVALID_REQUEST, "message": message}
    return JSONResponse({"jsonrpc": "2.0", "id": "server-error", "error": error}, 400)


class ModernOnly:
    """Every request is one of 2026-07-28 or refused; the SDK would take the others to its sessions."""

    def __init__(self, server: Everything) -> None:
        self._server = server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await handle_modern_request(self._server, SECURITY, False, {}, scope, receive, send)


def serve_http(server: Everything, era: str, port: int) -> None:
    app: ASGIApp
    match era:
        case "legacy":
            app = legacy_only(server)
        case "modern":
            app = Starlette(routes=[Route(PATH, ModernOnly(server))])
        case _:
            app = both_eras(server)
    # httptools leaves the spaces behind a header's value in place, and the SDK then finds the wrong name.
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="error", http="h11")


async def serve_stdio(server: Everything, era: str) -> None:
    options = server.create_initialization_options()
    async with stdio_server() as (reading, writing):
        match era:
            case "legacy":
                await serve_loop(server, reading, writing, lifespan_state={}, init_options=options)
            case "modern":
                await _serve_modern_stream(
                    server, reading, writing, lifespan_state={}, raise_exceptions=False
                )
            case _:
                await server.run(reading, writing, options)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("transport", choices=["stdio", "http"])
    parser.add_argument("port", type=int, nargs="?", default=0)
    parser.add_argument("--era", choices=["legacy", "modern", "both"], default="both")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", MCPDeprecationWarning)
    server = Everything()
    if arguments.transport == "stdio":
        asyncio.run(serve_stdio(server, arguments.era))
    else:
        serve_http(server, arguments.era, arguments.port)


if __name__ == "__main__":
    main()

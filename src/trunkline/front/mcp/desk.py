"""What a client may ask, in either era: one method in, the result in the client's own words out.

It finds out who is meant, hands on, and translates what comes back. It holds no session and writes no
envelope; `modern.py` and `legacy.py` do, and answer the few methods that only their era has.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

import msgspec

from trunkline.core.gateway import Gateway
from trunkline.errors import (
    ExecutionFailed,
    NotFound,
    RateLimited,
    ToolAmbiguous,
    ToolNotFound,
    TooManyCalls,
    TrunklineError,
)
from trunkline.front.mcp.envelope import Posted, RpcFailure, object_of, text_of
from trunkline.model import Call, Counterpart, Errand, Outcome, Principal, Scope
from trunkline.wire import eras, jsonrpc, tasks, translate

LISTS = frozenset({"tools/list", "prompts/list", "resources/list", "resources/templates/list"})
_CALLERS = frozenset(scope for scope in Scope if scope.includes(Scope.CALL))
_EMPTY = msgspec.Raw(b"{}")
_ANSWERS = ("inputResponses", "requestState")
_APART = ("_meta", *_ANSWERS)
"""Parameters that do not simply travel on with the others."""
_OF_CALL = ("name", "arguments", "task")
"""Those of a call that are read; `task` asks for a task of 2025-11-25, which are not relayed."""


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who asks, and at which address."""

    principal: Principal
    view: str | None
    """The one server whose address it is; None for the address of all."""
    request_id: str


class Desk:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._methods: Mapping[str, Callable[[Visitor, Posted, Counterpart], Awaitable[bytes]]] = {
            "tools/call": self._call_tool,
            "prompts/get": self._get_prompt,
            "resources/read": self._read_resource,
            "completion/complete": self._complete,
            tasks.GET: self._get_task,
            tasks.UPDATE: self._change_task,
            tasks.CANCEL: self._change_task,
        }

    async def answer(self, visitor: Visitor, posted: Posted, client: Counterpart) -> bytes:
        """The raw result. Raises `RpcFailure`."""
        method = posted.method or ""
        try:
            if method in LISTS:
                return self._list(visitor, posted, client)
            if method not in self._methods or (method in tasks.METHODS and not client.modern):
                raise RpcFailure(jsonrpc.METHOD_NOT_FOUND, f"Method not found: {method[:100]}")
            if method != tasks.GET:
                require_call(visitor.principal, method)
            return await self._methods[method](visitor, posted, client)
        except TrunklineError as error:
            failure = failure_of(error, method, modern=client.modern)
            if client.modern and failure.code == translate.URL_ELICITATION_REQUIRED:
                return _asked_by_error(failure, client)
            raise failure from None

    def _list(self, visitor: Visitor, posted: Posted, client: Counterpart) -> bytes:
        cursor = text_of(posted.params["cursor"], "cursor") if "cursor" in posted.params else None
        shelf = self._gateway.shelf(visitor.view)
        try:
            members = shelf.page(posted.method or "", modern=client.modern, cursor=cursor)
        except ValueError:
            raise RpcFailure(jsonrpc.INVALID_PARAMS, "The cursor is not one this gateway gave") from None
        if client.modern:
            return b'{"resultType":"complete",%b,"ttlMs":0,"cacheScope":"private"}' % members
        return b"{%b}" % members

    async def _call_tool(self, visitor: Visitor, posted: Posted, client: Counterpart) -> bytes:
        params = posted.params
        name = posted.text("name")
        arguments = bytes(params.get("arguments", _EMPTY)).strip()
        if arguments[:1] != b"{":
            if arguments != b"null":
                raise RpcFailure(jsonrpc.INVALID_PARAMS, "The parameter 'arguments' must be an object")
            arguments = b"{}"
        shelf = self._gateway.shelf(visitor.view)
        tool = shelf.tools.get(name)
        call = Call(
            principal=visitor.principal,
            name=tool.original_name if tool is not None else name,
            arguments=arguments,
            server_id=tool.server_id if tool is not None else self._server_of(visitor),
            request_id=visitor.request_id,
            members=_others(params),
            answers=_answers(params),
            counterpart=client,
        )
        outcome = await self._gateway.call(call)
        if outcome.task:
            return self._gateway.tasks.begun(outcome, visitor.principal)
        result = translated("tools/call", outcome, client)
        limit = self._gateway.settings.result_limit
        return result if len(result) <= limit else translate.cut(result, limit)

    def _server_of(self, visitor: Visitor) -> str | None:
        return self._gateway.get_server(visitor.view).id if visitor.view is not None else None

    async def _get_prompt(self, visitor: Visitor, posted: Posted, client: Counterpart) -> bytes:
        name = posted.text("name")
        found = self._gateway.shelf(visitor.view).prompts.get(name)
        if found is None:
            raise RpcFailure(jsonrpc.INVALID_PARAMS, f"Unknown prompt: {name[:200]}")
        members = {**posted.params, "name": msgspec.Raw(jsonrpc.quote(found.key))}
        return await self._relay(found.server_id, "prompts/get", members, found.key, client)

    async def _read_resource(self, visitor: Visitor, posted: Posted, client: Counterpart) -> bytes:
        uri = posted.text("uri")
        found = self._gateway.shelf(visitor.view).resource_at(uri)
        if found is None:
            raise resource_not_found(uri, modern=client.modern)
        members = {**posted.params, "uri": msgspec.Raw(jsonrpc.quote(found.key))}
        return await self._relay(found.server_id, "resources/read", members, found.key, client)

    async def _complete(self, visitor: Visitor, posted: Posted, client: Counterpart) -> bytes:
        """The reference says whose it is, under a name of ours."""
        reference = object_of(posted.params.get("ref"), "ref")
        shelf = self._gateway.shelf(visitor.view)
        kind, name = reference.get("type"), reference.get("name")
        if kind == "ref/prompt" and isinstance(name, str):
            prompt = shelf.prompts.get(name)
            if prompt is None:
                raise RpcFailure(jsonrpc.INVALID_PARAMS, f"Unknown prompt: {name[:200]}")
            server_id, reference = prompt.server_id, {**reference, "name": prompt.key}
        else:
            uri = reference.get("uri")
            owner = shelf.owner_of(uri) if isinstance(uri, str) else None
            if owner is None:
                raise RpcFailure(jsonrpc.INVALID_PARAMS, "The parameter 'ref' names nothing that is here")
            server_id = owner
        members = {**posted.params, "ref": msgspec.Raw(msgspec.json.encode(reference))}
        return await self._relay(server_id, "completion/complete", members, None, client)

    async def _get_task(self, visitor: Visitor, posted: Posted, client: Counterpart) -> bytes:
        server_id, errand = self._about_task(visitor, posted, client)
        outcome = await self._gateway.relay(server_id, errand)
        try:
            result = tasks.with_id(translated(tasks.GET, outcome, client), posted.text("taskId"))
            return tasks.within(result, self._gateway.settings.result_limit)
        except jsonrpc.Malformed:
            raise RpcFailure(
                jsonrpc.INTERNAL_ERROR, f"{outcome.server_name} told of the task in a way that cannot be read"
            ) from None

    async def _change_task(self, visitor: Visitor, posted: Posted, client: Counterpart) -> bytes:
        """Answer what it asks, or cancel it."""
        server_id, errand = self._about_task(visitor, posted, client)
        outcome = await self._gateway.change_task(server_id, errand, visitor.principal, visitor.request_id)
        return translated(errand.method, outcome, client)

    def _about_task(self, visitor: Visitor, posted: Posted, client: Counterpart) -> tuple[str, Errand]:
        """The server that has the task, and the request as it is understood there."""
        require_tasks(client)
        task_id = posted.text("taskId")
        found = self._gateway.tasks.find(task_id, visitor.principal, self._server_of(visitor))
        if found is None:
            raise RpcFailure(jsonrpc.INVALID_PARAMS, "There is no such task, or it belongs to another key")
        more = {key: bytes(raw) for key, raw in posted.params.items() if key not in ("_meta", "taskId")}
        params = tasks.params_of(found.key, translate.joined(more)[1:-1])
        return found.server_id, Errand(posted.method or "", params, found.key, counterpart=client)

    async def _relay(
        self,
        server_id: str,
        method: str,
        members: Mapping[str, msgspec.Raw],
        subject: str | None,
        client: Counterpart,
    ) -> bytes:
        kept = {name: bytes(raw) for name, raw in members.items() if name not in _APART}
        params = translate.joined(kept)[1:-1]
        errand = Errand(method, params, subject, answers=_answers(members), counterpart=client)
        outcome = await self._gateway.relay(server_id, errand)
        return translated(method, outcome, client)


def may_call(principal: Principal) -> bool:
    return principal.scope in _CALLERS


def require_call(principal: Principal, method: str) -> None:
    """Raises `RpcFailure` for a key that may only read."""
    if not may_call(principal):
        raise RpcFailure(
            jsonrpc.INVALID_REQUEST,
            f"{method} needs a key with scope call; this one has {principal.scope}",
            status=403,
        )


def require_tasks(client: Counterpart) -> None:
    """Raises `RpcFailure` for a client that does not say with this request that it knows tasks."""
    if not tasks.declared(client.capabilities):
        message = f"The client must declare {tasks.EXTENSION} with this request"
        raise RpcFailure(eras.MISSING_CAPABILITY, message, tasks.REQUIRED)


def _others(params: Mapping[str, msgspec.Raw]) -> bytes:
    if len(params) <= 3 and params.keys() <= {"name", "arguments", "_meta"}:
        return b""
    kept = {key: bytes(raw) for key, raw in params.items() if key not in (*_OF_CALL, *_APART)}
    return translate.joined(kept)[1:-1]


def _answers(params: Mapping[str, msgspec.Raw]) -> bytes:
    given = {key: bytes(params[key]) for key in _ANSWERS if key in params}
    return translate.joined(given)[1:-1] if given else b""


def _asked_by_error(failure: RpcFailure, client: Counterpart) -> bytes:
    """An older server that wants its user to visit an address refuses the call; a newer client is asked.

    It calls again when the user has been there, and the call is made anew.
    """
    asked = translate.questions_of_error(failure.data or b"{}")
    able = object_of(msgspec.Raw(client.capabilities), "clientCapabilities")
    for method, params in asked.values():
        if not translate.can_answer(able, method, params):
            needed = translate.required_capabilities(method, params)
            raise RpcFailure(eras.MISSING_CAPABILITY, failure.message, needed)
    if not asked:
        raise RpcFailure(jsonrpc.INTERNAL_ERROR, failure.message, failure.data)
    return translate.input_required(asked)


def translated(method: str, outcome: Outcome, client: Counterpart) -> bytes:
    """Nothing is touched where both speak one era, and the server speaks it as it should."""
    if outcome.result[:1] != b"{" and outcome.result.lstrip()[:1] != b"{":
        raise RpcFailure(
            jsonrpc.INTERNAL_ERROR, f"{outcome.server_name} answered with something that is no object"
        )
    if outcome.modern is client.modern and (not client.modern or translate.is_marked(outcome.result)):
        return outcome.result
    return (
        translate.to_modern(method, outcome.result) if client.modern else translate.to_legacy(outcome.result)
    )


def resource_not_found(uri: str, *, modern: bool) -> RpcFailure:
    code = jsonrpc.INVALID_PARAMS if modern else translate.RESOURCE_NOT_FOUND
    return RpcFailure(code, f"Resource not found: {uri[:500]}", msgspec.json.encode({"uri": uri}))


def failure_of(error: TrunklineError, method: str, *, modern: bool) -> RpcFailure:
    """Why it could not be done, as JSON-RPC says it. A server's own error passes with its own code."""
    context = dict(error.context)
    if isinstance(error, ExecutionFailed) and isinstance(context.get("code"), int):
        code = int(str(context["code"]))
        code = (
            translate.error_code_for_modern(code) if modern else translate.error_code_for_legacy(code, method)
        )
        data = context.get("data")
        return RpcFailure(
            code, str(context.get("message")), bytes(data) if isinstance(data, msgspec.Raw) else None
        )
    code = jsonrpc.INTERNAL_ERROR
    if isinstance(error, ToolNotFound | ToolAmbiguous | NotFound):
        code = jsonrpc.INVALID_PARAMS
    data = msgspec.json.encode({"error_code": error.code, **error.extra, **context}, enc_hook=str)
    status = error.status if isinstance(error, TooManyCalls | RateLimited) else None
    failure = RpcFailure(code, error.detail, data, status=status)
    failure.retry_after = error.retry_after
    return failure

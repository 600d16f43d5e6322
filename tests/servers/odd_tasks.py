"""An MCP server of the newer era, without an SDK, whose tasks are whatever it is told they are.

Run as `python odd_tasks.py PORT`. Its tools: `begin` answers with a task of the given members, whether its
client takes tasks or not, `alone` only if it does; `become` says what that task is from now on, and tells who
listens (an `eager` task is told of at once); `cut` ends all subscriptions, `forget` a task, and `hang_up` so
many of the next connections that ask after one; `seen` tells what was asked of it, and how.
"""

import asyncio
import json
import sys
from typing import Any

from aiohttp import web

META = "io.modelcontextprotocol/"
TOOLS = ("begin", "alone", "become", "cut", "forget", "hang_up", "seen")

NOT_FOUND = {"code": -32602, "message": "Task not found"}
NEEDED = {
    "code": -32021,
    "message": "Only as a task",
    "data": {"requiredCapabilities": {"extensions": {META + "tasks": {}}}},
}


class OddTasks:
    def __init__(self) -> None:
        self.tasks: dict[str, dict[str, Any]] = {}
        self.streams: dict[asyncio.Queue[dict[str, Any] | None], list[str]] = {}
        self.seen: list[dict[str, Any]] = []
        self.hanging_up = 0

    async def post(self, request: web.Request) -> web.StreamResponse:
        message = json.loads(await request.read())
        method, params = message["method"], message.get("params", {})
        meta = params.pop("_meta", {})
        asked = {"method": method, "params": params, "capabilities": meta.get(META + "clientCapabilities")}
        if params.get("name") != "seen":
            self.seen.append({**asked, "name": request.headers.get("Mcp-Name"), "meta": meta})
        if method == "tasks/get" and self.hanging_up and request.transport is not None:
            self.hanging_up -= 1
            request.transport.close()
        if method == "subscriptions/listen":
            return await self.listen(request, message["id"], params["notifications"])
        takes = META + "tasks" in asked["capabilities"].get("extensions", {})
        answer = self.answer(method, params) if takes or params.get("name") != "alone" else None
        if answer is None:
            error = NOT_FOUND if takes else NEEDED
            body = {"jsonrpc": "2.0", "id": message["id"], "error": error}
            return web.json_response(body, status=400)
        return web.json_response(
            {"jsonrpc": "2.0", "id": message["id"], "result": {"resultType": "complete", **answer}}
        )

    def answer(self, method: str, params: dict[str, Any]) -> dict[str, Any] | None:
        match method:
            case "server/discover":
                capabilities: dict[str, Any] = {"tools": {}, "extensions": {META + "tasks": {}}}
                return {"supportedVersions": ["2026-07-28"], "capabilities": capabilities, "ttlMs": 0}
            case "tools/list":
                schema = {"type": "object"}
                return {"tools": [{"name": name, "inputSchema": schema} for name in TOOLS]}
            case "tools/call":
                return self.call(params["name"], params.get("arguments", {}))
            case "tasks/get":
                return self.tasks.get(params["taskId"])
            case "tasks/update" | "tasks/cancel" if params["taskId"] in self.tasks:
                return {}
        return None

    def call(self, name: str, given: dict[str, Any]) -> dict[str, Any]:
        match name:
            case "begin" | "alone":
                self.tasks[given["taskId"]] = given
                return {**given, "resultType": "task"}
            case "become":
                self.tasks[given["taskId"]] |= given
                for news, wanted in self.streams.items():
                    if given["taskId"] in wanted:
                        news.put_nowait(self.tasks[given["taskId"]])
            case "cut":
                for news in self.streams:
                    news.put_nowait(None)
            case "hang_up":
                self.hanging_up = given["times"]
            case "forget":
                del self.tasks[given["taskId"]]
            case "seen":
                return {"content": [], "structuredContent": self.seen, "listeners": len(self.streams)}
        return {"content": []}

    async def listen(self, request: web.Request, identity: int, wanted: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        known = [each for each in wanted.get("taskIds", []) if each in self.tasks]
        meta = {META + "subscriptionId": identity, "example.org/own": True}
        news: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self.streams[news] = known

        async def say(method: str, params: dict[str, Any]) -> None:
            note = {"jsonrpc": "2.0", "method": method, "params": {**params, "_meta": meta}}
            await response.write(b"data: " + json.dumps(note).encode() + b"\n\n")

        try:
            await say("notifications/subscriptions/acknowledged", {"notifications": {"taskIds": known}})
            for task_id in known:
                if self.tasks[task_id].get("eager"):
                    await say("notifications/tasks", self.tasks[task_id])
            while (task := await news.get()) is not None:
                await say("notifications/tasks", task)
        finally:
            del self.streams[news]
        return response


def main() -> None:
    app = web.Application()
    app.router.add_post("/mcp", OddTasks().post)
    web.run_app(app, host="127.0.0.1", port=int(sys.argv[1]), print=None, handler_cancellation=True)


if __name__ == "__main__":
    main()

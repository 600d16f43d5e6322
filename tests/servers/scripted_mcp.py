"""An MCP server of the session era whose script decides what goes wrong; standard library only.

Run as `python scripted_mcp.py stdio` or `python scripted_mcp.py http PORT`; the script is JSON in the
variable SCRIPT: `start` (mute, crash, ok), `tools` (further definitions), `count` (so many plain tools),
`starts` (a file that gets a line at each start), `instructions` (what it says of itself),
`paging` (same, endless), `renames` (its plain tools, at each listing), `ledger` (a file to which every call
that changes something is written).
"""

import http.server
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

SCRIPT: dict[str, Any] = json.loads(os.environ.get("SCRIPT", "{}"))
Send = Callable[[dict[str, Any]], None]

READ_ONLY = {"readOnlyHint": True}
PROPERTIES: dict[str, dict[str, Any]] = {
    "echo": {"text": {"type": "string"}},
    "slow": {"seconds": {"type": "number"}},
    "progress": {"seconds": {"type": "number"}, "every": {"type": "number"}},
    "pid": {},
    "die": {},
    "die_after_writing": {},
    "rpc_error": {},
    "odd_result": {},
    "large": {"size": {"type": "integer"}},
    "storm": {"notices": {"type": "integer"}},
    "grow": {"name": {"type": "string"}},
    "shrink": {"name": {"type": "string"}},
    "listings": {},
    "canceled": {},
    "noise": {"lines": {"type": "integer"}},
}
ODD_RESULT = {
    "content": [{"type": "hologram", "beam": [1, 2.50, None]}, {"type": "text", "text": "und ümläute 🦉"}],
    "structuredContent": {"a": None, "b": [{"c": 1.0}]},
    "unheardOf": {"kept": True},
    "_meta": {"example.org/key": None},
}


class Server:
    def __init__(self, send_notice: Send) -> None:
        self.notice = send_notice
        self.listings = 0
        self.visits = 0
        self.cancelled: list[Any] = []
        self.extra: list[dict[str, Any]] = [
            {"name": f"tool_{number:04d}", "description": f"Tool {number}", "inputSchema": {"type": "object"}}
            for number in range(SCRIPT.get("count", 0))
        ] + SCRIPT.get("tools", [])

    def tools(self) -> list[dict[str, Any]]:
        known = [
            {
                "name": name,
                "description": f"The scripted tool {name}",
                "inputSchema": {"type": "object", "properties": properties},
                "annotations": READ_ONLY if name in ("echo", "pid", "listings") else {},
            }
            for name, properties in PROPERTIES.items()
        ]
        return known + self.extra

    def handle(self, message: dict[str, Any], send: Send) -> None:
        method, params = message.get("method"), message.get("params") or {}
        if "id" not in message:
            if method == "notifications/cancelled":
                self.cancelled.append(params.get("requestId"))
            return
        identity = message["id"]

        def result(value: dict[str, Any]) -> None:
            send({"jsonrpc": "2.0", "id": identity, "result": value})

        if method == "initialize":
            if SCRIPT.get("start") == "mute":
                return
            result(
                {
                    "protocolVersion": "2025-11-25",
                    "capabilities": {"tools": {"listChanged": True}},
                    "serverInfo": {"name": "scripted", "version": "1"},
                    **({"instructions": SCRIPT["instructions"]} if "instructions" in SCRIPT else {}),
                }
            )
        elif method == "ping":
            result({})
        elif method == "tools/list":
            self.listings += 1
            result(self.page(params.get("cursor")))
        elif method == "tools/call":
            self.call(
                params["name"],
                params.get("arguments") or {},
                params.get("_meta") or {},
                result,
                send,
                identity,
            )
        else:
            send({"jsonrpc": "2.0", "id": identity, "error": {"code": -32601, "message": "Method not found"}})

    def page(self, cursor: str | None) -> dict[str, Any]:
        if SCRIPT.get("renames"):
            for number, tool in enumerate(self.extra):
                tool["name"] = f"tool_{number}_of_listing_{self.listings}"
        paging = SCRIPT.get("paging")
        if paging == "same":
            return {"tools": self.tools() if cursor is None else [], "nextCursor": "again"}
        if paging == "endless":
            number = int(cursor or 0) + 1
            tool = {"name": f"page_{number}", "inputSchema": {"type": "object"}}
            return {"tools": [*(self.tools() if cursor is None else []), tool], "nextCursor": str(number)}
        if paging == "two":
            half = len(self.tools()) // 2
            if cursor is None:
                return {"tools": self.tools()[:half], "nextCursor": ""}
            return {"tools": self.tools()[half:]}
        return {"tools": self.tools()}

    def call(
        self,
        name: str,
        arguments: dict[str, Any],
        meta: dict[str, Any],
        result: Send,
        send: Send,
        identity: Any,
    ) -> None:
        def text(value: object) -> None:
            result({"content": [{"type": "text", "text": str(value)}]})

        if name == "echo":
            text(arguments.get("text"))
        elif name == "slow":
            time.sleep(arguments["seconds"])
            text("done")
        elif name == "progress":
            end = time.monotonic() + arguments["seconds"]
            done = 0
            while time.monotonic() < end:
                time.sleep(arguments["every"])
                done += 1
                token = meta.get("progressToken")
                progress = {"progressToken": token, "progress": done}
                send({"jsonrpc": "2.0", "method": "notifications/progress", "params": progress})
            text("done")
        elif name == "pid":
            text(os.getpid())
        elif name == "die":
            os._exit(3)
        elif name == "die_after_writing":
            with open(SCRIPT["ledger"], "a", encoding="utf-8") as ledger:
                ledger.write("executed\n")
            os._exit(4)
        elif name == "rpc_error":
            error = {"code": -32099, "message": "out of paper", "data": {"tray": 2}}
            send({"jsonrpc": "2.0", "id": identity, "error": error})
        elif name == "sign_in":
            self.visits += 1
            if self.visits % 2 == 0:
                text("signed in")
                return
            wanted = {"mode": "url", "elicitationId": "e1", "url": "https://sign.in/1", "message": "Sign in"}
            error = {"code": -32042, "message": "sign in first", "data": {"elicitations": [wanted]}}
            send({"jsonrpc": "2.0", "id": identity, "error": error})
        elif name == "been_there":
            over = {"elicitationId": arguments["id"]}
            self.notice({"jsonrpc": "2.0", "method": "notifications/elicitation/complete", "params": over})
            text("told")
        elif name == "odd_result":
            result(ODD_RESULT)
        elif name == "large":
            text("x" * arguments["size"])
        elif name == "storm":
            for _ in range(arguments["notices"]):
                self.notice({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
            text("sent")
        elif name in ("grow", "shrink"):
            self.extra = [tool for tool in self.extra if tool["name"] != arguments["name"]]
            if name == "grow":
                self.extra.append({"name": arguments["name"], "inputSchema": {"type": "object"}})
            self.notice({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
            text("changed")
        elif name == "listings":
            text(self.listings)
        elif name == "canceled":
            text(len(self.cancelled))
        elif name == "noise":
            for number in range(arguments["lines"]):
                sys.stdout.write(f"just a log line {number}\n")
            send(
                {"jsonrpc": "2.0", "id": identity, "result": {"content": [{"type": "text", "text": "made"}]}}
            )
            send(
                {"jsonrpc": "2.0", "id": identity, "result": {"content": [{"type": "text", "text": "twice"}]}}
            )
            send({"jsonrpc": "2.0", "id": 999_999, "result": {}})
        else:
            text(f"{name} was called")


def on_stdio() -> None:
    lock = threading.Lock()

    def send(message: dict[str, Any]) -> None:
        with lock:
            sys.stdout.write(json.dumps(message) + "\n")
            sys.stdout.flush()

    if SCRIPT.get("start") == "crash":
        sys.stderr.write("cannot find my licence file\n")
        sys.exit(7)
    server = Server(send)
    for line in sys.stdin:
        message = json.loads(line)
        if message.get("method") == "tools/call":
            threading.Thread(target=server.handle, args=(message, send), daemon=True).start()
        else:
            server.handle(message, send)


def on_http(port: int) -> None:
    server = Server(lambda notice: None)

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            answers: list[dict[str, Any]] = []
            server.handle(message, answers.append)
            body = json.dumps(answers[-1]).encode() if answers else b""
            self.send_response(200 if answers else 202)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            healthy = self.path == "/health" and not os.path.exists(SCRIPT.get("ill", ""))
            self.send_response(200 if healthy else 500 if self.path == "/health" else 405)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

    http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()


if __name__ == "__main__":
    if "starts" in SCRIPT:
        with open(SCRIPT["starts"], "a", encoding="utf-8") as log:
            log.write("started\n")
    if sys.argv[1] == "stdio":
        on_stdio()
    else:
        on_http(int(sys.argv[2]))

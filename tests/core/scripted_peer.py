"""An MCP server of the session era that does what a file says; standard library only.

`python scripted_peer.py FILE` speaks over pipes, `python scripted_peer.py FILE PORT` over HTTP. The file is
read anew for every request, so a test can change what the server has while it runs. It is JSON:

    capabilities  what it says of itself
    lists         method → cursor ("" at first) → what to do
    start, ping   what to do instead of greeting and of answering a ping
    calls         tool → what to do the first time, the second time, …; the last one goes on for ever

What to do is `{"result": …}`, `{"error": …}`, `{"wait": seconds, "then": …}`, "mute", "die", or "forget"
(over HTTP: 404, the session is gone). Every request is written to FILE.ledger before it is obeyed.
"""

import http.server
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

FILE = Path(sys.argv[1])
LEDGER = FILE.with_suffix(".ledger")


def written(entry: str) -> int:
    """How often it had been written before."""
    before = LEDGER.read_text().splitlines().count(entry) if LEDGER.exists() else 0
    with LEDGER.open("a") as ledger:
        ledger.write(entry + "\n")
    return before


def order_for(message: dict[str, Any]) -> Any:
    script = json.loads(FILE.read_text())
    method, params = message["method"], message.get("params") or {}
    if method == "initialize" and "start" in script:
        return script["start"]
    if method == "initialize":
        info = {"name": "peer", "version": "1"}
        capabilities = script.get("capabilities", {"tools": {}})
        hello = {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": info}
        return {"result": hello}
    if method == "ping":
        written("ping")
        return script.get("ping", {"result": {}})
    if method == "tools/call":
        orders = script["calls"].get(params["name"], [answer_of(params["name"])])
        return orders[min(written(params["name"]), len(orders) - 1)]
    if method in script["lists"]:
        cursor = params.get("cursor", "")
        written(f"{method} {cursor}")
        return script["lists"][method].get(cursor, {"error": {"code": -32602, "message": "no such page"}})
    return {"error": {"code": -32601, "message": "Method not found"}}


def answer_of(tool: str) -> dict[str, Any]:
    return {"result": {"content": [{"type": "text", "text": f"{tool} was called"}]}}


def obeyed(message: dict[str, Any]) -> Any:
    """The answer, "forget", or None when there is none."""
    order = order_for(message)
    while isinstance(order, dict) and "wait" in order:
        time.sleep(order["wait"])
        order = order["then"]
    if order == "die":
        os._exit(3)
    if order == "mute":
        return None
    return order if order == "forget" else {"jsonrpc": "2.0", "id": message["id"], **order}


def on_pipes() -> None:
    lock = threading.Lock()

    def work(message: dict[str, Any]) -> None:
        answer = obeyed(message)
        if answer is not None:
            with lock:
                print(json.dumps(answer), flush=True)

    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message and "method" in message:
            threading.Thread(target=work, args=(message,), daemon=True).start()


def on_http(port: int) -> None:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            answer = obeyed(message) if "id" in message else None
            body = json.dumps(answer).encode() if isinstance(answer, dict) else b""
            self.send_response(404 if answer == "forget" else 200 if body else 202)
            self.send_header("Mcp-Session-Id", "s")
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            self.send_response(405)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def do_DELETE(self) -> None:
            self.do_GET()

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

    http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()


if __name__ == "__main__":
    if len(sys.argv) > 2:
        on_http(int(sys.argv[2]))
    else:
        on_pipes()

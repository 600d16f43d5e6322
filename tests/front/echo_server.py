"""An MCP server over stdio for the tests of the front: every answer is written as exact bytes.

Run as a script. It speaks the session era, and each call runs in a thread of its own, so that slow ones
do not hold up the rest. A cancelled `wait` leaves a file behind when it was told of the cancellation.
"""

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

RESULTS = {
    "odd": '{ "structuredContent" : {"n": 1.0, "big": 12345678901234567890123},\n "x-new":[1,  2],'
    ' "content": [{"type":"hologram","é":"\\u00e9"}],"isError" : true }',
    "meta": '{"metadata":{"cost": 1.50},"content":[]}',
    "bare": "{}",
}
SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}}
NAMES = [*RESULTS, "echo", "wait", "refuse", "nonsense", "with/slash"]

_lock = threading.Lock()


def write(text: str) -> None:
    with _lock:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()


def answer(identity: Any, result: str) -> None:
    write(f'{{"jsonrpc":"2.0","id":{json.dumps(identity)},"result":{result.replace(chr(10), " ")}}}')


def call(identity: Any, params: dict[str, Any], raw: str) -> None:
    name, arguments = params["name"], params.get("arguments", {})
    if name in RESULTS:
        answer(identity, RESULTS[name])
    elif name == "wait":
        time.sleep(float(arguments["seconds"]))
        answer(identity, '{"content":[],"isError":false}')
    elif name == "refuse":
        error = {"code": -32050, "message": "no thanks", "data": {"why": "mood"}}
        write(json.dumps({"jsonrpc": "2.0", "id": identity, "error": error}))
    elif name == "nonsense":
        answer(identity, '"not an object"')
    else:
        answer(identity, json.dumps({"content": [{"type": "text", "text": raw}], "isError": False}))


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        method, identity = message.get("method"), message.get("id")
        if method == "initialize":
            result = {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "echo", "version": "1"},
            }
            answer(identity, json.dumps(result))
        elif method == "tools/list":
            tools = [{"name": name, "description": f"Does {name}.", "inputSchema": SCHEMA} for name in NAMES]
            answer(identity, json.dumps({"tools": tools}))
        elif method == "tools/call":
            threading.Thread(target=call, args=(identity, message["params"], line), daemon=True).start()
        elif method == "notifications/cancelled":
            Path(sys.argv[1], "cancelled").touch()
        elif method == "ping":
            answer(identity, "{}")
        elif identity is not None:
            error = {"code": -32601, "message": "Method not found"}
            write(json.dumps({"jsonrpc": "2.0", "id": identity, "error": error}))


if __name__ == "__main__":
    main()

"""A STDIO upstream for the fleet benchmark: `python bench/child.py TOOLS`, or `mute` to never say a word.

Session era, standard library, imports next to nothing: what is measured is the gateway, not fifty children
that start up. Its `echo` gives the text back.
"""

import json
import sys


def main() -> None:
    if sys.argv[1] == "mute":
        sys.stdin.read()
        return
    schema = {"type": "object", "properties": {"text": {"type": "string"}}}
    names = ["echo", *(f"tool_{number:04d}" for number in range(1, int(sys.argv[1])))]
    tools: list[dict[str, object]] = [
        {"name": name, "description": f"Does {name}.", "inputSchema": schema} for name in names
    ]
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message:
            answer = {"jsonrpc": "2.0", "id": message["id"], **_answer(message, tools)}
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()


def _answer(message: dict[str, object], tools: list[dict[str, object]]) -> dict[str, object]:
    method, params = message["method"], message.get("params")
    if method == "initialize":
        info = {"name": "child", "version": "1"}
        return {
            "result": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
        }
    if method == "tools/list":
        return {"result": {"tools": tools}}
    if method == "tools/call" and isinstance(params, dict):
        return {"result": {"content": [{"type": "text", "text": params["arguments"].get("text", "")}]}}
    if method == "ping":
        return {"result": {}}
    return {"error": {"code": -32601, "message": "Method not found"}}


if __name__ == "__main__":
    main()

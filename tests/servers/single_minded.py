"""A server that does one thing at a time: `single_minded.py [SECONDS]`.

With SECONDS it has one tool, `work`, that takes so long and lets nothing else be answered meanwhile; without,
it has none.
"""

import json
import sys
import time

SECONDS = float(sys.argv[1]) if len(sys.argv) > 1 else None
TOOLS = [] if SECONDS is None else [{"name": "work", "inputSchema": {"type": "object"}}]
ANSWERS = {
    "initialize": {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "single-minded", "version": "1"},
    },
    "tools/list": {"tools": TOOLS},
    "ping": {},
    "tools/call": {"content": [{"type": "text", "text": "worked"}]},
}


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        method = message["method"]
        if method == "tools/call" and SECONDS is not None:
            time.sleep(SECONDS)
        answer: dict[str, object] = {"error": {"code": -32601, "message": "no"}}
        if method in ANSWERS:
            answer = {"result": ANSWERS[method]}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)


if __name__ == "__main__":
    main()

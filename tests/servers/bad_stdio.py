"""A scripted STDIO server that misbehaves on demand; standard library only.

Flags say how it starts and whether it listens to anybody; the method of each request says what it does
next. `echo` gives back its params byte for byte. It speaks just enough MCP for a handshake.
"""

import argparse
import json
import os
import random
import select
import signal
import subprocess
import sys
import threading
import time
from typing import Any

OUT = sys.stdout.buffer
LOCK = threading.Lock()
STUBBORN_GRANDCHILD = (
    "import signal,time\n"
    "for n in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT): signal.signal(n, signal.SIG_IGN)\n"
    "time.sleep(600)"
)


def write(data: bytes) -> None:
    with LOCK:
        OUT.write(data)
        OUT.flush()


def answer(identity: Any, result: bytes) -> None:
    write(response(identity, result) + b"\n")


def response(identity: Any, result: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (json.dumps(identity).encode(), result)


def of_size(identity: Any, size: int) -> bytes:
    """An answer that is a line of exactly `size` bytes."""
    empty = response(identity, b'{"x":""}')
    return response(identity, b'{"x":"%b"}' % (b"x" * (size - len(empty))))


def grow_family(mark: str) -> list[int]:
    """Grandchildren that ignore signals: a plain one, one in its own session, one also without the marker."""
    command = [sys.executable, "-I", "-S", "-c", STUBBORN_GRANDCHILD, mark]
    nobody: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
    family = [
        subprocess.Popen(command, **nobody),
        subprocess.Popen(command, start_new_session=True, **nobody),
        subprocess.Popen(command, start_new_session=True, env={}, **nobody),
    ]
    return [process.pid for process in family]


def surroundings() -> dict[str, Any]:
    fds = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            fds[name] = os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:
            continue
    with open("/proc/self/status") as file:
        status = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
    return {
        "environment": dict(os.environ),
        "fds": fds,
        "session": os.getsid(0),
        "group": os.getpgid(0),
        "pid": os.getpid(),
        "ignored": status["SigIgn"],
        "blocked": status["SigBlk"],
    }


def obey(line: bytes, options: argparse.Namespace) -> None:
    message = json.loads(line)
    method, identity, params = message["method"], message.get("id"), message.get("params") or {}
    if method == "echo":
        answer(identity, line[line.index(b'"params":') + 9 : -1])
    elif method == "initialize":
        version = params["protocolVersion"]
        answer(identity, b'{"protocolVersion":%b,"capabilities":{}}' % json.dumps(version).encode())
        if options.exit_after_handshake:
            sys.exit(0)
    elif method == "size":
        write(of_size(identity, params["bytes"]) + b"\n")
    elif method == "noise":
        for number in range(params["lines"]):
            write(params.get("text", "listening on port %d\n").replace("%d", str(number)).encode())
        answer(identity, b"{}")
    elif method == "oddities":
        write(b"\r\n\n  \n")
        write(b"\xef\xbb\xbf" + response(identity, b'{"odd":true}') + b"\r\n")
    elif method == "flood_stderr":
        left = params["bytes"]
        while left > 0:
            left -= os.write(2, b"e" * min(left, 65536))
        os.write(2, params.get("then", "").encode())
        answer(identity, b"{}")
    elif method == "twice":
        answer(identity, b'{"time":1}')
        answer(identity, b'{"time":2}')
    elif method == "unasked":
        answer(999_999, b"{}")
        answer("nobody", b"{}")
        write(b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}\n')
        answer(identity, b"{}")
    elif method == "ask":
        write(b'{"jsonrpc":"2.0","method":"notifications/message","params":{"a":1}}\n')
        write(b'{"jsonrpc":"2.0","id":"q-1","method":"roots/list","params":{}}\n')
        answer(identity, b"{}")
    elif method == "batch":
        notice = b'{"jsonrpc":"2.0","method":"notifications/message"}'
        write(b"[" + notice + b",1," + response(identity, b'{"batched":true}') + b"]\n")
    elif method == "fail":
        text, data = params.get("message", "no").encode(), params.get("data", '{"why":"x"}').encode()
        fault = b'{"code":-7,"message":"%b","data":%b}' % (text, data)
        write(b'{"jsonrpc":"2.0","id":%d,"error":%b}\n' % (identity, fault))
    elif method == "slow":
        threading.Timer(params["seconds"], answer, (identity, b'{"slow":true}')).start()
    elif method == "exit":
        os.write(2, params.get("stderr", "").encode())
        if params.get("answer"):
            answer(identity, b'{"last":true}')
        os._exit(params["status"])
    elif method == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    elif method == "half":
        write(b'{"jsonrpc":"2.0","id":1,"resu')
        os._exit(0)
    elif method == "write":
        write(params["text"].replace("ID", str(identity)).encode())
    elif method == "unfinished":
        write(response(identity, b'{"whole":true}'))
        os._exit(0)
    elif method == "close_stdout":
        os.close(1)
    elif method == "deaf":
        time.sleep(params["seconds"])
        answer(identity, b"{}")
    elif method == "surroundings":
        answer(identity, json.dumps(surroundings()).encode())
    elif method == "family":
        answer(identity, json.dumps(grow_family(params["mark"])).encode())
    elif method == "received":
        answer(identity, json.dumps(RECEIVED).encode())
    elif method.startswith("notifications/"):
        RECEIVED.append(message)
    elif identity is not None:
        error = b'{"code":-32601,"message":"Method not found"}'
        write(b'{"jsonrpc":"2.0","id":%d,"error":%b}\n' % (identity, error))


RECEIVED: list[Any] = []


def shuffle(options: argparse.Namespace) -> None:
    """Answers in an order of its own whatever has come in before the pipe fell silent."""
    waiting: list[bytes] = []
    buffer = b""
    while True:
        ready, _, _ = select.select([0], [], [], 0.01)
        if ready:
            chunk = os.read(0, 65536)
            if not chunk:
                return
            *lines, buffer = (buffer + chunk).split(b"\n")
            waiting += lines
        if not ready or len(waiting) > 500:
            random.shuffle(waiting)
            for line in waiting:
                obey(line, options)
            waiting.clear()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--mute", action="store_true", help="read everything, say nothing")
    parser.add_argument("--never-reads", action="store_true", help="leave stdin alone")
    parser.add_argument("--crash", metavar="TEXT", help="write TEXT to stderr and exit with status 3")
    parser.add_argument("--exit-after-handshake", action="store_true")
    parser.add_argument("--stubborn", action="store_true", help="ignore SIGTERM and the end of stdin")
    parser.add_argument("--family", metavar="MARK", help="start grandchildren at once")
    parser.add_argument("--mark", help="changes nothing, and can be found among all processes")
    parser.add_argument("--shuffle", action="store_true", help="answer in another order")
    options = parser.parse_args()
    if options.crash is not None:
        print(options.crash, file=sys.stderr)
        sys.exit(3)
    if options.stubborn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if options.family:
        grow_family(options.family)
    if options.shuffle:
        shuffle(options)
    elif not options.never_reads:
        for line in sys.stdin.buffer:
            if not options.mute:
                obey(line.rstrip(b"\n"), options)
    while options.stubborn or options.never_reads:
        time.sleep(60)


if __name__ == "__main__":
    main()

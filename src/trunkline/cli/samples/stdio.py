"""A sample server over stdin and stdout, a JSON message a line: `python -m trunkline.cli.samples.stdio`.

Ends when its stdin does, so it never outlives whoever started it.
"""

import sys

from trunkline.cli.samples.catalogue import clock
from trunkline.cli.samples.sample_server import SampleServer


def serve(server: SampleServer) -> None:
    for line in sys.stdin.buffer:
        if not line.strip():
            continue
        answer = server.answer_bytes(line)
        if answer is not None:
            sys.stdout.buffer.write(answer + b"\n")
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    try:
        serve(clock())
    except (KeyboardInterrupt, BrokenPipeError):
        sys.exit(0)

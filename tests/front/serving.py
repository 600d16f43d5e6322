"""Runs the front as a process of its own for the tests of `server.py`; prints the address it listens on."""

import sys
from pathlib import Path

from trunkline.app import open_gateway
from trunkline.errors import StartRefused
from trunkline.front.server import run
from trunkline.settings import load_settings


def main() -> int:
    settings = load_settings(flags={"data_dir": Path(sys.argv[1]), "port": sys.argv[2]})
    try:
        return run(settings, open_gateway, lambda url: print(url, flush=True))
    except StartRefused as refused:
        print(refused.detail, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())

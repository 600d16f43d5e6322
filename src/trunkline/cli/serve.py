"""`trunkline serve`: runs the gateway in this process, and leaves word of it for the other commands.

Loads settings and hands over to the front; everything heavy is imported only then. What it leaves in the
data folder (`gateway.json`) goes when it ends.
"""

import contextlib
import functools
import gc
import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from trunkline.cli.failures import UsageFailure
from trunkline.cli.gateway_client import ADDRESS_FILE, KEY_FILE, data_dir_of
from trunkline.cli.screen import Screen
from trunkline.errors import StartRefused
from trunkline.settings import Settings, load_settings, unknown_variables
from trunkline.telemetry import Redactor, set_up_logging

log = logging.getLogger(__name__)


def serve(
    host: Annotated[str | None, typer.Option(metavar="ADDRESS", help="To listen on [127.0.0.1].")] = None,
    port: Annotated[int | None, typer.Option(metavar="PORT", help="0 takes a free one [8081].")] = None,
    data_dir: Annotated[
        Path | None, typer.Option("--data-dir", metavar="DIR", help="Of the database and the keys.")
    ] = None,
    config: Annotated[Path | None, typer.Option(metavar="FILE", help="A TOML file of settings.")] = None,
    stdio: Annotated[
        str | None, typer.Option(metavar="MODE", help="Which STDIO servers: off, profiles or any.")
    ] = None,
    log_level: Annotated[
        str | None, typer.Option(metavar="LEVEL", help="debug, info, warning or error [info].")
    ] = None,
    log_format: Annotated[str | None, typer.Option(metavar="FORMAT", help="text or json [text].")] = None,
) -> None:
    """Run the gateway until Ctrl-C. Every setting has a variable MCP_AGGREGATOR_…; flags come first.

    \b
    trunkline serve
    trunkline serve --port 9000 --data-dir /var/lib/trunkline
    MCP_AGGREGATOR_ALLOWED_VARIABLES=GITHUB_TOKEN trunkline serve
    """
    flags = {
        "host": host, "port": port, "data_dir": data_dir, "stdio": stdio,
        "log_level": log_level, "log_format": log_format,
    }  # fmt: skip
    try:
        settings = load_settings(flags=flags, file=config)
        code = _run(settings)
    except StartRefused as refused:
        raise UsageFailure(refused.detail) from None
    raise typer.Exit(code)


def _run(settings: Settings) -> int:
    from trunkline.app import open_gateway
    from trunkline.front.server import run

    redactor = Redactor()
    set_up_logging(settings.log_level, settings.log_format, redactor)
    for name, near in unknown_variables().items():
        log.warning("nobody reads the variable %s%s", name, f"; did you mean {near}?" if near else "")
    key_before = _key_in(settings.data_dir)
    with contextlib.ExitStack() as while_running:

        def on_listening(url: str) -> None:
            gc.freeze()  # what is loaded stays: full collections need not walk it again and again
            while_running.enter_context(word_left(settings, url, passing=False))
            key = _key_in(settings.data_dir)
            _welcome(settings, url, key if key != key_before else None)

        return run(settings, functools.partial(open_gateway, redactor=redactor), on_listening)


def _key_in(data_dir: Path) -> str | None:
    try:
        return (data_dir / KEY_FILE).read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return None


@contextlib.contextmanager
def word_left(settings: Settings, url: str, *, passing: bool) -> Iterator[None]:
    """The address for the other commands, while this process serves; another gateway's word is not ours.

    A passing one is there for a client and goes with it.
    """
    from trunkline.security.private_files import replace_private

    file = settings.data_dir / ADDRESS_FILE
    known = {"url": url, "pid": os.getpid(), "stdio": settings.stdio_mode, "passing": passing}
    word = json.dumps(known).encode()
    replace_private(file, word)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            if file.read_bytes() == word:
                file.unlink()


def _welcome(settings: Settings, url: str, new_key: str | None) -> None:
    screen = Screen(as_json=False)
    where = "" if settings.data_dir == data_dir_of(None) else f" --data-dir {settings.data_dir}"
    screen.say(f"Trunkline listens on {url}", style="bold")
    screen.say(f"MCP clients: {url}/mcp, or the command trunkline stdio{where}")
    screen.say(f"Data: {settings.data_dir}")
    if new_key:
        screen.say(f"Admin key: {new_key}")
        screen.say(f"  shown this once; it is kept in {settings.data_dir / KEY_FILE}")
    screen.say(f"Try it in another terminal: trunkline demo{where}")
    screen.say("Stop it with Ctrl-C.")

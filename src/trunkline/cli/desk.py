"""What every command that talks to a gateway starts from: a client, a screen, and the options for both.

`asks_gateway` gives a command `--url`, `--key`, `--data-dir` and `--json`, finds the gateway and hands the
command a `Desk`; the command itself declares only what is its own. With --json a failure is JSON too.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Concatenate, ParamSpec

import typer

from trunkline.cli.failures import Failure
from trunkline.cli.gateway_client import GatewayClient, find_gateway
from trunkline.cli.screen import Screen

P = ParamSpec("P")

UrlOption = Annotated[
    str | None,
    typer.Option("--url", metavar="URL", help="Its address, else MCP_AGGREGATOR_URL, else the local one."),
]
KeyOption = Annotated[
    str | None,
    typer.Option("--key", metavar="KEY", help="Your key, else MCP_AGGREGATOR_KEY, else the local admin key."),
]
DataDirOption = Annotated[
    Path | None,
    typer.Option("--data-dir", metavar="DIR", help="Where the local gateway keeps its data."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the answer as JSON, and nothing else.")]


@dataclass(frozen=True, slots=True)
class Desk:
    gateway: GatewayClient
    screen: Screen


def asks_gateway(command: Callable[Concatenate[Desk, P], None]) -> Callable[..., None]:
    def run(
        *,
        url: str | None,
        key: str | None,
        data_dir: Path | None,
        as_json: bool,
        **own: Any,
    ) -> None:
        screen = Screen(as_json=as_json)
        try:
            command(Desk(GatewayClient(find_gateway(url, key, data_dir)), screen), **own)  # type: ignore[call-arg]
        except Failure as failure:
            if as_json and not screen.answered:
                screen.json(failure.body)
            raise

    return with_options(run, command, skip=1)


def with_options(run: Callable[..., None], command: Callable[..., None], *, skip: int) -> Callable[..., None]:
    """`run` as the command: its name, help and parameters (but the first `skip`), and the shared options."""
    own = list(inspect.signature(command).parameters.values())[skip:]
    shared = [
        _option("url", UrlOption, None),
        _option("key", KeyOption, None),
        _option("data_dir", DataDirOption, None),
        _option("as_json", JsonOption, False),
    ]
    parameters = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in [*own, *shared]]
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run


def _option(name: str, annotation: Any, default: object) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )  # fmt: skip

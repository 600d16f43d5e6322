"""The demo: real results from three transports, shown as a table where a usual terminal has room for one."""

from tests.cli.terminal import Cli


def test_the_demo_ends_in_a_table_on_a_terminal_of_eighty_columns(cli: Cli) -> None:
    lines = cli.on_terminal("demo", columns=80).out.splitlines()
    header = next(line for line in lines if line.startswith("SERVER"))
    assert header.split() == ["SERVER", "VIA", "TOOL", "ARGUMENTS", "RESULT", "MS"]
    rows = [line.split()[:3] for line in lines if line.startswith("demo-") and " is connected" not in line]
    assert [(server, via) for server, via, _ in rows] == [
        ("demo-clock", "STDIO"),
        ("demo-clock", "STDIO"),
        ("demo-desk", "SSE"),
        ("demo-desk", "SSE"),
        ("demo-measure", "HTTP"),
        ("demo-measure", "HTTP"),
    ]
    table = lines[lines.index(header) :]
    assert max(len(line) for line in table[: table.index("")]) <= 80


def test_on_a_narrower_terminal_nothing_of_the_demo_is_lost(cli: Cli) -> None:
    shown = cli.on_terminal("demo", columns=60).out
    for word in ("demo-clock", "STDIO", "days_between", 'start="2026-01-31"', "days=327", "SSE", "HTTP"):
        assert word in shown
    left = [server["name"] for server in cli.ok("servers", "list", "--json").json["servers"]]
    assert not [name for name in left if name.startswith("demo-")]

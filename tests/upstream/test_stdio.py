"""The STDIO wire against a real process that misbehaves on demand (tests/servers/bad_stdio.py)."""

import asyncio
import json
import os
import random
import resource
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop

from tests.upstream.bad_line import (
    MIB,
    SERVER,
    Heard,
    Line,
    children_of,
    is_running,
    made,
    opened,
    running,
    until,
)
from trunkline.errors import ConfigurationFault, Lost, NotSent, ProtocolViolation, RpcError
from trunkline.telemetry import Redactor
from trunkline.upstream.spawner import Spawner
from trunkline.upstream.wires import Exchange, Wire


def on_both_loops(
    test: Callable[[], Coroutine[Any, Any, None]],
) -> Callable[[str], None]:
    @pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
    def runs(loop: str) -> None:
        factory = uvloop.new_event_loop if loop == "uvloop" else asyncio.new_event_loop
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(test())

    runs.__name__ = test.__name__
    runs.__doc__ = test.__doc__
    return runs


# The plain path


@on_both_loops
async def test_answers_errors_requests_and_notifications_come_through() -> None:
    """R-11, R-30."""
    async with opened() as line:
        as_wire: Wire = line.wire
        assert as_wire.last_heard <= asyncio.get_running_loop().time()
        params = '{"a" : [1, 2.50, "\\u00e9é"],"b":null}'.encode()
        assert await line.send("echo", params) == params
        with pytest.raises(RpcError) as caught:
            await line.send("fail")
        assert (caught.value.rpc_code, caught.value.message, caught.value.data) == (-7, "no", b'{"why":"x"}')
        await line.send("ask")
        assert line.heard.requests == [("q-1", "roots/list", None)]
        assert line.heard.notifications == [("notifications/message", b'{"a":1}')]
        await line.wire.notify("notifications/initialized")
        await line.wire.answer(b'{"jsonrpc":"2.0","method":"notifications/x","params":1}')
        assert [message["method"] for message in await line.ask("received")] == [
            "notifications/initialized",
            "notifications/x",
        ]
        assert line.heard.noise == []
    assert line.heard.lost == []
    assert line.wire.epitaph() == "it exited with status 0"
    await line.wire.close()


@on_both_loops
async def test_two_thousand_interleaved_exchanges_never_mix() -> None:
    """R-16: answers in any order go to whoever asked."""
    async with opened("--shuffle") as line:
        values = [b'{"n":%d,"pad":"%b"}' % (n, b"p" * random.randrange(400)) for n in range(2000)]
        assert await asyncio.gather(*(line.send("echo", value) for value in values)) == values
        assert line.heard.noise == []


@on_both_loops
async def test_messages_of_every_size_pass_byte_for_byte() -> None:
    """R-30, failure mode 18."""
    async with opened() as line:
        for size in (64 * 1024, MIB):
            for bytes_ in (size - 1, size, size + 1):
                value = b'{"x":"%b"}' % random.randbytes(bytes_ // 2).hex().encode()
                assert await line.send("echo", value) == value
                answer = await line.send("size", b'{"bytes":%d}' % bytes_)
                assert len(answer) > bytes_ - 60
                assert answer == b'{"x":"%b"}' % (b"x" * (len(answer) - 8))
        value = b'{"x":"%b"}' % (b"0123456789" * MIB)
        assert await line.send("echo", value) == value


async def test_line_ends_in_the_params_do_not_break_the_framing() -> None:
    async with opened() as line:
        answer = await line.send("echo", b'{\r\n  "a":\n "x\\ny"\r\n}\n')
        assert json.loads(answer) == {"a": "x\ny"}
        assert await line.send("echo", b"{}") == b"{}"


async def test_a_batch_is_taken_apart_and_a_bad_part_costs_only_itself() -> None:
    async with opened() as line:
        assert await line.ask("batch") == {"batched": True}
        assert len(line.heard.notifications) == 1
        assert len(line.heard.noise) == 1


# Noise


async def test_ten_thousand_lines_of_noise_lose_no_answer_and_are_counted() -> None:
    """Failure mode 20."""
    async with opened() as line:
        answers = await asyncio.gather(
            line.ask("noise", lines=10_000), *(line.ask("echo", n=n) for n in range(100))
        )
        assert answers[1:] == [{"n": n} for n in range(100)]
        assert len(line.heard.noise) == 10_000
        assert line.heard.noise[0] == "a line on stdout that is no message: listening on port 0"


async def test_noise_is_shown_redacted_and_printable() -> None:
    """R-48."""
    redactor = Redactor()
    redactor.learn("bad", ["hunter22"])
    async with opened(redact=redactor) as line:
        await line.ask("noise", lines=1, text="\x1b[31mkey hunter22\n")
        assert line.heard.noise == ["a line on stdout that is no message: �[31mkey ********"]


@pytest.mark.parametrize(
    ("data", "seen"),
    [
        ('{"given":"hunter22","n":[1.50]}', b'{"given":"********","n":[1.50]}'),
        ('{"token":12345}', b'{"token":"********"}'),
    ],
    ids=["a text", "under a telling key"],
)
async def test_the_servers_own_error_is_redacted_and_stays_json(data: str, seen: bytes) -> None:
    """R-48: servers repeat what they were given."""
    redactor = Redactor()
    redactor.learn("bad", ["hunter22"])
    async with opened(redact=redactor) as line:
        with pytest.raises(RpcError) as caught:
            await line.ask("fail", message="no such key: hunter22", data=data)
    assert str(caught.value) == caught.value.message == "no such key: ********"
    assert caught.value.data == seen


async def test_byte_order_mark_carriage_returns_and_blank_lines_are_no_noise() -> None:
    async with opened() as line:
        assert await line.ask("oddities") == {"odd": True}
        assert line.heard.noise == []


async def test_answers_nobody_asked_for_are_noise() -> None:
    async with opened() as line:
        assert await line.ask("twice") == {"time": 1}
        await line.ask("unasked")
        assert len(line.heard.noise) == 4
        assert await line.ask("echo", still="here") == {"still": "here"}


HALVES = (
    '{"jsonrpc":"2.0","id":ID,"resu',
    '{"jsonrpc":"2.0","id":ID,"result":{"a":{"b":"c',
    '{"jsonrpc":"2.0","id":ID,"result":{"a":{"jsonrpc":"2.0"}, "b":"\\',
    '{"jsonrpc":"2.0","id":ID,"error":{"code":-1',
)


@pytest.mark.parametrize("half", HALVES)
async def test_half_a_line_costs_only_its_own_exchange(half: str) -> None:
    """Failure mode 20, R-16: the next answer is glued to it and still arrives, and so does its failure."""
    async with opened() as line:
        broken = asyncio.ensure_future(line.ask("write", text=half))
        await asyncio.sleep(0)
        assert await asyncio.wait_for(line.ask("echo", n=1), 5) == {"n": 1}
        with pytest.raises(ProtocolViolation, match="its answer cannot be read"):
            await asyncio.wait_for(broken, 5)
        assert len(line.heard.noise) == 1
        assert await line.ask("echo", n=2) == {"n": 2}


async def test_half_a_request_of_the_servers_fails_no_exchange_of_ours() -> None:
    async with opened() as line:
        waiting = asyncio.ensure_future(line.ask("write", text='{"jsonrpc":"2.0","id":ID,"method":"samp'))
        await asyncio.sleep(0)
        assert await asyncio.wait_for(line.ask("echo", n=1), 5) == {"n": 1}
        assert not waiting.done()
        waiting.cancel()


async def test_messages_without_a_line_end_between_them_all_arrive() -> None:
    """Two threads of a server that each write a message and then its line end."""
    notice = '{"jsonrpc":"2.0","method":"notifications/message","params":{}}'
    async with opened() as line:
        first = asyncio.ensure_future(
            line.ask("write", text='{"jsonrpc":"2.0","id":ID,"result":{"n":1}}' + notice)
        )
        await asyncio.sleep(0)
        assert await line.ask("echo", n=2) == {"n": 2}
        assert await asyncio.wait_for(first, 5) == {"n": 1}
        assert len(line.heard.notifications) == 1
        assert line.heard.noise == []


@pytest.mark.parametrize("result", ['{"tools":[{"name":"x",}]}', '{"tools":[1,2}', "nonsense"])
async def test_an_answer_that_is_no_json_fails_its_exchange_at_once(result: str) -> None:
    """R-20: the reason is the real one, and not a timeout half a minute later."""
    async with opened() as line:
        text = f'{{"jsonrpc":"2.0","id":ID,"result":{result}}}\n'
        with pytest.raises(ProtocolViolation, match="its answer cannot be read: not JSON"):
            await asyncio.wait_for(line.ask("write", text=text), 5)
        assert len(line.heard.noise) == 1


@on_both_loops
async def test_an_answer_over_the_limit_fails_only_its_own_exchange() -> None:
    """Failure mode 19: the pipe resynchronises."""
    async with opened(limit=MIB) as line:
        results = await asyncio.gather(
            line.ask("echo", n=1),
            line.ask("size", bytes=MIB + 1),
            line.ask("echo", n=2),
            return_exceptions=True,
        )
        assert results[0] == {"n": 1}
        assert results[2] == {"n": 2}
        assert isinstance(results[1], ProtocolViolation)
        assert results[1].reason == "sent more than 1 MiB in one message (MCP_AGGREGATOR_MESSAGE_LIMIT)"
        assert len(await line.send("size", b'{"bytes":%d}' % MIB)) > MIB - 60


async def test_an_endless_line_does_not_grow_the_memory() -> None:
    """Failure mode 19."""
    async with opened(limit=MIB) as line:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with pytest.raises(ProtocolViolation):
            await line.ask("size", bytes=256 * MIB)
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        assert grown < 32 * 1024, f"{grown} KiB"
        assert await line.ask("echo", n=1) == {"n": 1}


# Writing


@on_both_loops
async def test_a_child_that_does_not_read_makes_writers_wait_and_a_cancelled_one_leaves_no_trace() -> None:
    """R-15: who has not been sent is told so; nothing is written by halves."""
    async with opened() as line:
        deaf = asyncio.ensure_future(line.ask("deaf", seconds=1.5))
        block = b'{"x":"%b"}' % (b"x" * 100_000)
        exchanges = [Exchange(1000 + n, "echo", block) for n in range(40)]
        writers = [asyncio.ensure_future(line.wire.exchange(exchange)) for exchange in exchanges]
        await asyncio.sleep(0)
        await until(lambda: any(exchange.sent for exchange in exchanges))
        sent = sum(exchange.sent for exchange in exchanges)
        assert sent <= 3, "the rest waits instead of being buffered"
        for writer, exchange in zip(writers, exchanges, strict=True):
            if not exchange.sent and exchange.key % 2:
                writer.cancel()
        outcomes = await asyncio.wait_for(asyncio.gather(*writers, return_exceptions=True), 20)
        for exchange, outcome in zip(exchanges, outcomes, strict=True):
            assert outcome == block if exchange.sent else isinstance(outcome, asyncio.CancelledError)
        assert sum(exchange.sent for exchange in exchanges) < 40
        await deaf
        assert line.heard.noise == []


async def test_a_call_in_flight_delays_no_other() -> None:
    """Failure mode 7."""
    async with opened() as line:
        slow = asyncio.ensure_future(line.ask("slow", seconds=1.0))
        began = time.monotonic()
        for n in range(100):
            assert await line.ask("echo", n=n) == {"n": n}
        assert time.monotonic() - began < 0.9
        assert await slow == {"slow": True}


async def test_cancelling_tells_the_server_and_a_late_answer_is_no_noise() -> None:
    """Failure mode 12."""
    async with opened() as line:
        exchange = Exchange(500, "slow", b'{"seconds":0.2}')
        task = asyncio.ensure_future(line.wire.exchange(exchange))
        await until(lambda: exchange.sent)
        task.cancel()
        await line.wire.cancel(exchange, 'the "caller" went away')
        await line.wire.cancel(Exchange(501, "echo", b"{}"), "was never sent")
        (notice,) = await line.ask("received")
        assert notice["method"] == "notifications/cancelled"
        assert notice["params"] == {"requestId": 500, "reason": 'the "caller" went away'}
        await line.ask("slow", seconds=0.4)
        assert line.heard.noise == []


@on_both_loops
async def test_cancelling_on_a_congested_pipe_gives_up() -> None:
    async with opened(close_grace=0.1, term_grace=0.1) as line:
        tasks = [asyncio.ensure_future(line.ask("deaf", seconds=60))]
        sent = Exchange(700, "echo", b'{"x":"%b"}' % (b"x" * 500_000))
        tasks.append(asyncio.ensure_future(line.wire.exchange(sent)))
        await until(lambda: sent.sent)
        async with asyncio.timeout(3):
            await line.wire.cancel(sent, "x")
        await line.wire.close()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [Lost, Lost]


# stderr


async def test_a_flood_on_stderr_blocks_nothing_and_its_end_is_kept() -> None:
    """Failure mode 21."""
    redactor = Redactor()
    redactor.learn("bad", ["hunter22"])
    async with opened(redact=redactor) as line:
        await line.ask("flood_stderr", bytes=10_000_000, then="\nfailed with \x1b[1mhunter22\n")
        with pytest.raises(Lost):
            await line.ask("exit", status=3)
        epitaph = line.wire.epitaph()
        assert epitaph.startswith("it exited with status 3; its stderr ends: eee")
        assert epitaph.endswith("failed with �[1m********")
        assert 8_000 < len(epitaph) < 8_400


async def test_a_secret_cut_in_half_by_the_kept_end_is_not_shown() -> None:
    """R-48."""
    secret = "s3cr3t" * 100
    redactor = Redactor()
    redactor.learn("bad", [secret])
    async with opened(redact=redactor) as line:
        # The kept end begins in the middle of the secret, wherever it is cut within some margin.
        await line.ask("flood_stderr", bytes=50_000, then=secret + "z" * 11_900)
        assert "s3cr3t" not in line.wire.epitaph()
        assert "zzz" in line.wire.epitaph()


# Dying


@pytest.mark.parametrize(
    ("method", "params", "words"),
    [
        (
            "exit",
            b'{"status":3,"stderr":"full disk"}',
            "it exited with status 3; its stderr ends: full disk",
        ),
        ("die", b"{}", "it was killed by signal 9"),
    ],
)
async def test_the_end_of_the_process_fails_what_was_sent_at_once(
    method: str, params: bytes, words: str
) -> None:
    """R-15, R-29: lost, because nobody knows whether it ran."""
    async with opened() as line:
        bystander = asyncio.ensure_future(line.ask("slow", seconds=30))
        await asyncio.sleep(0)
        began = time.monotonic()
        with pytest.raises(Lost, match="the process ended"):
            await line.send(method, params)
        with pytest.raises(Lost):
            await bystander
        assert time.monotonic() - began < 1
        assert [error.reason for error in line.heard.lost] == ["the process ended"]
        assert line.wire.epitaph() == words
        with pytest.raises(NotSent):
            await line.send("echo")
        with pytest.raises(NotSent):
            await line.wire.notify("x")
    assert len(line.heard.lost) == 1


@on_both_loops
async def test_the_last_answer_before_the_end_still_counts() -> None:
    async with opened() as line:
        assert await line.ask("exit", status=0, answer=True) == {"last": True}
        await until(lambda: len(line.heard.lost) == 1)


async def test_an_unfinished_last_line_is_taken_when_it_is_whole_and_noise_when_it_is_half() -> None:
    """Failure mode 20."""
    async with opened() as line:
        assert await line.ask("unfinished") == {"whole": True}
    async with opened() as line:
        with pytest.raises(Lost):
            await line.ask("half")
        assert len(line.heard.noise) == 1


@on_both_loops
async def test_a_closed_stdout_is_a_loss_though_the_process_lives() -> None:
    async with opened(close_grace=0.2) as line:
        with pytest.raises(Lost, match="the process closed its stdout"):
            await line.ask("close_stdout")
        assert len(line.heard.lost) == 1
        assert line.wire.epitaph() == ""


@on_both_loops
async def test_who_waits_to_write_when_the_process_ends_was_not_sent() -> None:
    async with opened() as line:
        deaf = asyncio.ensure_future(line.ask("deaf", seconds=60))
        big = b'{"x":"%b"}' % (b"x" * 500_000)
        first, second = Exchange(800, "echo", big), Exchange(801, "echo", big)
        tasks = [deaf, *(asyncio.ensure_future(line.wire.exchange(each)) for each in (first, second))]
        await until(lambda: first.sent)
        assert not second.sent
        os.kill(running()[0], 9)
        outcomes = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 3)
        assert [type(outcome) for outcome in outcomes] == [Lost, Lost, NotSent]


async def test_a_child_that_crashes_at_its_start_says_why() -> None:
    """R-11."""
    async with opened("--crash", "cannot find its module") as line:
        with pytest.raises((Lost, NotSent)):
            await line.ask("echo")
        await until(lambda: bool(line.heard.lost))
        assert line.wire.epitaph() == "it exited with status 3; its stderr ends: cannot find its module"


async def test_a_child_that_leaves_after_the_handshake_is_lost_once() -> None:
    """Failure mode 14."""
    async with opened("--exit-after-handshake") as line:
        assert await line.ask("initialize", protocolVersion="2025-11-25")
        await until(lambda: bool(line.heard.lost))
    assert len(line.heard.lost) == 1


async def test_a_mute_child_is_only_as_patient_as_its_caller() -> None:
    """Failure mode 6."""
    async with opened("--mute", close_grace=1) as line:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(line.ask("initialize"), 0.2)


@on_both_loops
async def test_who_comes_while_it_ends_is_told_how_it_ended() -> None:
    """R-15: its pipes close before its exit status is known."""
    async with opened() as line:

        async def why() -> tuple[str, str]:
            try:
                await line.ask("echo")
            except (Lost, NotSent) as error:
                return error.reason, line.wire.epitaph()
            return "", ""

        tasks = [asyncio.ensure_future(line.ask("exit", status=3, stderr="no room"))]
        comers = []
        while not line.heard.lost:
            comers.append(asyncio.ensure_future(why()))
            await asyncio.sleep(0)
        await asyncio.gather(*tasks, return_exceptions=True)
        told = set(await asyncio.gather(*comers)) - {("", "")}
        assert told == {("the process ended", "it exited with status 3; its stderr ends: no room")}


# Starting


@pytest.mark.parametrize(
    ("command", "mode", "text", "says"),
    [
        (
            "no-such-one",
            None,
            None,
            "The command 'no-such-one' was not found on the gateway's PATH",
        ),
        ("{}/missing", None, None, "does not exist"),
        ("{}", None, None, "is a folder"),
        ("{}/plain", 0o644, "#!/bin/sh\n", "is not executable"),
        ("{}/headless", 0o755, "echo hello\n", "is no program"),
        ("{}/astray", 0o755, "#!/no/such/interpreter\n", "names an interpreter"),
        ("nul\0byte", None, None, "characters that no program can be given"),
        ("\ud800", None, None, "characters that no program can be given"),
    ],
)
async def test_a_command_that_cannot_work_is_told_in_words(
    tmp_path: Path, command: str, mode: int | None, text: str | None, says: str
) -> None:
    """R-12: retrying soon would not help."""
    command = command.replace("{}", str(tmp_path))
    if text is not None and mode is not None:
        place(command, text, mode)
    spawner = Spawner()
    heard = Heard()
    wire = made(spawner, command=command)
    with pytest.raises(ConfigurationFault) as caught:
        await wire.open(heard)
    assert says in caught.value.reason
    assert caught.value.phase == "connect"
    await asyncio.wait_for(wire.close(), 1)
    assert (heard.lost, wire.epitaph()) == ([], "")
    await spawner.close()


def place(path: str, text: str, mode: int) -> None:
    Path(path).write_text(text)
    Path(path).chmod(mode)


async def test_the_registration_may_set_the_path_its_command_is_found_on(tmp_path: Path) -> None:
    (tmp_path / "mine").symlink_to("/bin/sh")
    spawner = Spawner()
    wire = made(spawner, command="mine", env={"PATH": str(tmp_path)})
    await wire.open(Heard())
    await wire.close()
    elsewhere = made(spawner, command="mine", env={"PATH": "/"})
    with pytest.raises(ConfigurationFault, match="was not found on the PATH its env sets"):
        await elsewhere.open(Heard())
    await elsewhere.close()
    await spawner.close()


async def test_a_child_sees_nothing_of_the_gateway(monkeypatch: pytest.MonkeyPatch) -> None:
    """R-48, S4: no variable, no descriptor, no signal disposition."""
    monkeypatch.setenv("MCP_CREDENTIAL_KEY", "sealed")
    monkeypatch.setenv("MCP_AGGREGATOR_LLM_API_KEY", "sealed")
    monkeypatch.setenv("SOME_TOKEN", "sealed")
    monkeypatch.setenv("LC_TIME", "C")
    leaked = os.open(SERVER, os.O_RDONLY)
    os.set_inheritable(leaked, True)
    async with opened(env={"DECLARED": "é"}) as line, opened() as other:
        await other.ask("echo")
        seen = await line.ask("surroundings")
    os.close(leaked)
    allowed = {"HOME", "LANG", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "USER", "LC_TIME", "LC_CTYPE"}
    assert set(seen["environment"]) - allowed == {"DECLARED", "TRUNKLINE_CHILD"}
    assert seen["environment"]["DECLARED"] == "é"
    assert seen["environment"]["LC_TIME"] == "C"
    assert set(seen["fds"]) <= {"0", "1", "2", "3"}
    assert all(seen["fds"][fd].startswith("pipe:") for fd in "012")
    assert seen["fds"].get("3", "/proc/").startswith("/proc/"), "only the listing of the folder itself"
    assert seen["session"] == seen["group"] == seen["pid"]
    assert int(seen["blocked"], 16) == 0
    # Python itself ignores SIGPIPE (13) and SIGXFSZ (25).
    assert int(seen["ignored"], 16) & ~(1 << 12 | 1 << 24) == 0


# Closing


async def test_closing_twice_and_while_opening_leaves_nothing() -> None:
    spawner = Spawner()
    wire = made(spawner)
    heard = Heard()
    opening = asyncio.ensure_future(wire.open(heard))
    await asyncio.sleep(0)
    closings = [wire.close(), wire.close()]
    await asyncio.wait_for(asyncio.gather(*closings), 10)
    await asyncio.gather(opening, return_exceptions=True)
    assert running() == []
    with pytest.raises(NotSent, match="closed"):
        await wire.open(heard)
    with pytest.raises(NotSent):
        await wire.notify("x")
    assert heard.lost == []
    await spawner.close()


@on_both_loops
async def test_an_opening_that_is_cancelled_leaves_nothing() -> None:
    spawner = Spawner()
    for _ in range(5):
        wire = made(spawner)
        opening = asyncio.ensure_future(wire.open(Heard()))
        await asyncio.sleep(random.random() * 0.02)
        opening.cancel()
        await asyncio.gather(opening, return_exceptions=True)
        await asyncio.wait_for(wire.close(), 10)
    assert running() == []
    await spawner.close()


@on_both_loops
async def test_an_opening_that_is_cancelled_as_a_pipe_is_made_is_closed() -> None:
    """The moment at which a pipe is there and its maker does not know it yet."""
    spawner = Spawner()
    for name in ("_input", "_output", "_errors"):
        wire = made(spawner)
        opening = asyncio.ensure_future(wire.open(Heard()))
        while getattr(wire, name).transport is None:  # noqa: ASYNC110 (its very next turn is meant)
            await asyncio.sleep(0)
        opening.cancel()
        await asyncio.gather(opening, return_exceptions=True)
        await asyncio.wait_for(wire.close(), 10)
    assert running() == []
    await spawner.close()


@on_both_loops
async def test_closing_ends_a_child_that_ignores_everything() -> None:
    """R-11: closed stdin, then TERM, then KILL."""
    async with opened("--stubborn", close_grace=0.3, term_grace=0.4) as line:
        await line.ask("echo")
        began = time.monotonic()
        pending = asyncio.ensure_future(line.ask("slow", seconds=30))
        await asyncio.sleep(0)
        await line.wire.close()
        assert 0.7 <= time.monotonic() - began < 4
        with pytest.raises(Lost, match="the connection was closed"):
            await pending
        assert line.wire.epitaph() == "it was killed by signal 9"
        assert line.heard.lost == []


@on_both_loops
async def test_thirty_lives_leak_no_descriptor_and_no_process() -> None:
    """Failure mode 1."""
    spawner = Spawner()
    await one_life(spawner)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(30):
        await one_life(spawner)
    assert len(os.listdir("/proc/self/fd")) == before
    guard = spawner.guard_pid
    assert children_of(guard) == ""
    await spawner.close()
    assert not is_running(guard)


async def one_life(spawner: Spawner) -> None:
    line = Line(made(spawner))
    await line.wire.open(line.heard)
    assert await line.ask("echo", n=1) == {"n": 1}
    await line.wire.close()

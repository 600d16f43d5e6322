"""Sessions of the older era, and what the door of the protocol lets through at once."""

import asyncio
import json

import aiohttp
import pytest

from tests.journeys.conftest import Door, Open, eventually
from tests.journeys.mcp_client import LEGACY, events, mcp_client
from tests.servers.peers import scripted
from tests.servers.running import Upstreams

pytestmark = pytest.mark.parametrize("open_door", ["sqlite"], indirect=True)


async def test_a_lost_stream_is_taken_up_where_it_broke_off(door: Door) -> None:
    """The call goes on without its client, and nothing of its answer is lost or told twice."""
    await door.connected("slow", "STDIO", scripted())
    async with mcp_client(door.url + "/mcp", door.key, modern=False) as client:
        arguments = {"seconds": 1.0, "every": 0.05}
        params = {"name": "slow.progress", "arguments": arguments}
        message, _ = client.request("tools/call", params, progressToken="p")
        progress: list[float] = []
        last_id = ""
        async with aiohttp.ClientSession() as broken:
            post = broken.post(client.url, json=message, headers=client.headers)
            async with post as response:
                async for line in response.content:
                    if line.startswith(b"id: "):
                        last_id = line[4:].strip().decode()
                    elif line.startswith(b"data: {"):
                        progress.append(json.loads(line[6:])["params"]["progress"])
                    if len(progress) >= 3 and line == b"\n":
                        break
                response.close()
        headers = {**client.headers, "Accept": "text/event-stream", "Last-Event-ID": last_id}
        answer = None
        async with (
            asyncio.timeout(10),
            aiohttp.ClientSession() as again,
            again.get(client.url, headers=headers) as response,
        ):
            assert response.status == 200
            async for event in events(response):
                told = json.loads(event)
                if "result" in told:
                    answer = told
                else:
                    progress.append(told["params"]["progress"])
        assert answer is not None
        assert answer["result"]["content"][0]["text"] == "done"
        assert progress == sorted(set(progress))
        assert progress == [number + 1 for number in range(len(progress))]


async def test_sessions_are_forgotten_when_too_many_or_idle_too_long(open_door: Open) -> None:
    door = await open_door(max_client_sessions=2, client_session_idle=1)
    async with (
        mcp_client(door.url + "/mcp", door.key, modern=False) as first,
        mcp_client(door.url + "/mcp", door.key, modern=False) as second,
        mcp_client(door.url + "/mcp", door.key, modern=False) as third,
    ):
        assert (await first.ask("tools/list")).status == 404
        assert (await second.ask("tools/list")).status == 200
        assert (await third.ask("tools/list")).status == 200

        async def status() -> int:
            headers = {**third.headers, "Accept": "text/event-stream", "Last-Event-ID": "x"}
            del headers["Content-Type"]
            async with aiohttp.ClientSession() as session, session.get(third.url, headers=headers) as answer:
                return answer.status

        async with second.listening():
            await asyncio.sleep(2.5)  # what is idle for longer than allowed is found in real time
            assert (await second.ask("tools/list")).status == 200
        assert await status() == 404


async def test_a_session_that_is_deleted_is_gone(door: Door) -> None:
    async with mcp_client(door.url + "/mcp", door.key, modern=False) as client:
        async with (
            aiohttp.ClientSession() as session,
            session.delete(client.url, headers=client.headers) as answer,
        ):
            assert answer.status == 204
        assert (await client.ask("ping")).status == 404
        async with (
            aiohttp.ClientSession() as session,
            session.delete(client.url, headers=client.headers) as answer,
        ):
            assert answer.status == 404
            assert (await answer.json())["error"]["code"] == -32600


async def test_an_unknown_version_is_offered_the_latest(door: Door) -> None:
    async with mcp_client(door.url + "/mcp", door.key, modern=False) as client:
        del client.headers["Mcp-Session-Id"], client.headers["MCP-Protocol-Version"]
        params = {
            "protocolVersion": "2027-01-01",
            "capabilities": {},
            "clientInfo": {"name": "x", "version": "1"},
        }
        assert (await client.ask("initialize", params)).result["protocolVersion"] == LEGACY
        params["protocolVersion"] = "2025-03-26"
        assert (await client.ask("initialize", params)).result["protocolVersion"] == "2025-03-26"


@pytest.mark.parametrize("modern", [False, True])
async def test_what_is_too_much_at_once_is_refused_and_the_rest_goes_on(
    open_door: Open, upstreams: Upstreams, modern: bool
) -> None:
    door = await open_door(max_calls_per_server=2, max_calls_per_key=3)
    port = await upstreams.start("mirror.py", "modern")
    await door.connected("mirror", "HTTP", {"base_url": f"http://127.0.0.1:{port}/mcp"})
    await door.connected("other", "STDIO", scripted())
    async with mcp_client(door.url + "/mcp", door.key, modern=modern) as client:
        waiting = [asyncio.ensure_future(client.call("mirror.wait")) for _ in range(2)]
        await door.in_flight("mirror", 2)
        refused = await client.call("mirror.mirror")
        assert refused.status == 503
        assert refused.headers["Retry-After"] == "1"
        assert refused.message["error"]["data"]["error_code"] == "TOO_MANY_CALLS"
        assert (await client.call("other.echo", {"text": "x"})).status == 200
        waiting.append(asyncio.ensure_future(client.call("other.slow", {"seconds": 20})))
        await door.in_flight("other", 1)
        refused = await client.call("other.echo", {"text": "x"})
        assert refused.status == 503
        assert "MAX_CALLS_PER_KEY" in refused.message["error"]["message"]
        for call in waiting:
            call.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def test_a_key_has_its_calls_of_a_minute(open_door: Open) -> None:
    door = await open_door(rate_limit=5)
    await door.connected("other", "STDIO", scripted())
    async with mcp_client(door.url + "/mcp", door.key, modern=True) as client:
        answers = [await client.call("other.echo", {"text": "x"}) for _ in range(6)]
        assert [answer.status for answer in answers] == [200] * 5 + [429]
        assert int(answers[-1].headers["Retry-After"]) >= 1
        status, answer = await door.call("other.echo", text="x")
        assert (status, answer["error_code"]) == (429, "RATE_LIMITED")


async def test_a_result_that_is_too_large_is_cut_and_says_so(open_door: Open) -> None:
    door = await open_door(result_limit=4096)
    await door.connected("other", "STDIO", scripted())
    async with mcp_client(door.url + "/mcp", door.key, modern=True) as client:
        answer = await client.call("other.large", {"size": 1_000_000})
        texts = [block["text"] for block in answer.result["content"]]
        assert len(answer.body) < 5000
        assert set(texts[0]) == {"x"}
        assert "at most 4096 are passed on" in texts[-1]
        assert (await client.call("other.large", {"size": 1000})).result["content"][0]["text"] == "x" * 1000


async def test_a_parked_call_dies_with_the_gateway_and_is_not_run_again(
    open_door: Open, upstreams: Upstreams
) -> None:
    """Its client is told that nobody knows; never a hang, never a second run."""
    everything = "../conformance/everything_server.py"
    port = await upstreams.start(everything, "--era", "legacy", "http")
    door = await open_door()
    await door.connected("every", "HTTP", {"base_url": f"http://127.0.0.1:{port}/mcp"})
    able: dict[str, object] = {"elicitation": {"form": {}}}
    name, arguments = "every__test_elicitation", {"message": "Who?"}
    async with mcp_client(door.url + "/mcp", door.key, modern=True, capabilities=able) as client:
        asked = (await client.call(name, arguments)).result
        assert asked["resultType"] == "input_required"
    await open_door.close()
    door = await open_door()
    await eventually(lambda: door.server("every"), lambda it: it["status"] == "CONNECTED")
    answers = {key: {"action": "decline"} for key in asked["inputRequests"]}
    again = {
        "name": name,
        "arguments": arguments,
        "requestState": asked["requestState"],
        "inputResponses": answers,
    }
    async with mcp_client(door.url + "/mcp", door.key, modern=True, capabilities=able) as client:
        answer = await client.ask("tools/call", again)
        assert (answer.status, answer.code) == (400, -32602)
        assert "not known" in answer.message["error"]["message"]


CANCELLED = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}}


async def mirror(door: Door, upstreams: Upstreams) -> None:
    port = await upstreams.start("mirror.py", "legacy")
    await door.connected("mirror", "HTTP", {"base_url": f"http://127.0.0.1:{port}/mcp"})


async def test_a_cancel_that_overtakes_its_request_cancels_it(door: Door, upstreams: Upstreams) -> None:
    """They come on two connections; the request is then neither carried out nor answered."""
    await mirror(door, upstreams)
    async with mcp_client(door.url + "/mcp", door.key, modern=False) as client:
        assert (await client.post(CANCELLED)).status == 202
        withdrawn = await client.call("mirror.mirror", id=7)
        assert (withdrawn.status, withdrawn.body) == (200, b"")
        assert (await client.call("mirror.seen", id=8)).result["structuredContent"]["calls"] == 0
        assert (await client.call("mirror.mirror", id=7)).result["unheardOf"] == {}
        assert (await client.post(CANCELLED)).status == 202
        assert (await client.call("mirror.mirror", id=7)).result["unheardOf"] == {}


async def test_an_id_that_is_used_twice_at_once_is_answered_and_cancelled_twice(
    door: Door, upstreams: Upstreams
) -> None:
    """A client should not; its answers do not cross, and no call is left behind."""
    await mirror(door, upstreams)
    async with mcp_client(door.url + "/mcp", door.key, modern=False) as client:
        given = [{"it": number} for number in range(20)]
        answers = await asyncio.gather(*(client.call("mirror.mirror", it, id=7) for it in given))
        assert [answer.result["unheardOf"] for answer in answers] == given
        calls = [asyncio.ensure_future(client.call("mirror.wait", id=7)) for _ in range(3)]
        await door.in_flight("mirror", 3)
        assert (await client.post(CANCELLED)).status == 202
        assert [answer.body for answer in await asyncio.wait_for(asyncio.gather(*calls), 10)] == [b""] * 3

        async def cancelled() -> int:
            seen: int = (await client.call("mirror.seen")).result["structuredContent"]["cancelled"]
            return seen

        await eventually(cancelled, lambda count: count == 3)

"""What a limit keeps out, also when many come at once: servers, tools, connections."""

import asyncio

from tests.journeys.conftest import API, Open
from tests.servers.peers import scripted


async def test_many_registrations_at_once_do_not_exceed_the_limit(open_door: Open) -> None:
    """R-09."""
    door = await open_door(max_servers=3)

    async def register(number: int) -> int:
        config = {"name": f"server-{number}", "transport_type": "STDIO", "connection_config": scripted()}
        return (await door.ask("POST", f"{API}/servers", {**config, "auto_connect": False}))[0]

    assert sorted(await asyncio.gather(*(register(number) for number in range(12)))) == [201] * 3 + [422] * 9
    assert (await door.ask("GET", f"{API}/servers"))[1]["total"] == 3
    await door.ask(
        "DELETE", f"{API}/servers/{(await door.ask('GET', f'{API}/servers'))[1]['servers'][0]['id']}"
    )
    assert sorted(await asyncio.gather(*(register(number) for number in range(12, 15)))) == [201, 422, 422]

"""What the gateway says of itself and tells unasked: its introduction, and notifications as they are written.

Pure but for looking at the gateway. Both eras say the same things in slightly other words.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trunkline.core.gateway import Gateway
from trunkline.wire import eras, jsonrpc, tasks, translate

LISTEN_NAMES = {
    "tools": "toolsListChanged",
    "prompts": "promptsListChanged",
    "resources": "resourcesListChanged",
}
"""Kind → how a listener of the newer era asks for it."""
KINDS_OF = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resources",
}
LONGEST_INSTRUCTIONS = 16_000

_CAPABILITIES: Mapping[str, Mapping[str, Any]] = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"subscribe": True, "listChanged": True},
    "completions": {},
    "logging": {},
}
_OF_ALL: Mapping[str, Mapping[str, Any]] = {**_CAPABILITIES, "extensions": {tasks.EXTENSION: {}}}


@dataclass(frozen=True, slots=True)
class Introduced:
    capabilities: Mapping[str, Any]
    instructions: str


def introduction(gateway: Gateway, view: str | None) -> Introduced:
    """Of everything: all there can be, since servers come later. Of one server: what that server has."""
    shelf = gateway.shelf(view)
    said = [(server.name, gateway.introduction_of(server.id)) for server in shelf.servers]
    if view is not None and said[0][1] is not None:
        own = said[0][1]
        shown = {name: value for name, value in _CAPABILITIES.items() if name in own.capabilities}
        extensions = own.capabilities.get("extensions")
        if isinstance(extensions, dict):
            shown["extensions"] = {
                name: value for name, value in extensions.items() if own.modern or name != tasks.EXTENSION
            }
        return Introduced(shown, own.instructions or "")
    parts = [f"# {name}\n{own.instructions}" for name, own in said if own is not None and own.instructions]
    return Introduced(_OF_ALL, "\n\n".join(parts)[:LONGEST_INSTRUCTIONS])


def progress(params: bytes, token: bytes) -> bytes:
    """A server's progress under the client's own token."""
    try:
        members = jsonrpc.fields(params)
    except jsonrpc.Malformed:
        members = {}
    members["progressToken"] = token
    return jsonrpc.encode_notification("notifications/progress", translate.joined(members))


def of_task(told: bytes, identity: bytes) -> bytes:
    """What a server tells of a task, as the subscription that `identity` names is told."""
    return tasks.notification(told, {eras.SUBSCRIPTION_KEY: identity})


def marked(method: str, members: bytes, mark: bytes) -> bytes:
    """A notification on a stream of subscriptions, which says on which."""
    return jsonrpc.encode_notification(method, b"{%b%b%b}" % (members, b"," if members else b"", mark))


def marked_plain(method: str, members: bytes) -> bytes:
    """The same in the older era, whose stream needs no mark."""
    return jsonrpc.encode_notification(method, b"{%b}" % members if members else b"")

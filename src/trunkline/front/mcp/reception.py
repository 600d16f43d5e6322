"""Where clients of the session era are let in, whichever transport carries them.

`http.py` and `sse.py` have one `Reception` between them: one table of sessions, one limit, one audience. It
opens sessions, finds them again for their owner alone, and ends them. It reads and writes no HTTP.
"""

from urllib.parse import quote

from trunkline.core.gateway import Gateway
from trunkline.front.mcp.audience import Audience
from trunkline.front.mcp.channel import Channel
from trunkline.front.mcp.desk import Desk, Visitor
from trunkline.front.mcp.envelope import RpcFailure
from trunkline.front.mcp.legacy import LegacyFront
from trunkline.front.mcp.sessions import Session, Sessions
from trunkline.model import Principal
from trunkline.wire import jsonrpc

_SERVERS = "/servers/"


def view_of(path: str, root: str) -> tuple[bool, str | None]:
    """Whether the path is an address below `root`, and which server's if it is one server's."""
    if path == root:
        return True, None
    if path.startswith(root + _SERVERS):
        name = path[len(root) + len(_SERVERS) :]
        return bool(name) and "/" not in name, name
    return False, None


def address_of(root: str, view: str | None) -> str:
    return root if view is None else root + _SERVERS + quote(view, safe="")


class Reception:
    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self.desk = Desk(gateway)
        self.audience = Audience(gateway)
        self.legacy = LegacyFront(gateway, self.desk, self.audience)
        self.sessions = Sessions(
            most=gateway.settings.max_client_sessions,
            idle_seconds=gateway.settings.client_session_idle,
            on_closed=self._on_session_closed,
        )

    def new_session(self, principal: Principal, view: str | None, general: Channel | None = None) -> Session:
        """Not open yet: what its client says first may be refused."""
        return Session(principal, view, general, patience=self.gateway.settings.question_timeout)

    def open(self, session: Session) -> None:
        self.sessions.open(session)
        self.audience.add(session.ear)

    def find(self, visitor: Visitor, session_id: str) -> Session:
        """Raises `RpcFailure`."""
        session = self.sessions.find(session_id, visitor.principal, visitor.view)
        if session is None:
            raise RpcFailure(
                jsonrpc.INVALID_REQUEST, "There is no such session (any more): initialize again", status=404
            )
        return session

    def _on_session_closed(self, session: Session) -> None:
        self.gateway.in_background(self.audience.remove(session.ear))

    def close(self) -> None:
        self.audience.close()
        self.sessions.close_all()

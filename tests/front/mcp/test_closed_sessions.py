"""A session that is over leaves memory at once."""

import gc
import weakref

from trunkline.front.mcp.sessions import Session, Sessions
from trunkline.model import Principal, Scope


async def test_a_closed_session_is_gone_without_a_garbage_collection() -> None:
    """Thousands of abandoned ones would otherwise wait in memory for a full collection."""
    sessions = Sessions(most=1, idle_seconds=60, on_closed=lambda session: None)
    principal = Principal("k", "k", Scope.CALL)
    session = Session(principal, None, patience=60)
    gone = weakref.ref(session)
    gc.disable()
    try:
        sessions.open(session)
        del session
        sessions.open(Session(principal, None, patience=60))
        assert gone() is None
    finally:
        gc.enable()
        sessions.close_all()

"""How a command ends when it cannot do what was asked: one line for a person, one exit code for a script.

0  done
1  refused or failed: the gateway said no, a tool answered with an error, doctor found something
2  the command line or a setting is not usable as it stands
3  no gateway answers
"""

from collections.abc import Mapping, Sequence
from typing import Any


class Failure(Exception):
    """Ends the command with `error: <message>`; hints follow on lines of their own."""

    exit_code = 1
    code = "FAILED"

    def __init__(self, message: str, *hints: str) -> None:
        super().__init__(message)
        self.message = message
        self.hints: Sequence[str] = hints

    @property
    def body(self) -> Mapping[str, Any]:
        """What --json prints: the gateway's own words where it has spoken, else ours in their shape."""
        return {"detail": self.message, "error_code": self.code, "context": {}}


class UsageFailure(Failure):
    exit_code = 2
    code = "USAGE"


class NoGateway(Failure):
    exit_code = 3
    code = "NO_GATEWAY"


class Refused(Failure):
    """The gateway answered with an error; its words and its code, and the fields it names."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        faults: Sequence[str] = (),
        body: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(f"{detail} ({code})", *faults)
        self.status = status
        self.code = code
        self.detail = detail
        self._body = body

    @property
    def body(self) -> Mapping[str, Any]:
        return self._body or super().body

"""Cuts a byte stream into lines without ever holding more than one bounded line.

Pure. A line over the limit is thrown away while it streams by and reported as `Oversized`, with the
little of it that may still tell whose answer it was; the next line is read as if nothing had happened.
Of a line that cannot be read it tells whose answer it was, and where a whole message may begin in it.
"""

import itertools
import re
from dataclasses import dataclass

_KEPT = 512
_PLAIN_MEMBER = re.compile(rb'[{,]\s*"([^"\\]*)"\s*:\s*("[^"\\]*"|[\w.+-]+)\s*(?=[,}])')
_PLAIN_MEMBERS_AT_END = re.compile(rb'(?:,\s*"[^"\\]*"\s*:\s*(?:"[^"\\]*"|[\w.+-]+)\s*)+\}\s*\Z')
_MORE_DIGITS_THAN_OURS = 18
_OUTCOME = re.compile(rb'\s*[{,]\s*"[re]')
"""How a `result` or an `error` begins, were the rest of its name cut off."""
_START = re.compile(rb'\{\s*"jsonrpc"\s*:')
_MOST_STARTS = 8


@dataclass(frozen=True, slots=True)
class Oversized:
    size: int
    probable_id: int | None
    """The id it answers, if it is an answer and its id can be told apart from its content."""
    asked_id: int | str | None = None
    """The id it asks under, if it is a request."""


class LineSplitter:
    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._buffer = bytearray()
        self._dropped = 0
        self._head = b""

    def feed(self, chunk: bytes) -> list[bytes | Oversized]:
        """The lines that became complete, without their line ends; blank ones are left out."""
        lines: list[bytes | Oversized] = []
        start = 0
        while (end := chunk.find(b"\n", start)) != -1:
            self._take(chunk[start:end])
            self._finish(lines)
            start = end + 1
        self._take(chunk[start:] if start else chunk)
        return lines

    def rest(self) -> bytes:
        """What came after the last line end; nothing of a line that was too long."""
        return b"" if self._dropped else bytes(self._buffer)

    def _take(self, piece: bytes) -> None:
        if self._dropped:
            self._dropped += len(piece)
            self._buffer += piece[-_KEPT:]
            del self._buffer[:-_KEPT]
            return
        self._buffer += piece
        if len(self._buffer) > self._limit:
            self._dropped = len(self._buffer)
            self._head = bytes(self._buffer[:_KEPT])
            del self._buffer[:-_KEPT]

    def _finish(self, lines: list[bytes | Oversized]) -> None:
        if self._dropped:
            members = _outer_members(self._head, bytes(self._buffer))
            lines.append(Oversized(self._dropped, _id_of_answer(members), _id_of_request(members)))
        else:
            line = bytes(self._buffer).strip(b" \t\r")
            if line:
                lines.append(line)
        self._buffer.clear()
        self._dropped = 0
        self._head = b""


def later_starts(line: bytes) -> list[int]:
    """Where in a broken line another message may begin: what was left half written has no line end."""
    return [found.start() for found in itertools.islice(_START.finditer(line, 1), _MOST_STARTS)]


def _outer_members(head: bytes, tail: bytes) -> dict[bytes, bytes]:
    """Only members of the message itself count: those before its first and after its last nested value."""
    members, _ = _first_members(head)
    if at_end := _PLAIN_MEMBERS_AT_END.search(tail):
        members.update((member[1], member[2]) for member in _PLAIN_MEMBER.finditer(at_end[0]))
    return members


def answered_by(broken: bytes) -> int | None:
    """The id that a message answers which cannot be read, or was cut off, in its result or error."""
    members, position = _first_members(broken[:_KEPT])
    answers = _OUTCOME.match(broken, position) or members.keys() & {b"result", b"error"}
    return _id_of_answer(members) if answers else None


def _first_members(head: bytes) -> tuple[dict[bytes, bytes], int]:
    """The plain members a message begins with, and where they end."""
    members: dict[bytes, bytes] = {}
    position = len(head) - len(head.lstrip())
    while member := _PLAIN_MEMBER.match(head, position):
        members[member[1]] = member[2]
        position = member.end()
    return members, position


def _id_of_answer(members: dict[bytes, bytes]) -> int | None:
    return None if b"method" in members else _number_in(members)


def _id_of_request(members: dict[bytes, bytes]) -> int | str | None:
    if b"method" not in members:
        return None
    identity = members.get(b"id", b"")
    return identity[1:-1].decode("utf-8", "replace") if identity.startswith(b'"') else _number_in(members)


def _number_in(members: dict[bytes, bytes]) -> int | None:
    identity = members.get(b"id", b"")
    return int(identity) if identity.isdigit() and len(identity) <= _MORE_DIGITS_THAN_OURS else None

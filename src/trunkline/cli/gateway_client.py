"""The command line's way to a running gateway: REST over a plain HTTP connection, one request at a time.

Finds the address and the key (flags over environment over what `serve` left in the data folder), sends,
and turns every way it can fail into a `Failure`. It knows the shape of errors, not of answers.
"""

import http.client
import ipaddress
import json
import os
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from trunkline.cli.failures import Failure, NoGateway, Refused, UsageFailure
from trunkline.settings import default_data_dir

AGGREGATOR = "/api/v1/aggregator"
TOOLS = "/api/v1/tools"
ADDRESS_FILE = "gateway.json"
KEY_FILE = "admin.key"

_CONNECT_SECONDS = 5.0
_ANSWER_SECONDS = 60.0
CALL_SECONDS = 86_400.0
"""The gateway bounds a call by its own settings; the command line only has to outwait it."""


@dataclass(frozen=True, slots=True)
class GatewayAddress:
    url: str
    key: str | None
    data_dir: Path
    found_by: str
    """Where the address came from, in words."""
    passing: bool = False
    """Whether it is there for one client of `trunkline stdio`, and goes with it."""


def data_dir_of(flag: Path | None, environ: Mapping[str, str] = os.environ) -> Path:
    if flag is not None:
        return flag.expanduser()
    named = environ.get("MCP_AGGREGATOR_DATA_DIR")
    return Path(named).expanduser() if named else default_data_dir()


def find_gateway(
    url: str | None, key: str | None, data_dir: Path | None, environ: Mapping[str, str] = os.environ
) -> GatewayAddress:
    """Raises `NoGateway` when nothing says where one is, `UsageFailure` when what says it is no address."""
    folder = data_dir_of(data_dir, environ)
    passing = False
    if url:
        found_by = "--url"
    elif url := environ.get("MCP_AGGREGATOR_URL"):
        found_by = "MCP_AGGREGATOR_URL"
    else:
        (url, passing), found_by = _word_in(folder), str(folder / ADDRESS_FILE)
    _require_address(url, found_by)
    key = key or environ.get("MCP_AGGREGATOR_KEY") or None
    if key is None and (found_by == str(folder / ADDRESS_FILE) or is_local(url)):
        # The local admin key is for the local gateway: it is never sent to an address somebody typed.
        key = _read_key(folder / KEY_FILE)
    if key is not None and not (key.isascii() and key.isprintable()):
        raise UsageFailure("The key has characters that no key has; was it copied whole?")
    return GatewayAddress(url.rstrip("/"), key, folder, found_by, passing)


def is_local(url: str) -> bool:
    """Whether the address is this machine's own."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _word_in(folder: Path) -> tuple[str, bool]:
    """What the running gateway left: its address, and whether it is a passing one."""
    try:
        word = json.loads((folder / ADDRESS_FILE).read_text("utf-8"))
        return str(word["url"]), word.get("passing") is True
    except FileNotFoundError:
        raise NoGateway(
            f"No gateway is running from {folder}: start one with `trunkline serve`, or name one with --url"
        ) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise NoGateway(
            f"Cannot read {folder / ADDRESS_FILE} ({type(error).__name__}): "
            "start the gateway again with `trunkline serve`, or name one with --url"
        ) from None


def _read_key(file: Path) -> str | None:
    try:
        return file.read_text("utf-8").strip() or None
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        raise UsageFailure(
            f"Cannot read the key in {file}: run as the user who runs the gateway, or give --key"
        ) from None


def _require_address(url: str, found_by: str) -> None:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise UsageFailure(f"{found_by} must be an address like http://127.0.0.1:8081, not {url!r}")


class GatewayClient:
    """One verb a method; answers are JSON as it came."""

    def __init__(self, address: GatewayAddress) -> None:
        self.address = address
        parts = urlsplit(address.url)
        self._secure = parts.scheme == "https"
        self._host = parts.hostname or ""
        self._port = parts.port
        self._base = parts.path.rstrip("/")

    def get(self, path: str, **query: object) -> Any:
        return self._request("GET", path, query=query)

    def post(self, path: str, body: object = None, *, timeout: float = _ANSWER_SECONDS) -> Any:
        return self._request("POST", path, body=body, timeout=timeout)

    def patch(self, path: str, body: object) -> Any:
        return self._request("PATCH", path, body=body)

    def delete(self, path: str) -> Any:
        return self._request("DELETE", path)

    def every(self, path: str, field: str, **query: object) -> Iterator[dict[str, Any]]:
        """All entries of a paged list."""
        offset = 0
        while True:
            page = self.get(path, **query, limit=100, offset=offset)
            entries = page[field]
            yield from entries
            offset += len(entries)
            if not entries or offset >= page["total"]:
                return

    def _request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, object] | None = None,
        body: object = None,
        timeout: float = _ANSWER_SECONDS,
    ) -> Any:
        given = {name: _plain(value) for name, value in (query or {}).items() if value is not None}
        target = self._base + path + (f"?{urlencode(given)}" if given else "")
        payload = None if body is None else json.dumps(body).encode()
        connection = self._connect()
        try:
            connection.sock.settimeout(timeout)
            connection.request(method, target, body=payload, headers=self._headers(payload))
            response = connection.getresponse()
            status, content = response.status, response.read()
        except TimeoutError:
            raise Failure(f"The gateway at {self.address.url} did not answer in {timeout:g} s") from None
        except (OSError, http.client.HTTPException) as error:
            raise NoGateway(
                f"The connection to the gateway at {self.address.url} broke ({_reason(error)}): "
                "is it still running? Start it with `trunkline serve`"
            ) from None
        finally:
            connection.close()
        return self._read(status, content)

    def _connect(self) -> http.client.HTTPConnection:
        kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
        connection = kind(self._host, self._port, timeout=_CONNECT_SECONDS)
        try:
            connection.connect()
        except ssl.SSLError as error:
            raise NoGateway(f"No secure connection to {self.address.url}: {error.reason or error}") from None
        except (OSError, UnicodeError) as error:
            raise NoGateway(
                f"No gateway answers at {self.address.url} ({_reason(error)}): "
                "start one with `trunkline serve`"
            ) from None
        return connection

    def _headers(self, payload: bytes | None) -> dict[str, str]:
        headers = {"Accept": "application/json"}
        if payload is not None:
            headers["Content-Type"] = "application/json"
        if self.address.key:
            headers["Authorization"] = f"Bearer {self.address.key}"
        return headers

    def _read(self, status: int, content: bytes) -> Any:
        if status == 204:
            return None
        try:
            answer = json.loads(content)
        except ValueError:
            raise NoGateway(
                f"What answers at {self.address.url} is not a Trunkline gateway (HTTP {status}, no JSON): "
                "check the address, or start one with `trunkline serve`"
            ) from None
        if 200 <= status < 300:
            return answer
        raise refusal(status, answer, has_key=self.address.key is not None)


def refusal(status: int, answer: Any, *, has_key: bool = True) -> Refused:
    """The error an answer states: `detail` is a text, or a list of faults that each name their field."""
    fields = answer if isinstance(answer, dict) else {}
    detail = fields.get("detail")
    code = str(fields.get("error_code") or f"HTTP {status}")
    if isinstance(detail, list):
        code = str(fields.get("error_code") or "VALIDATION_ERROR")
        faults = [_fault(entry) for entry in detail]
        if len(faults) == 1:
            return Refused(status, code, faults[0], body=fields)
        return Refused(status, code, f"{len(faults)} faults", faults, body=fields)
    hints = []
    if status == 401 and not has_key:
        hints.append(
            f"give one with --key or MCP_AGGREGATOR_KEY; the first lies in {KEY_FILE} beside the data"
        )
    if isinstance(candidates := fields.get("candidates"), list) and candidates:
        hints.append("one of: " + ", ".join(map(_candidate, candidates)))
    if code == "EXECUTION_FAILED" and isinstance(context := fields.get("context"), dict):
        hints += [
            f"the server's {part}: {json.dumps(context[part], ensure_ascii=False)}"
            for part in ("code", "data")
            if context.get(part) is not None
        ]
    return Refused(status, code, str(detail or f"the gateway answered HTTP {status}"), hints, body=fields)


def _fault(entry: Any) -> str:
    if not isinstance(entry, dict):
        return str(entry)
    place = [str(part) for part in entry.get("loc", ()) if part != "body"]
    text = str(entry.get("msg", "not usable"))
    return f"{'.'.join(place)}: {text}" if place else text


def _candidate(candidate: Any) -> str:
    return str(candidate.get("name", candidate)) if isinstance(candidate, dict) else str(candidate)


def segment(name: str) -> str:
    """A name as one part of a path."""
    return quote(name, safe="")


def _plain(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__

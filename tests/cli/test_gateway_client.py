"""Finding the gateway and its key, and telling apart the ways a request can fail."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from trunkline.cli.failures import Failure, NoGateway, UsageFailure
from trunkline.cli.gateway_client import GatewayAddress, GatewayClient, find_gateway, refusal, segment


def leave_word(folder: Path, url: str = "http://127.0.0.1:9", key: str = "tl_local") -> None:
    folder.mkdir(exist_ok=True)
    (folder / "gateway.json").write_text(json.dumps({"url": url, "pid": 1}))
    (folder / "admin.key").write_text(key + "\n")


def test_flags_come_before_the_environment_and_that_before_what_serve_left(tmp_path: Path) -> None:
    leave_word(tmp_path)
    environ = {"MCP_AGGREGATOR_URL": "http://127.0.0.1:2/", "MCP_AGGREGATOR_KEY": "of-environ"}
    found = find_gateway("http://127.0.0.1:3", "of-flag", tmp_path, environ)
    assert (found.url, found.key) == ("http://127.0.0.1:3", "of-flag")
    found = find_gateway(None, None, tmp_path, environ)
    assert (found.url, found.key) == ("http://127.0.0.1:2", "of-environ")
    found = find_gateway(None, None, None, {"MCP_AGGREGATOR_DATA_DIR": str(tmp_path)})
    assert (found.url, found.key) == ("http://127.0.0.1:9", "tl_local")


def test_the_local_admin_key_is_never_sent_to_an_address_of_another_machine(tmp_path: Path) -> None:
    leave_word(tmp_path)
    assert find_gateway("https://gateway.example.com", None, tmp_path, {}).key is None
    assert find_gateway("http://127.0.0.1.example.com", None, tmp_path, {}).key is None
    assert find_gateway("http://localhost:8081", None, tmp_path, {}).key == "tl_local"
    assert find_gateway("http://[::1]:8081", None, tmp_path, {}).key == "tl_local"


def test_a_gateway_on_a_public_address_of_this_machine_gets_its_own_key(tmp_path: Path) -> None:
    leave_word(tmp_path, url="http://192.0.2.1:8081")
    assert find_gateway(None, None, tmp_path, {}).key == "tl_local"


@pytest.mark.parametrize("word", ["", "{", "[]", "{}", '{"url": null}', '"x"'])
def test_a_broken_word_is_a_clear_line(tmp_path: Path, word: str) -> None:
    (tmp_path / "gateway.json").write_text(word)
    with pytest.raises(Failure) as failure:
        find_gateway(None, None, tmp_path, {})
    assert "gateway.json" in failure.value.message


@pytest.mark.parametrize("url", ["foo", "ftp://x", "http://", "http://x:99999", "http://[::1", "http://x:0"])
def test_an_address_that_is_none_is_refused(tmp_path: Path, url: str) -> None:
    with pytest.raises(UsageFailure, match="--url must be an address"):
        find_gateway(url, None, tmp_path, {})


@pytest.mark.parametrize("key", ["wröng", "a\nb", "\x00"])
def test_a_key_that_cannot_be_a_header_is_refused_before_it_is_sent(tmp_path: Path, key: str) -> None:
    with pytest.raises(UsageFailure, match="characters that no key has"):
        find_gateway("http://127.0.0.1:1", key, tmp_path, {})


@contextmanager
def peer(answer: bytes) -> Iterator[str]:
    """Something that is no gateway: takes one request and answers with these bytes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def run() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(answer)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread.join(5)


def client(url: str) -> GatewayClient:
    return GatewayClient(GatewayAddress(url, "key", Path("."), "--url"))


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n<ht>", "is not a Trunkline gateway"),
        (b"HTTP/1.1 502 Bad\r\nContent-Length: 0\r\n\r\n", "is not a Trunkline gateway (HTTP 502, no JSON)"),
        (b"SSH-2.0-OpenSSH_9\r\n", "broke"),
        (b"", "broke"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{", "broke"),
    ],
)
def test_what_is_no_gateway_is_told_from_one(answer: bytes, message: str) -> None:
    with peer(answer) as url, pytest.raises(NoGateway) as failure:
        client(url).get("/x")
    assert message in failure.value.message
    assert "trunkline serve" in failure.value.message


def test_nobody_there_is_said_with_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(NoGateway, match=r"No gateway answers at .* \(Connection refused\): start one with"):
        client(f"http://127.0.0.1:{port}").get("/x")


def test_a_single_fault_is_shown_with_its_field_and_several_a_line_each() -> None:
    fault = {"loc": ["body", "connection_config", "url"], "msg": "SSE transport requires 'url'", "type": "x"}
    one = refusal(422, {"detail": [fault]})
    assert one.message == "connection_config.url: SSE transport requires 'url' (VALIDATION_ERROR)"
    two = refusal(422, {"detail": [fault, {"loc": ["query", "limit"], "msg": "too large"}]})
    assert two.message == "2 faults (VALIDATION_ERROR)"
    assert list(two.hints) == [
        "connection_config.url: SSE transport requires 'url'",
        "query.limit: too large",
    ]


def test_an_error_is_shown_with_its_code() -> None:
    assert refusal(404, {"detail": "No", "error_code": "SERVER_NOT_FOUND"}).message == "No (SERVER_NOT_FOUND)"
    assert refusal(500, ["odd"]).message == "the gateway answered HTTP 500 (HTTP 500)"
    ambiguous = {"detail": "Two", "error_code": "TOOL_AMBIGUOUS", "candidates": ["a.x", {"name": "b.x"}]}
    assert refusal(400, ambiguous).hints == ("one of: a.x, b.x",)
    assert "give one with --key" in refusal(401, {"detail": "No"}, has_key=False).hints[0]


def test_a_name_is_one_part_of_a_path() -> None:
    assert segment("a/../b?c#d é") == "a%2F..%2Fb%3Fc%23d%20%C3%A9"

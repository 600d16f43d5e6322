"""What the gateway says in each era, and what it takes as evidence of one. The SDK serves as the oracle."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.shared.inbound import decode_header_value, encode_header_value, mcp_param_headers

from trunkline.wire import eras
from trunkline.wire.jsonrpc import ErrorResponse

text = st.text(st.characters(codec="utf-8"))


@given(text | st.sampled_from([" edge", "edge ", "a\tb", "=?base64?QQ==?=", "=?base64??=", "=?base64?QQ=="]))
def test_a_header_value_can_always_be_read_back(value: str) -> None:
    header = eras.header_value(value)
    assert header == encode_header_value(value)
    assert decode_header_value(header) == value
    assert header.isascii()
    assert header == header.strip()
    assert "\n" not in header
    assert "\r" not in header


values = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | text | st.lists(text)


@given(
    st.fixed_dictionaries({}, optional={"a": values, "in": st.dictionaries(st.just("b"), values) | values})
)
def test_parameters_are_mirrored_as_the_reference_implementation_mirrors_them(
    arguments: dict[str, Any],
) -> None:
    mirrored = (("A", ("a",)), ("B", ("in", "b")))
    expected = mcp_param_headers({path: suffix for suffix, path in mirrored}, arguments)
    assert eras.parameter_headers(mirrored, arguments) == expected


def test_the_headers_of_a_modern_request_mirror_it() -> None:
    assert eras.modern_headers("tools/call", "größe") == {
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/call",
        "Mcp-Name": "=?base64?Z3LDtsOfZQ==?=",
    }
    assert "Mcp-Name" not in eras.modern_headers("tools/list", None)


def test_a_modern_request_carries_its_envelope() -> None:
    """R-30: what stood in the parameters is not touched."""
    meta = json.loads(eras.request_meta(modern=True, progress_token=41))
    assert meta["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"
    assert meta["io.modelcontextprotocol/clientCapabilities"] == {}
    assert meta["io.modelcontextprotocol/clientInfo"]["name"] == "trunkline"
    assert meta["progressToken"] == 41
    assert "progressToken" not in json.loads(eras.request_meta(modern=True))


def test_a_legacy_request_carries_only_what_it_needs() -> None:
    assert eras.request_meta(modern=False) == b""
    assert eras.request_meta(modern=False, progress_token=3) == b'{"progressToken":3}'


@pytest.mark.parametrize(
    "params", [b"", b"{}", b" { } ", b'{"name":"x","arguments":{"a": 1.0}}', b' {"n":"{}"}\n']
)
def test_meta_is_put_beside_the_parameters(params: bytes) -> None:
    whole = eras.with_meta(params, b'{"progressToken":3}')
    assert json.loads(whole) == {**json.loads(params or b"{}"), "_meta": {"progressToken": 3}}
    assert params.strip()[1:-1].strip() in whole
    assert eras.with_meta(params, b"") == (params or b"{}")


def test_initialize_offers_the_latest_legacy_version() -> None:
    assert json.loads(eras.initialize_params())["protocolVersion"] == "2025-11-25"


@pytest.mark.parametrize(
    "result",
    [
        {
            "supportedVersions": ["2026-07-28"],
            "capabilities": {"tools": {}},
            "instructions": "Hi",
            "ttlMs": 0,
        },
        {
            "supportedVersions": ["2027-01-01", "2026-07-28"],
            "capabilities": {"tools": {}},
            "instructions": "Hi",
        },
    ],
)
def test_a_discovery_that_lists_our_version_proves_the_modern_era(result: object) -> None:
    found = eras.read_discovery(json.dumps(result).encode())
    assert found == eras.Introduction("2026-07-28", {"tools": {}}, "Hi")
    assert found.modern


@pytest.mark.parametrize(
    "result",
    [b"{}", b"null", b"[]", b"nonsense", b'{"supportedVersions":["2025-11-25"]}', b'{"supportedVersions":5}',
     b'{"tools":[]}', b"[" * 5000],
)  # fmt: skip
def test_anything_else_proves_nothing(result: bytes) -> None:
    assert eras.read_discovery(result) is None
    assert eras.read_initialization(result) is None


@pytest.mark.parametrize("version", eras.LEGACY_VERSIONS)
def test_every_legacy_version_is_understood(version: str) -> None:
    """R-11"""
    found = eras.read_initialization(json.dumps({"protocolVersion": version, "serverInfo": {}}).encode())
    assert found == eras.Introduction(version, {}, None)
    assert not found.modern


@pytest.mark.parametrize("version", ["2026-07-28", "1.0", "", None, 5])
def test_an_unknown_version_is_not_worked_with(version: object) -> None:
    assert eras.read_initialization(json.dumps({"protocolVersion": version}).encode()) is None


@pytest.mark.parametrize("oddity", [{"instructions": 5}, {"capabilities": None}, {"capabilities": []}])
def test_an_odd_word_about_itself_costs_a_server_nothing_else(oddity: dict[str, object]) -> None:
    """R-20"""
    legacy = json.dumps({"protocolVersion": "2025-06-18", **oddity}).encode()
    modern = json.dumps({"supportedVersions": ["2026-07-28"], **oddity}).encode()
    assert eras.read_initialization(legacy) == eras.Introduction("2025-06-18", {}, None)
    assert eras.read_discovery(modern) == eras.Introduction("2026-07-28", {}, None)


def error(code: int, data: object = None, message: str = "") -> ErrorResponse:
    return ErrorResponse(1, code, message, None if data is None else json.dumps(data).encode())


@pytest.mark.parametrize(
    ("answer", "modern"),
    [
        (error(-32020), True),
        (error(-32021), True),
        (error(-32022, {"supported": ["2026-07-28"], "requested": "x"}), True),
        (error(-32022, {"supported": ["2025-11-25"]}), False),
        (error(-32022, {"supported": "2026-07-28"}), False),
        (error(-32022), False),
        (error(-32600, message="Unsupported protocol version: 2026-07-28"), False),
        (error(-32601), False),
        (error(-32602), False),
        (error(-32000, {"supported": ["2026-07-28"]}), False),
    ],
)
def test_codes_are_evidence_and_texts_are_not(answer: ErrorResponse, modern: bool) -> None:
    assert eras.proves_modern(answer) is modern


def test_offered_versions_are_read_from_the_right_error_alone() -> None:
    assert eras.versions_offered(error(-32022, {"supported": ["2025-11-25"]})) == ["2025-11-25"]
    assert eras.versions_offered(error(-32601, {"supported": ["2025-11-25"]})) == []


def test_arguments_that_no_decoder_takes_have_no_headers() -> None:
    """R-30: they go to the server as they are all the same."""
    deep = b"[" * 5000 + b"]" * 5000
    assert eras.decoded_arguments(b'{"a":"cut \\ud83d","b":{"c":1},"d":' + deep + b"}") == {"b": {"c": 1}}

"""The few sentences of MCP that the benchmark's own parts say to each other, in both eras.

Written from the specification and apart from `trunkline.wire` on purpose: a mistake there must not be
able to agree with itself here. Used by `upstream.py`, `floor.py` and `load.py`.
"""

MODERN = "2026-07-28"
LEGACY_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
LATEST_LEGACY = LEGACY_VERSIONS[-1]

VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
SERVER_INFO_KEY = "io.modelcontextprotocol/serverInfo"

METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
UNSUPPORTED_VERSION = -32022

ENVELOPE = (
    b'{"io.modelcontextprotocol/protocolVersion":"2026-07-28",'
    b'"io.modelcontextprotocol/clientInfo":{"name":"trunkline-bench","version":"1"},'
    b'"io.modelcontextprotocol/clientCapabilities":{}}'
)
"""What every modern request carries as `_meta`."""


def modern_call(identity: int, name: bytes, arguments: bytes) -> bytes:
    """A `tools/call` of 2026-07-28; `name` is a JSON string, `arguments` a JSON object."""
    return (
        b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%b,"arguments":%b,"_meta":%b}}'
        % (identity, name, arguments, ENVELOPE)
    )


def legacy_call(identity: int, name: bytes, arguments: bytes) -> bytes:
    """A `tools/call` of the session era."""
    return (
        b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%b,"arguments":%b}}'
        % (identity, name, arguments)
    )  # fmt: skip


def list_request(identity: int, *, modern: bool) -> bytes:
    """A `tools/list`, in either era."""
    params = b'{"_meta":%b}' % ENVELOPE if modern else b"{}"
    return b'{"jsonrpc":"2.0","id":%d,"method":"tools/list","params":%b}' % (identity, params)


def modern_headers(method: str, name: str | None) -> dict[str, str]:
    headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": method}
    return headers if name is None else {**headers, "Mcp-Name": name}

"""What in a configuration is a secret: a text cut into pieces, each shown or hidden.

One judgement serves two ends: `configuration.py` masks the hidden pieces for answers, `admission.py` gives
them to the redactor. Header and environment values are secrets as a whole and need no cutting; urls and
arguments are secrets in places. Where it cannot know it hides: a place hidden for nothing costs little.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import unquote_plus

from trunkline.model import MASK
from trunkline.security.urls import split_url
from trunkline.security.variables import Reference, VariableFault, parse

_TELLING_NAME = re.compile(
    r"(?i)token|secret|passw|passphrase|pwd|api[_-]?key|access[_-]?key|private[_-]?key|credential|auth(?!or(?!i))|bearer|"
    r"cookie|session|signature|dsn|connection[_-]?string|key$|(?:^|[_-])(?:pass|sig)$"
)
_ASSIGNMENT = re.compile(r"""([\w.-]{1,64})["']?\s{0,8}[=:]\s{0,8}""")
_FLAG = re.compile(r"--?[A-Za-z][\w.-]*")
_HEADER_FLAGS = frozenset({"-H", "--header", "--headers"})
_HEADER = re.compile(r"(?:--?headers?=)?[!#$%&'*+.^_`|~0-9A-Za-z-]+\s*[:=]\s*")
_EMBEDDED_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,31}://[^\s\"'<>,]+")
_KNOWN_KEY = re.compile(
    r"(?:sk|pk|rk|gh[pousr]|github_pat|glpat|xox[abeprs]|hf|npm|pypi|tl|lin_api|ntn|secret|key)[_-]\S{8,}"
    r"|AKIA[0-9A-Z]{12,}|AIza[\w-]{20,}|eyJ[\w-]+\.\S+"
)
_HEX_KEY = re.compile(r"[0-9A-Fa-f-]{32,}")
_BASE36_KEY = re.compile(r"(?=(?:[^0-9]*[0-9]){4})[a-z0-9]{32,}")
_MIXED_KEY = re.compile(r"(?=.*[a-z])(?=.*[A-Z])(?=.*[0-9])[\w+=~%-]{20,}")
_SCHEME_WORD = re.compile(r"(?:(?:Bearer|Basic|Token|ApiKey|Api-Key)\s+|\s+)", re.IGNORECASE)

_ORDINARY_VALUE = re.compile(r"[A-Za-z]{1,12}|[0-9.]{1,6}|")
_SWITCH = re.compile(r"(?i)true|false|yes|no|on|off|none|null|[01]|")
_ORDINARY_NAMES = frozenset({
    "path", "home", "lang", "tmpdir", "tz", "user", "shell", "pwd", "term", "node_env", "log_level", "debug",
    "accept", "accept-language", "content-type", "user-agent",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Piece:
    text: str
    hidden: bool


def tells_of_secret(name: str) -> bool:
    """Whether what stands under this name is probably a secret."""
    return _TELLING_NAME.search(name) is not None


def looks_like_key(text: str) -> bool:
    return any(shape.fullmatch(text) for shape in (_KNOWN_KEY, _HEX_KEY, _BASE36_KEY, _MIXED_KEY))


def hide(text: str) -> str:
    """The mask, with references left as they are: a name of a variable is no secret."""
    try:
        pieces = parse(text)
    except VariableFault:
        return MASK
    if not any(isinstance(piece, Reference) for piece in pieces):
        return MASK if text else ""
    return "".join(
        str(piece) if isinstance(piece, Reference) else piece if _SCHEME_WORD.fullmatch(piece) else MASK
        for piece in pieces
    )


def shown(pieces: Sequence[Piece]) -> str:
    return "".join(hide(piece.text) if piece.hidden else piece.text for piece in pieces)


def url_pieces(url: str) -> list[Piece]:
    """User info, the values of the query, the fragment, and parts of the path that look like a key."""
    parts = split_url(url)
    if parts is None:
        return [Piece(url, hidden=True)]
    pieces = [Piece(f"{parts.scheme}://", hidden=False)]
    if parts.userinfo is not None:
        pieces += [Piece(parts.userinfo, hidden=True), Piece("@", hidden=False)]
    pieces.append(Piece(parts.host_and_port, hidden=False))
    for segment in re.split(r"(/)", parts.path):
        pieces.append(Piece(segment, hidden=looks_like_key(segment)))
    if parts.query is not None:
        pieces.append(Piece("?", hidden=False))
        for pair in re.split(r"([&;])", parts.query):
            name, equals, value = pair.partition("=")
            pieces.append(Piece(name + equals, hidden=not equals and pair not in "&;"))
            pieces.append(Piece(value, hidden=True))
    if parts.fragment is not None:
        pieces += [Piece("#", hidden=False), Piece(parts.fragment, hidden=True)]
    return [piece for piece in pieces if piece.text]


def argument_pieces(args: Sequence[str]) -> list[list[Piece]]:
    """`--token X`, `--token=X`, `NAME_TOKEN=X`, `-H "Name: X"`, urls with credentials, and bare keys."""
    return [_argument(arg, args[index - 1] if index else "") for index, arg in enumerate(args)]


def _argument(arg: str, before: str) -> list[Piece]:
    if _FLAG.fullmatch(before) and tells_of_secret(before):
        return [Piece(arg, hidden=True)]
    start = _HEADER.match(arg) if before in _HEADER_FLAGS or arg.startswith(("--header", "-H")) else None
    start = start or _telling_assignment(arg)
    if start is not None:
        return [*_with_urls(arg[: start.end()]), Piece(arg[start.end() :], hidden=True)]
    return _with_urls(arg)


def _telling_assignment(arg: str) -> re.Match[str] | None:
    assignments = _ASSIGNMENT.finditer(arg)
    return next((found for found in assignments if tells_of_secret(found[1])), None)


def _with_urls(text: str) -> list[Piece]:
    pieces: list[Piece] = []
    end = 0
    for url in _EMBEDDED_URL.finditer(text):
        pieces += _words(text[end : url.start()])
        pieces += url_pieces(url[0])
        end = url.end()
    return [piece for piece in (*pieces, *_words(text[end:])) if piece.text]


def _words(text: str) -> list[Piece]:
    return [Piece(word, hidden=looks_like_key(word)) for word in re.split(r"([\s=:,\"'/@]+)", text)]


def secret_values(
    *,
    named: Mapping[str, str],
    url: str | None = None,
    args: Sequence[str] = (),
) -> frozenset[str]:
    """What the redactor must know of a configuration whose variables are filled in.

    `named` are headers or environment. Ordinary words under ordinary names (`LOG_LEVEL=debug`) are left out:
    masking them by value would blot them out of every log line.
    """
    found: set[str] = set()
    for name, value in named.items():
        if not _is_ordinary(name, value):
            found.add(value)
            found.add(_SCHEME_WORD.sub("", value, count=1) if _SCHEME_WORD.match(value) else value)
            found.update(piece.text for piece in _with_urls(value) if piece.hidden)
    cut = argument_pieces(args)
    if url is not None:
        cut.append(url_pieces(url))
    hidden = {piece.text for pieces in cut for piece in pieces if piece.hidden}
    found |= hidden | {unquote_plus(text) for text in hidden}
    return frozenset(found - {""})


def _is_ordinary(name: str, value: str) -> bool:
    ordinary = _SWITCH if tells_of_secret(name) else _ORDINARY_VALUE
    return name.lower() in _ORDINARY_NAMES or ordinary.fullmatch(value) is not None

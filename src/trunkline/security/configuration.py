"""A `connection_config` in its four shapes: as it came in, as a spec, as sealed JSON, as it is shown.

`read_spec` says of every field what is wrong with its presence and type; whether a value may be is judged
in `admission.py`. `masked` shows a spec without its secrets, and `merge_masked` takes what was shown and
sent back, so that a mask keeps the secret it stands for and can never be stored as one.
"""

import difflib
import json
from collections.abc import Callable, Mapping, Sequence

from trunkline.errors import FieldError, ValidationError
from trunkline.model import MASK, HttpSpec, ProfileSpec, ServerSpec, SseSpec, StdioSpec, Transport
from trunkline.security.secrecy import (
    argument_pieces,
    hide,
    looks_like_key,
    shown,
    tells_of_secret,
    url_pieces,
)
from trunkline.security.urls import split_url

_CONFIG = ("body", "connection_config")
MOST_FAULTS = 20
MOST_ENTRIES = 256

_FIELDS: Mapping[Transport, tuple[str, ...]] = {
    Transport.STDIO: ("command", "args", "env", "profile", "parameters"),
    Transport.SSE: ("url", "headers"),
    Transport.HTTP: ("base_url", "url", "headers"),
}


def read_transport(text: str) -> Transport:
    """Any case; `STREAMABLE_HTTP` and `streamable-http` are HTTP. Raises `ValidationError`."""
    name = text.strip().upper().replace("-", "_")
    name = {"STREAMABLE_HTTP": "HTTP", "STREAMABLEHTTP": "HTTP"}.get(name, name)
    if name not in Transport.__members__:
        raise ValidationError.at(
            "body", "transport_type", msg=f"transport_type must be STDIO, SSE or HTTP, not {_short(text)}"
        )
    return Transport[name]


def read_spec(transport_type: str, config: Mapping[str, object]) -> ServerSpec:
    """Raises `ValidationError` with a fault for each field that is missing, unknown or of a wrong type."""
    transport = read_transport(transport_type)
    reader = _Reader(transport, config)
    spec = _READERS[transport](reader)
    reader.finish()
    return spec


class _Reader:
    """Takes fields out of a configuration, and keeps what is wrong with them until `finish`."""

    def __init__(self, transport: Transport, config: Mapping[str, object]) -> None:
        self._transport = transport
        self._config = config
        self._faults: list[FieldError] = []
        self._taken: set[str] = set()

    def has(self, name: str) -> bool:
        return self._config.get(name) is not None

    def required_text(self, name: str) -> str:
        value = self._take(name)
        if value is None or value == "":
            self.fault(f"{self._transport} transport requires '{name}' in connection_config", name)
            return ""
        return self._text(value, name)

    def texts(self, name: str) -> tuple[str, ...]:
        value = self._take(name)
        if value is None:
            return ()
        if not isinstance(value, Sequence) or isinstance(value, str | bytes):
            self.fault(f"'{name}' must be a list of texts", name, type="type_error")
            return ()
        return tuple(self._text(part, name, index) for index, part in enumerate(value))

    def table(self, name: str) -> dict[str, str]:
        return {key: self._text(value, name, key) for key, value in self._mapping(name).items()}

    def values(self, name: str) -> dict[str, str | int | bool]:
        taken: dict[str, str | int | bool] = {}
        for key, value in self._mapping(name).items():
            if isinstance(value, int):
                taken[key] = value
            else:
                taken[key] = self._text(value, name, key, kind="a text, a whole number, true or false")
        return taken

    def fault(self, message: str, *loc: str | int, type: str = "value_error") -> None:
        if len(self._faults) < MOST_FAULTS:
            self._faults.append(FieldError((*_CONFIG, *loc), message, type))

    def finish(self) -> None:
        for name in self._config:
            if name not in self._taken and self._config[name] is not None:
                self.fault(self._unknown(name), name, type="extra_forbidden")
        if self._faults:
            raise ValidationError(self._faults)

    def _take(self, name: str) -> object:
        self._taken.add(name)
        return self._config.get(name)

    def _mapping(self, name: str) -> Mapping[str, object]:
        value = self._take(name)
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            self.fault(f"'{name}' must be an object of names and values", name, type="type_error")
            return {}
        return value

    def _text(self, value: object, *loc: str | int, kind: str = "a text") -> str:
        where = str(loc[0]) if len(loc) == 1 else f"{loc[0]}[{_short(loc[1])}]"
        if not isinstance(value, str):
            self.fault(f"'{where}' must be {kind}", *loc, type="type_error")
            return ""
        if not _is_unicode(value) or not all(_is_unicode(part) for part in loc if isinstance(part, str)):
            self.fault(f"'{where}' has half of a surrogate pair in it, which is no character", *loc)
            return ""
        return value

    def _unknown(self, name: str) -> str:
        allowed = [field for field in _FIELDS[self._transport] if not self._rules_out(field)]
        takes = f"{self._transport} takes {', '.join(allowed)}"
        if name in _FIELDS[self._transport]:
            return f"'{name}' does not go together with 'profile': the profile states it"
        owners = [str(transport) for transport, fields in _FIELDS.items() if name in fields]
        if owners:
            return f"'{name}' belongs to the transport {' and '.join(owners)}; {takes}"
        near = difflib.get_close_matches(name[:64], allowed, 1)
        return f"connection_config has no field {_short(name)}; " + (
            f"did you mean '{near[0]}'?" if near else takes
        )

    def _rules_out(self, field: str) -> bool:
        return self.has("profile") and field in ("command", "args", "env")


def _read_stdio(reader: _Reader) -> ServerSpec:
    if reader.has("profile"):
        return ProfileSpec(reader.required_text("profile"), reader.values("parameters"))
    command = reader.required_text("command")
    args, env = reader.texts("args"), reader.table("env")
    if reader.has("parameters"):
        reader.fault("'parameters' needs a 'profile'", "parameters")
        reader.values("parameters")
    return StdioSpec(command, args, env)


def _read_sse(reader: _Reader) -> ServerSpec:
    return SseSpec(reader.required_text("url"), reader.table("headers"))


def _read_http(reader: _Reader) -> ServerSpec:
    if not reader.has("url"):
        return HttpSpec(reader.required_text("base_url"), reader.table("headers"))
    if reader.has("base_url"):
        reader.fault("'base_url' and 'url' are two names of one field: give only one of them", "base_url")
        reader.required_text("base_url")
    return HttpSpec(reader.required_text("url"), reader.table("headers"))


_READERS: Mapping[Transport, Callable[[_Reader], ServerSpec]] = {
    Transport.STDIO: _read_stdio,
    Transport.SSE: _read_sse,
    Transport.HTTP: _read_http,
}


def _is_unicode(text: str) -> bool:
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


def _short(value: object) -> str:
    """What the caller wrote, as one short printable word."""
    text = repr(value)
    return text if len(text) <= 66 else text[:60] + "…'"


# As it is sealed


def config_of(spec: ServerSpec) -> dict[str, object]:
    """The configuration as it would be registered again; empty fields are left out."""
    match spec:
        case StdioSpec():
            fields: dict[str, object] = {
                "command": spec.command, "args": list(spec.args), "env": dict(spec.env)
            }  # fmt: skip
        case ProfileSpec():
            fields = {"profile": spec.profile, "parameters": dict(spec.parameters)}
        case SseSpec():
            fields = {"url": spec.url, "headers": dict(spec.headers)}
        case HttpSpec():
            fields = {"base_url": spec.base_url, "headers": dict(spec.headers)}
    return {name: value for name, value in fields.items() if value not in ([], {})}


def spec_to_json(spec: ServerSpec) -> bytes:
    document = {"transport": spec.transport.value, "config": config_of(spec)}
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def spec_from_json(document: bytes) -> ServerSpec:
    stored = json.loads(document)
    return read_spec(stored["transport"], stored["config"])


# As it is shown


def masked(spec: ServerSpec) -> dict[str, object]:
    """As REST shows it: no secret in it; `${VAR}` stands as it was written."""
    config = config_of(spec)
    match spec:
        case StdioSpec():
            command, *args = (shown(pieces) for pieces in argument_pieces((spec.command, *spec.args)))
            config |= {"command": command, "args": args, "env": _hidden(spec.env)}
        case ProfileSpec():
            config["parameters"] = {name: _parameter(name, given) for name, given in spec.parameters.items()}
        case SseSpec():
            config |= {"url": shown(url_pieces(spec.url)), "headers": _hidden(spec.headers)}
        case HttpSpec():
            config |= {"base_url": shown(url_pieces(spec.base_url)), "headers": _hidden(spec.headers)}
    return {name: value for name, value in config.items() if value not in ([], {})}


def masked_url(url: str) -> str:
    return shown(url_pieces(url))


def _hidden(values: Mapping[str, str]) -> dict[str, str]:
    return {name: hide(value) for name, value in values.items()}


def _parameter(name: str, value: str | int | bool) -> str | int | bool:
    if isinstance(value, str) and (tells_of_secret(name) or looks_like_key(value)):
        return hide(value)
    return value


# As it is sent back


def has_mask(value: object) -> bool:
    """Whether something in it stands for a hidden value."""
    if isinstance(value, Mapping):
        return any(map(has_mask, value.values()))
    if isinstance(value, list):
        return any(map(has_mask, value))
    return isinstance(value, str) and MASK in value


def merge_masked(old: ServerSpec, new_config: Mapping[str, object]) -> dict[str, object]:
    """The new configuration with each mask replaced by what it stands for in the old one.

    A mask that stands for nothing is a fault, and so is a mask next to an address of another origin: a
    secret is not carried to a host that it was not given for. What is no text is left for `read_spec`.
    """
    secret, visible = config_of(old), masked(old)
    faults: list[FieldError] = []
    merged: dict[str, object] = {}
    for name, value in new_config.items():
        held = "base_url" if name == "url" and isinstance(old, HttpSpec) else name
        merged[name] = _merged(value, secret.get(held), visible.get(held), (*_CONFIG, name), faults)
    if faults:
        raise ValidationError(faults[:MOST_FAULTS])
    if merged != dict(new_config):
        _same_origin(old, merged)
    return merged


def _merged(
    new: object, old: object, visible: object, loc: tuple[str | int, ...], faults: list[FieldError]
) -> object:
    if isinstance(new, str) and MASK in new:
        if isinstance(old, str) and new == visible:
            return old
        message = f"There is no hidden value that this {MASK} could stand for: send the value itself, in full"
        faults.append(FieldError(loc, message))
        return new
    if isinstance(new, Mapping):
        olds, visibles = _table_of(old), _table_of(visible)
        keys = {key.lower(): key for key in olds} if loc[-1] == "headers" else {key: key for key in olds}
        merged = {}
        for key, value in new.items():
            held = keys.get(str(key).lower() if loc[-1] == "headers" else str(key), "")
            merged[key] = _merged(value, olds.get(held), visibles.get(held), (*loc, key), faults)
        return merged
    if isinstance(new, list) and len(new) <= MOST_ENTRIES:
        olds_in_order, visibles_in_order = _list_of(old), _list_of(visible)
        places = [_place(new, index, visibles_in_order) for index in range(len(new))]
        return [
            _merged(value, None, None, (*loc, index), faults)
            if place is None
            else _merged(value, olds_in_order[place], visibles_in_order[place], (*loc, index), faults)
            for index, (value, place) in enumerate(zip(new, places, strict=True))
        ]
    return new


def _place(new: Sequence[object], index: int, visible: Sequence[object]) -> int | None:
    """Where an argument stood before, by itself and the one in front of it; None unless one place fits."""

    def fits(place: int) -> bool:
        before_old = visible[place - 1] if place else None
        return visible[place] == new[index] and before_old == (new[index - 1] if index else None)

    if index < len(visible) and fits(index):
        return index
    places = [place for place in range(len(visible)) if fits(place)]
    return places[0] if len(places) == 1 else None


def _same_origin(old: ServerSpec, merged: Mapping[str, object]) -> None:
    if not isinstance(old, SseSpec | HttpSpec):
        return
    before = split_url(old.url if isinstance(old, SseSpec) else old.base_url)
    for name in ("url", "base_url"):
        url = merged.get(name)
        after = split_url(url) if isinstance(url, str) else None
        if after is not None and (before is None or after.origin != before.origin):
            raise ValidationError.at(
                *_CONFIG,
                name,
                msg=f"The address is another one, so hidden values ({MASK}) are not kept: send them in full",
            )


def _table_of(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def _list_of(value: object) -> Sequence[object]:
    return value if isinstance(value, list) else []

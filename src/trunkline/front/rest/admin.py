"""Puts the admin API together: a module a noun."""

from trunkline import __version__
from trunkline.core.gateway import Gateway
from trunkline.front.rest import audit, keys, servers, state, tools
from trunkline.front.rest.api import Api
from trunkline.front.rest.describing import About
from trunkline.front.rest.shapes import Invalid, Refusal

NOUNS = (servers, tools, keys, audit, state)


def admin_api(gateway: Gateway) -> Api:
    about = About("Trunkline", __version__, invalid=Invalid, refusal=Refusal)
    return Api(about, (noun.build(gateway) for noun in NOUNS), described_at="/openapi.json")

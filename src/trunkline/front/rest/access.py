"""Who may use a route: every route of the admin API states one of these three as a dependency.

The key was judged before the request came here; a request that did not pass there has no principal and
gets nothing. A route that states none is found by a test that walks all routes.
"""

from fastapi import Depends, Request

from trunkline.errors import Forbidden, Unauthorized
from trunkline.model import Principal, Scope

PRINCIPAL = "trunkline.principal"
"""Where in the ASGI scope `asgi.py` leaves who is asking."""


class Needs:
    def __init__(self, scope: Scope) -> None:
        self.scope = scope

    def __call__(self, request: Request) -> Principal:
        principal = request.scope.get(PRINCIPAL)
        if not isinstance(principal, Principal):
            raise Unauthorized("Send your key as `Authorization: Bearer KEY`")
        if not principal.scope.includes(self.scope):
            raise Forbidden(
                f"This needs a key with scope {self.scope}; the one given has scope {principal.scope}"
            )
        return principal


READ = Depends(Needs(Scope.READ))
ADMIN = Depends(Needs(Scope.ADMIN))

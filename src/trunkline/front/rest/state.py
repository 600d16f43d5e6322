"""The gateway about itself: state, health, metrics, and the OpenAPI document.

Without a key the two health addresses are answered by `asgi.py`, with the status alone; here is the report.
"""

from fastapi import APIRouter, Request, Response

from trunkline.core.gateway import Gateway
from trunkline.front.rest import shapes
from trunkline.front.rest.access import READ
from trunkline.front.rest.shapes import Json


def build(gateway: Gateway) -> APIRouter:
    router = APIRouter(tags=["state"], dependencies=[READ])

    @router.get("/api/v1/aggregator/state")
    async def state() -> Json:
        return Json(shapes.state(gateway.state()))

    @router.head("/health", include_in_schema=False)
    @router.head("/api/v1/aggregator/health", include_in_schema=False)
    @router.get("/health")
    @router.get("/api/v1/aggregator/health")
    async def health() -> Json:
        report = shapes.health_report(await gateway.health())
        if gateway.draining:
            return Json({**report, "status": shapes.STOPPING}, 503)
        return Json(report)

    @router.get("/metrics")
    async def metrics() -> Response:
        return Response(gateway.metrics_text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    @router.get("/openapi.json", include_in_schema=False)
    async def openapi(request: Request) -> Json:
        return Json(request.app.openapi())

    return router

"""Routes of an HTTP application, each with what it takes to ask for it.

A row without that cannot be written, so no endpoint is open because somebody forgot to close it.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import Generic, NamedTuple, TypeVar

from aiohttp import web

Need = TypeVar("Need")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Route(NamedTuple, Generic[Need]):
    """One row."""

    method: str
    path: str
    """As aiohttp has it: `/topics/{name}`."""
    need: Need
    handler: Handler
    has_head: bool = True
    """Of a GET: HEAD is answered, too."""


def add_routes(
    app: web.Application, routes: Iterable[Route[Need]]
) -> dict[web.AbstractRoute, Need]:
    """Have the application serve them; what each of its routes needs."""
    needs: dict[web.AbstractRoute, Need] = {}
    for route in routes:
        methods = ("HEAD", "GET") if route.method == "GET" and route.has_head else (route.method,)
        for method in methods:
            added = app.router.add_route(method, route.path, route.handler)
            needs[added] = route.need
    return needs

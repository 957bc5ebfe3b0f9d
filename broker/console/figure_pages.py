"""Pages of figures: what goes on now, and what it costs a day.

    GET /console/live
    GET /console/costs               ?search= &page= &put= &get= &storage=

Figures are of this agent, or of all that share its port (`broker.workers`): agents count what they serve themselves, and
tell each other nothing.
"""

import math
from typing import Final

from aiohttp import web

from broker.admin.access import Role
from broker.admin.requests import VIEW
from broker.console import pages
from broker.console.looking import Looking
from broker.console.views import costs, live
from broker.http.routes import Route
from broker.reports.prices import Prices

LOOKING: Final = pages.LOOKING
NUMBERS: Final = live.NUMBERS | costs.NUMBERS
PRICE_MAX: Final = 1_000.0


async def _live(request: web.Request) -> web.StreamResponse:
    await pages.current_machine(request)
    looking = await _looked(request)
    values = {"live": live.live_view(list(looking.readings)), "whose": _whose(request)}
    return await pages.page(request, "live", values)


async def _costs(request: web.Request) -> web.StreamResponse:
    machine = await pages.current_machine(request)
    looking, view = await _looked(request), request.app[VIEW]
    found = costs.costs_view(
        machine,
        view.settings,
        readings=list(looking.readings),
        began_ms=looking.began_ms,
        prices=_prices(request),
        asked=pages.asked(request),
    )
    return await pages.page(request, "costs", {"costs": found, "whose": _whose(request)})


async def _looked(request: web.Request) -> Looking:
    """With the numbers of now, or of a moment ago."""
    looking = request.app[LOOKING]
    if looking.is_due():
        looking.read(await request.app[VIEW].joined_numbers(NUMBERS))
    return looking


def _whose(request: web.Request) -> str:
    joined = request.app[VIEW].joined is not None
    return "all agents that share this port" if joined else "this agent"


def _prices(request: web.Request) -> Prices:
    """Those of the query; what is no price is that of the list."""
    given = Prices()
    return Prices(
        put_1000=_price(request, "put", given.put_1000),
        get_1000=_price(request, "get", given.get_1000),
        gib_month=_price(request, "storage", given.gib_month),
    )


def _price(request: web.Request, name: str, default: float) -> float:
    try:
        price = float(request.query.get(name, ""))
    except ValueError:
        return default
    return price if math.isfinite(price) and 0 <= price <= PRICE_MAX else default


ROUTES: Final[tuple[Route[Role], ...]] = (
    Route("GET", "/console/live", Role.VIEWER, _live),
    Route("GET", "/console/costs", Role.VIEWER, _costs),
)

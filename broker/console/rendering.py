"""HTML out of templates, and the files of the look; with the headers that keep other sites out.

What holds: whatever is shown was escaped by the template engine, never by hand, and no page lets a script, a style
or a frame of anywhere else in. A file's address has its digest, so browsers keep files and never an old one.

Templates are compiled when the first page is asked for, in a thread: an agent at which nobody looks has not even
imported the engine.
"""

import asyncio
import hashlib
import math
from collections.abc import Mapping
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from aiohttp import web

if TYPE_CHECKING:
    import jinja2

HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
        " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
KEPT: Final = "public, max-age=31536000, immutable"
_TYPES: Final = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_UNITS: Final = ("KiB", "MiB", "GiB", "TiB", "PiB")


class StaticFile(NamedTuple):
    """A file of the look."""

    body: bytes
    content_type: str


class Renderer:
    """The templates and files of one agent's console. `ready` is awaited before `page`."""

    def __init__(self) -> None:
        self._environment: jinja2.Environment | None = None
        self._files: dict[str, StaticFile] = {}
        self._loading = asyncio.Lock()

    async def ready(self) -> None:
        """Have templates and files in memory."""
        async with self._loading:
            if self._environment is None:
                self._files, self._environment = await asyncio.to_thread(_load)

    def page(self, template: str, values: Mapping[str, Any], *, status: int = 200) -> web.Response:
        """A page for a browser, which keeps no copy of it."""
        assert self._environment is not None
        text = self._environment.get_template(f"{template}.html").render(values)
        headers = HEADERS | {"Cache-Control": "no-store"}
        return web.Response(text=text, content_type="text/html", status=status, headers=headers)

    def file(self, name: str) -> web.Response | None:
        """A file of the look; None: there is no such."""
        found = self._files.get(name)
        if found is None:
            return None
        headers = HEADERS | {"Cache-Control": KEPT}
        return web.Response(body=found.body, content_type=found.content_type, headers=headers)


def _load() -> tuple[dict[str, StaticFile], "jinja2.Environment"]:
    import jinja2

    found = {
        each.name: StaticFile(each.read_bytes(), kind)
        for each in files("broker.console").joinpath("static").iterdir()
        if (kind := _TYPES.get(f".{each.name.rpartition('.')[2]}")) is not None
    }
    digests = {name: hashlib.sha256(file.body).hexdigest()[:12] for name, file in found.items()}
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("broker.console"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.globals["file"] = lambda name: f"/console/static/{name}?v={digests[name]}"
    environment.filters.update(
        count=count_text, size=size_text, duration=duration_text, ms=ms_text, usd=usd_text
    )
    for name in environment.list_templates():
        environment.get_template(name)
    return found, environment


def count_text(number: int | None) -> str:
    """1234567 as 1,234,567."""
    return "-" if number is None else f"{number:,}"


def size_text(size: int) -> str:
    """With three digits or so: 1.23 GiB."""
    if size < 1024:
        return f"{size} bytes"
    amount = float(size)
    for unit in _UNITS:
        amount /= 1024
        if amount < 1000 or unit == _UNITS[-1]:
            return f"{amount:.3g} {unit}"
    raise AssertionError(size)


def ms_text(time_ms: float) -> str:
    """A bound of a histogram: 16 ms, 2 s."""
    if math.isinf(time_ms):
        return "more"
    return f"{time_ms:.0f} ms" if time_ms < 1000 else f"{time_ms / 1000:.0f} s"


def usd_text(amount: float) -> str:
    """$1,234.50; of less than a cent two digits."""
    if amount == 0 or amount >= 0.01:
        return f"${amount:,.2f}"
    return f"${amount:.2g}" if amount >= 0.0001 else "under $0.0001"


def duration_text(time_ms: int) -> str:
    """In the largest unit that is not over: 320 ms, 12 s, 4 min, 7 h, 3 d."""
    if time_ms < 1000:
        return f"{max(time_ms, 0)} ms"
    for unit_ms, unit, most in ((1000, "s", 120), (60_000, "min", 120), (3_600_000, "h", 48)):
        if time_ms < most * unit_ms:
            return f"{time_ms // unit_ms} {unit}"
    return f"{time_ms // 86_400_000} d"

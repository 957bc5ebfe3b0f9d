"""The keys of token issuers: fetched from their JWKS endpoints, kept, and fetched anew.

What holds:

* Keys that were fetched count until others were: an endpoint that is away takes nobody's login.
* They are fetched every `sasl.oauthbearer.jwks.endpoint.refresh.ms`; after a failure again in
  `retry.backoff.ms`, twice that, … up to `retry.backoff.max.ms`.
* A token whose key is not known asks for them once more, and waits for that. All such tokens wait for
  the same fetch, and for a while after one no other is begun for them: strangers' tokens cannot
  make an agent bother an issuer.
* A fetch takes `FETCH_S_MAX` and `SET_BYTES_MAX` at most and follows no redirect; https only, or a
  file. Files are read in a thread.

Left out: which tokens are taken (`broker.sasl.tokens`).
"""

import asyncio
import logging
import ssl
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from broker.sasl.tokens import NO_KEYS, KeyPlace, SigningKeys, keys_of

if TYPE_CHECKING:
    import aiohttp

logger = logging.getLogger(__name__)

FETCH_S_MAX: Final = 10.0
SET_BYTES_MAX: Final = 1 << 20
COOLED_MS: Final = {"https": 10_000, "file": 1_000}
"""By scheme: for so long after a fetch none is begun for unknown keys."""
OK: Final = 200


class KeySet:
    """The keys of one endpoint."""

    def __init__(self, place: KeyPlace, *, boot_ms: Callable[[], int]) -> None:
        self.keys = NO_KEYS
        self._place = place
        self._boot_ms = boot_ms
        self._scheme = place.url.partition(":")[0]
        self._fetching: asyncio.Future[None] | None = None
        self._tried_ms: int | None = None
        self._failures = 0

    async def run(self) -> None:
        """Fetch now and then, for ever."""
        place = self._place
        while True:
            await self._fetch_once()
            wait_ms = place.refresh_ms
            if self._failures:
                wait_ms = min(place.backoff_ms << min(self._failures - 1, 40), place.backoff_max_ms)
            await asyncio.sleep(max(1, wait_ms) / 1000)

    async def fetched(self) -> None:
        """Wait until they are as new as can be had. Raises nothing when they cannot."""
        since_ms = None if self._tried_ms is None else self._boot_ms() - self._tried_ms
        if self._fetching is None and since_ms is not None and since_ms < COOLED_MS[self._scheme]:
            return
        await self._fetch_once()

    async def _fetch_once(self) -> None:
        """Fetch, or wait for who fetches already."""
        if self._fetching is not None:
            await asyncio.shield(self._fetching)
            return
        self._fetching = asyncio.get_running_loop().create_future()
        try:
            await self._fetch()
        finally:
            self._tried_ms = self._boot_ms()
            self._fetching.set_result(None)
            self._fetching = None

    async def _fetch(self) -> None:
        import aiohttp

        url = self._place.url
        try:
            async with asyncio.timeout(FETCH_S_MAX):
                text = await (self._read() if self._scheme == "file" else self._get())
            keys = await asyncio.to_thread(keys_of, text)
        except (OSError, aiohttp.ClientError, ValueError) as error:  # OSError: TimeoutError, too.
            self._failures += 1
            if self._failures == 1:
                reason = str(error) or type(error).__name__
                logger.warning("keys of tokens cannot be had from %s: %s", url, reason)
            return
        if self._failures or keys.key_ids() != self.keys.key_ids():
            logger.info("%d keys of tokens from %s", len(keys), url)
        self._failures = 0
        self.keys = keys

    async def _read(self) -> bytes:
        path = Path(unquote(urlsplit(self._place.url).path))

        def read() -> bytes:
            with path.open("rb") as file:
                return file.read(SET_BYTES_MAX + 1)

        return _bounded(await asyncio.to_thread(read), SET_BYTES_MAX)

    async def _get(self) -> bytes:
        import aiohttp

        trusted = self._place.trusted or None
        context = await asyncio.to_thread(ssl.create_default_context, cafile=trusted)
        async with (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session,
            session.get(self._place.url, allow_redirects=False) as response,
        ):
            if response.status != OK:
                raise ValueError(f"it answers {response.status}")
            return await body_of(response, SET_BYTES_MAX)


async def body_of(response: "aiohttp.ClientResponse", bytes_max: int) -> bytes:
    """All of an answer. Raises ValueError when it is longer."""
    found = bytearray()
    async for part in response.content.iter_chunked(1 << 16):
        found += part
        if len(found) > bytes_max:
            break
    return _bounded(bytes(found), bytes_max)


def _bounded(text: bytes, bytes_max: int) -> bytes:
    if len(text) > bytes_max:
        raise ValueError(f"it has more than {bytes_max} bytes")
    return text


class KeySets:
    """Those of all listeners, each endpoint once."""

    def __init__(
        self, places: Iterable[KeyPlace] = (), *, boot_ms: Callable[[], int] = lambda: 0
    ) -> None:
        self._sets = {place.url: KeySet(place, boot_ms=boot_ms) for place in places}

    def keys(self, url: str) -> SigningKeys:
        """What is known of an endpoint's keys."""
        found = self._sets.get(url)
        return NO_KEYS if found is None else found.keys

    async def fetched(self, url: str) -> None:
        """As of `KeySet`."""
        found = self._sets.get(url)
        if found is not None:
            await found.fetched()

    async def run(self) -> None:
        """Keep them new, for ever."""
        async with asyncio.TaskGroup() as tasks:
            for url, each in self._sets.items():
                tasks.create_task(each.run(), name=f"keys from {url}")

"""By what the console reads and writes records, for whom, and how many at a time.

What holds: records are data. Whoever looks at them needs the role of a reader on this listener, and where there is an
authorizer the right to READ their topic as well, whatever the role; who writes one, the operator's role and WRITE. A
refusal is told to the audit as one of Kafka's is. So many pages are read at a time (`PAGES_MAX`), each within bounds
(`broker.console.record_reading`); others wait for a moment, and are then told to come back.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from aiohttp import web

from broker.admin.requests import RefusedError, requester_in
from broker.calls.local_calls import LocalCalls
from broker.registry.checker import SchemaChecker
from broker.rights.audit import told
from broker.rights.rights import Rights
from protocol.acls import Operation, ResourceType

PAGES_MAX: Final = 2
WAIT_S_MAX: Final = 2.0


@dataclass(slots=True)
class RecordAccess:
    """Of one agent."""

    calls: LocalCalls
    checker: SchemaChecker
    """Has values read by their schemas, in a process of its own."""
    rights: Rights | None
    """None: there is no authorizer, and roles alone decide."""
    now_ms: Callable[[], int]
    """Wall clock."""
    pages: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(PAGES_MAX))

    def require(self, request: web.Request, operation: Operation, topic: str) -> None:
        """Raises RefusedError where whoever asks has no such right to the topic."""
        requester = requester_in(request)
        api = told(f"HTTP {request.method} {request.path}")
        if self.rights is None or self.rights.permits(
            requester, api, operation, ResourceType.TOPIC, topic
        ):
            return
        said = f"{told(requester.principal)} is denied operation {operation.name} on this topic"
        if requester.is_anonymous:
            said += "; nobody is asked for a name here until http.roles.reader or http.roles.operator has one"
        raise RefusedError(403, said)

    @asynccontextmanager
    async def page(self) -> AsyncIterator[None]:
        """A place among those who read. Raises RefusedError."""
        try:
            async with asyncio.timeout(WAIT_S_MAX):
                await self.pages.acquire()
        except TimeoutError as error:
            raise RefusedError(503, "enough others are reading records here; ask again") from error
        try:
            yield
        finally:
            self.pages.release()


RECORDS: Final = web.AppKey("records", RecordAccess)

"""An agent with a schema registry, and a client that shows status and JSON."""

import io
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from broker.registry.checks import SchemaChecks
from broker.registry.errors import INVALID_SCHEMA, RegistryError
from broker.registry.subjects import SchemaLibrary, SubmittedSchema
from tests.kit.sockets import Place, Running, agent_of

RECORD = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}'
WIDER = (
    '{"type":"record","name":"R","fields":[{"name":"a","type":"int"},'
    '{"name":"b","type":"int","default":0}]}'
)
BROKEN = (
    '{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"b","type":"int"}]}'
)


class Registry:
    """Requests to one agent's registry."""

    def __init__(self, running: Running, session: aiohttp.ClientSession) -> None:
        self.running = running
        self.session = session
        self.url = f"http://127.0.0.1:{running.agent.listening()['registry'][1]}"

    async def ask(self, method: str, path: str, body: object = None, **kwargs):
        """Status, and the JSON (or text) of the answer."""
        data = None if body is None else io.BytesIO(json.dumps(body).encode())
        async with self.session.request(method, self.url + path, data=data, **kwargs) as response:
            text = await response.text()
            wanted = "application/vnd.schemaregistry.v1+json"
            return response.status, json.loads(text) if response.content_type == wanted else text

    async def get(self, path: str):
        status, body = await self.ask("GET", path)
        assert status == 200, (path, body)
        return body

    async def register(self, subject: str, schema: str, **more) -> int:
        status, body = await self.ask(
            "POST", f"/subjects/{subject}/versions", {"schema": schema, **more}
        )
        assert status == 200, body
        return body["id"]

    async def refused(self, method: str, path: str, body: object = None) -> int:
        """The error code of an answer that is one."""
        status, answer = await self.ask(method, path, body)
        assert status != 200, answer
        assert answer["message"]
        assert str(answer["error_code"]).startswith(str(status))
        return answer["error_code"]


def offered_to(
    library: SchemaLibrary, body: Mapping[str, Any], *, normalize: bool = False, is_new: bool = True
) -> SubmittedSchema:
    """The schema of a request's body. Raises RegistryError."""
    submission = library.submission(body, normalize=normalize, is_new=is_new)
    answer = SchemaChecks().answer(submission.question)
    if answer.error:
        raise RegistryError(INVALID_SCHEMA, answer.error)
    return library.submitted(submission, answer)


@asynccontextmanager
async def registry_of(place: Place, *flags: str) -> AsyncIterator[Registry]:
    # Nothing here is about losing sessions, and a busy machine must not do it.
    calm = ("lease.ttl.ms=30000", "session.deadline.ms=25000", "stall.ms=30000")
    listen = "schema.registry.listeners=http://127.0.0.1:0"
    async with (
        agent_of(place, listen, *calm, *flags) as running,
        aiohttp.ClientSession() as session,
    ):
        await running.until(ready=True, seconds=60.0)
        yield Registry(running, session)

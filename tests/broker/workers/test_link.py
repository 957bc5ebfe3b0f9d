"""Agents that share their ports with others, and what each says to its supervisor."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from broker.environment import boot_ms
from broker.workers import link as link_module
from broker.workers import messages
from broker.workers.link import Link
from broker.workers.messages import (
    HEAD,
    Message,
    MessageError,
    Subject,
    What,
    decode,
    encode,
    length_of,
)
from protocol import apis
from tests.kit import requests
from tests.kit.sockets import Place, Running, agent_of

pytestmark = pytest.mark.real_loop

OWN = {"PLAINTEXT": 0}


class Supervisor:
    """The other end of a worker's socket."""

    def __init__(self) -> None:
        self._ours, theirs = socket.socketpair()
        self.link = Link(theirs)
        self._reader: asyncio.StreamReader
        self.writer: asyncio.StreamWriter

    async def open(self) -> None:
        self._reader, self.writer = await asyncio.open_unix_connection(sock=self._ours)

    async def close(self) -> None:
        self.link.close()
        self.writer.close()
        await self.writer.wait_closed()

    def send(self, what: What, **fields: Any) -> None:
        self.writer.write(encode(what, **fields))

    async def expect(self, what: What) -> Message:
        async with asyncio.timeout(10):
            head = await self._reader.readexactly(HEAD.size)
            message = decode(await self._reader.readexactly(length_of(head)))
        assert message.what is what
        return message


@contextlib.asynccontextmanager
async def worker() -> AsyncIterator[tuple[Running, Supervisor]]:
    """An agent that serves, and its supervisor."""
    supervisor = Supervisor()
    await supervisor.open()
    async with agent_of(Place(), own_ports=OWN) as running:
        linked = asyncio.create_task(supervisor.link.run(running.agent))
        running.task.add_done_callback(lambda _: linked.cancel())
        await running.agent.serving()
        try:
            yield running, supervisor
        finally:
            linked.cancel()
            await asyncio.wait([linked])
            await supervisor.close()


@contextlib.contextmanager
def shared_port() -> Iterator[int]:
    """One that whoever says that it shares it can listen at."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


async def test_agents_that_share_their_ports_tell_clients_each_its_own() -> None:
    with shared_port() as port, shared_port() as http, shared_port() as registry:
        place = Place()
        flags = (
            f"listen=127.0.0.1:{port}",
            f"http=127.0.0.1:{http}",
            f"schema.registry.listeners=http://127.0.0.1:{registry}",
        )
        async with (
            agent_of(place, *flags, own_ports=OWN) as one,
            agent_of(place, *flags, "node.name=two", own_ports=OWN) as two,
        ):
            for running in (one, two):
                await running.until(ready=True)
                told = running.agent.listening()
                ports = [told[name][1] for name in ("PLAINTEXT", "http", "registry")]
                assert ports == [port, http, registry]
            client = await one.connect()
            answer = await client.call(apis.METADATA, 9, requests.metadata("nothing"))
            own = {broker.node_id: broker.port for broker in answer.brokers}
            assert len(set(own.values()) - {port}) == 2


async def test_a_worker_answers_pings_and_says_what_it_has_counted() -> None:
    async with worker() as (_, supervisor):
        supervisor.send(What.PING)
        await supervisor.expect(What.PONG)
        supervisor.send(What.TELL, ticket=3, subject=Subject.METRICS.value)
        told = await supervisor.expect(What.ANSWER)
        assert told.ticket == 3
        assert "frazil_connections" in told.fields["value"]
        supervisor.send(What.TELL, ticket=4, subject=Subject.READINESS.value)
        told = await supervisor.expect(What.ANSWER)
        assert told.fields["value"] == {"ready": True, "reasons": []}


async def test_its_admin_listener_tells_what_all_say() -> None:
    async with worker() as (running, supervisor):
        asking = asyncio.create_task(running.http("GET", "/metrics"))
        asked = await supervisor.expect(What.ASK)
        assert asked.subject is Subject.METRICS
        supervisor.send(What.TOLD, ticket=asked.ticket, value="frazil_all 1.0\n")
        assert await asking == (200, "frazil_all 1.0\n")
        asking = asyncio.create_task(running.http("GET", "/health/ready"))
        asked = await supervisor.expect(What.ASK)
        said = {"ready": False, "reasons": ["w1: no"]}
        supervisor.send(What.TOLD, ticket=asked.ticket, value=said)
        assert await asking == (503, said)


async def test_where_the_supervisor_is_silent_it_speaks_for_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(link_module, "ASK_S", 0.01)
    async with worker() as (running, _):
        status, text = await running.http("GET", "/metrics")
        assert status == 200
        assert "frazil_connections" in text
        assert await running.http("GET", "/health/ready") == (200, {"ready": True, "reasons": []})


async def test_where_a_page_is_too_long_to_pass_on_a_worker_speaks_for_itself_and_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with worker() as (running, supervisor):
        asking = asyncio.create_task(running.http("GET", "/metrics"))
        asked = await supervisor.expect(What.ASK)
        supervisor.send(What.TOLD, ticket=asked.ticket, value=None)
        status, text = await asking
        assert status == 200
        assert "frazil_connections" in text
        monkeypatch.setattr(messages, "BYTES_MAX", 1000)
        supervisor.send(What.TELL, ticket=7, subject=Subject.METRICS.value)
        answer = await supervisor.expect(What.ANSWER)
        assert (answer.ticket, answer.fields["value"]) == (7, None)
        supervisor.send(What.PING)
        await supervisor.expect(What.PONG)


async def test_a_worker_leaves_when_it_is_told_to() -> None:
    async with worker() as (running, supervisor):
        supervisor.send(What.LEAVE)
        async with asyncio.timeout(20):
            await running.task


async def test_a_worker_leaves_when_its_supervisor_is_gone() -> None:
    async with worker() as (running, supervisor):
        supervisor.writer.close()
        async with asyncio.timeout(20):
            await running.task


async def test_a_worker_leaves_a_supervisor_that_says_something_wrong() -> None:
    async with worker() as (running, supervisor):
        supervisor.send(What.REFUSED)
        async with asyncio.timeout(20):
            await running.task


SLOW_LEASE = ("lease.ttl.ms=600000", "session.deadline.ms=590000")


@pytest.mark.parametrize("is_fresh", [True, False])
async def test_the_session_of_a_worker_that_died_is_ended_at_once_but_not_by_old_news(
    is_fresh: bool,
) -> None:
    supervisor, place = Supervisor(), Place()
    await supervisor.open()
    async with agent_of(place, *SLOW_LEASE, own_ports=OWN) as one:
        linked = asyncio.create_task(supervisor.link.run(one.agent))
        async with agent_of(place, *SLOW_LEASE, "node.name=one.w2", own_ports=OWN) as two:
            await two.until(ready=True)
            await one.agent.serving()
            two.task.cancel()
            await asyncio.wait([two.task])
        rows = one.agent.node.log_client.machine.incarnations
        await one.agent.node.log_client.barrier()
        assert len(list(rows)) == 2
        died_ms = boot_ms() - (0 if is_fresh else link_module.FRESH_MS + 1)
        supervisor.send(What.DIED, node_name="one.w2", died_ms=died_ms)
        supervisor.send(What.PING)
        await supervisor.expect(What.PONG)
        if is_fresh:
            async with asyncio.timeout(20):
                while len(list(rows)) == 2:
                    await asyncio.sleep(0.01)
        else:
            (_, row) = rows
            assert (await place.log().read_session(row.session)).alive
        linked.cancel()
        await asyncio.wait([linked])
    await supervisor.close()


async def test_why_a_worker_cannot_go_on_is_its_last_word() -> None:
    supervisor = Supervisor()
    await supervisor.open()
    supervisor.send(What.HELLO, version="1")
    await supervisor.writer.drain()
    assert (await asyncio.to_thread(supervisor.link.hello))["version"] == "1"
    supervisor.link.refused("no port is free")
    assert (await supervisor.expect(What.REFUSED)).fields["sentence"] == "no port is free"
    await supervisor.close()


async def test_a_worker_is_greeted_first() -> None:
    supervisor = Supervisor()
    await supervisor.open()
    supervisor.send(What.PING)
    await supervisor.writer.drain()
    with pytest.raises(MessageError, match="PING before HELLO"):
        await asyncio.to_thread(supervisor.link.hello)
    supervisor.writer.close()
    with pytest.raises(MessageError, match="is gone"):
        await asyncio.to_thread(supervisor.link.hello)
    await supervisor.close()

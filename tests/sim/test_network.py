"""A network in memory: bytes keep their order, and arrive after their sender has gone."""

import asyncio
import random
from typing import cast

import pytest
from typing_extensions import override

from tests.kit.loop import SimLoop, run
from tests.sim.network import Network, SimTransport

Seen = tuple[tuple[bytes, bool], tuple[bytes, bool]]


class _Collect(asyncio.Protocol):
    def __init__(self) -> None:
        self.data = b""
        self.lost = False

    @override
    def data_received(self, data: bytes) -> None:
        self.data += data

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True


@pytest.mark.parametrize("seed", range(20))
def test_bytes_of_a_connection_arrive_in_order_and_whole(seed: int) -> None:
    async def main(loop: SimLoop, rng: random.Random) -> bool:
        Network(loop, rng)
        accepted: list[_Collect] = []

        def factory() -> _Collect:
            accepted.append(_Collect())
            return accepted[-1]

        with loop.owned("server"):
            await loop.create_server(factory, "a", 1)
        transport, _ = await loop.create_connection(asyncio.Protocol, "a", 1)
        sent = b""
        for index in range(30):
            piece = bytes([index]) * rng.randrange(1, 3000)
            transport.write(piece)
            sent += piece
        transport.close()
        await asyncio.sleep(60)
        return accepted[0].data == sent and accepted[0].lost

    assert run(main, seed=seed)


def test_what_is_sent_arrives_in_pieces_of_a_size_that_the_world_names() -> None:
    async def main(loop: SimLoop, rng: random.Random) -> list[int]:
        Network(loop, rng, [16])
        sizes: list[int] = []

        class Sized(asyncio.Protocol):
            @override
            def data_received(self, data: bytes) -> None:
                sizes.append(len(data))

        with loop.owned("server"):
            await loop.create_server(Sized, "a", 1)
        transport, _ = await loop.create_connection(asyncio.Protocol, "a", 1)
        transport.write(bytes(40))
        await asyncio.sleep(1)
        return sizes

    assert run(main, seed=1) == [16, 16, 8]


@pytest.mark.parametrize("seed", range(20))
def test_what_is_held_back_arrives_after_its_sender_has_gone(seed: int) -> None:
    async def main(loop: SimLoop, rng: random.Random) -> Seen:
        network = Network(loop, rng)
        accepted: list[_Collect] = []

        def factory() -> _Collect:
            accepted.append(_Collect())
            return accepted[-1]

        with loop.owned("server"):
            await loop.create_server(factory, "a", 1)
        made, _ = await loop.create_connection(asyncio.Protocol, "a", 1)
        transport = cast(SimTransport, made)
        transport.write(b"before ")
        await asyncio.sleep(0.1)
        network.hold(transport.peer, 10.0)
        transport.write(b"held ")
        transport.write(b"back")
        transport.close()
        await asyncio.sleep(5)
        meanwhile = (accepted[0].data, accepted[0].lost)
        await asyncio.sleep(10)
        return meanwhile, (accepted[0].data, accepted[0].lost)

    assert run(main, seed=seed) == ((b"before ", False), (b"before held back", True))


def test_nobody_listening_refuses_the_connection() -> None:
    async def main(loop: SimLoop, rng: random.Random) -> bool:
        Network(loop, rng)
        with pytest.raises(ConnectionRefusedError):
            await loop.create_connection(asyncio.Protocol, "a", 1)
        return True

    assert run(main, seed=random.Random(1).randrange(100))


def test_what_is_held_back_or_waits_for_its_reader_is_not_read() -> None:
    async def main(loop: SimLoop, rng: random.Random) -> list[bool]:
        network = Network(loop, rng)
        accepted: list[asyncio.BaseTransport] = []

        class Reader(asyncio.Protocol):
            @override
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                accepted.append(transport)

        with loop.owned("server"):
            await loop.create_server(Reader, "a", 1)
        made, _ = await loop.create_connection(asyncio.Protocol, "a", 1)
        transport = cast(SimTransport, made)
        seen = [network.has_read(transport)]
        transport.write(b"1")
        seen.append(network.has_read(transport))
        await asyncio.sleep(1)
        seen.append(network.has_read(transport))
        network.hold(transport.peer, 5.0)
        transport.write(b"2")
        await asyncio.sleep(1)
        seen.append(network.has_read(transport))
        await asyncio.sleep(5)
        seen.append(network.has_read(transport))
        cast(SimTransport, accepted[0]).pause_reading()
        transport.write(b"3")
        await asyncio.sleep(1)
        seen.append(network.has_read(transport))
        return seen

    assert run(main, seed=1) == [True, False, True, False, True, False]

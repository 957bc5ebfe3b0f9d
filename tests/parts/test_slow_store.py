"""The distant store: what waits, and for how long."""

import asyncio
import statistics

from tests.parts.process import free_port
from tests.parts.slow_store import LEAST_MS, MEAN_MORE_MS, Delays, passing_on


class Noted(Delays):
    """It waits for nothing and counts how often it was asked."""

    def __init__(self) -> None:
        super().__init__(0.0, 0.0)
        self.asked = 0

    def next_s(self) -> float:
        self.asked += 1
        return 0.0


def test_puts_take_30_ms_at_least_48_in_the_middle_and_150_at_the_99th_of_100() -> None:
    delays = Delays(LEAST_MS, MEAN_MORE_MS)
    taken_ms = sorted(delays.next_s() * 1000 for _ in range(10_000))
    assert taken_ms[0] >= 30
    assert 47 < statistics.median(taken_ms) < 49
    assert 140 < taken_ms[9_900] < 160


def test_the_answer_to_a_put_waits_and_no_other() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readline():
            writer.write(b"HTTP/1.1 200 OK\n")
            await writer.drain()
        writer.close()
        await writer.wait_closed()

    async def story() -> list[int]:
        delays, port, target = Noted(), free_port(), free_port()
        server = await asyncio.start_server(answer, "127.0.0.1", target)
        proxy = await asyncio.start_server(passing_on(target, delays), "127.0.0.1", port)
        asked = []
        async with server, proxy:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            for line in (b"GET /a\n", b"PUT /a\n", b"GET /a\n", b"PUT /b\n"):
                writer.write(line)
                assert await reader.readline() == b"HTTP/1.1 200 OK\n"
                asked.append(delays.asked)
            writer.close()
            await writer.wait_closed()
            others = asyncio.all_tasks() - {asyncio.current_task()}
            await asyncio.gather(*others, return_exceptions=True)
        return asked

    assert asyncio.run(story()) == [0, 1, 1, 2]

"""Whether a record costs the same however many connections there are and however much is stored:
`python -m tests.bench.bench_flat`.

One embedded agent and a raw client: so many requests of one batch under way, in turn to all partitions. First
what was written before grows; then the same load comes over more and more connections, which take turns. Prints CPU of the agent's process for a batch at each step, and how it compares with
the first. No test: it measures, it does not judge.
"""

import argparse
import itertools
import selectors
import tempfile
import time
from collections import deque
from pathlib import Path

from tests.bench import load
from tests.bench.cpu import cpu_seconds
from tests.parts.servers import FrazilDev

TOPIC = "flat"
PARTITIONS = 64
BATCH_BYTES = 16 * 1024
UNDER_WAY = 64
"""Requests that are not answered, over all connections."""
CONNECTIONS = (1, 10, 100, 1_000)
STORED_BYTES = (0.0, 1e9, 3e9, 1e10)
WARM_S = 3.0


class Load:
    """The same requests, over so many connections."""

    def __init__(self, agent: FrazilDev) -> None:
        self._agent = agent
        self._port = int(agent.bootstrap.rsplit(":", 1)[1])
        load.create_topic(self._port, TOPIC, PARTITIONS)
        batch = load.batch_of(BATCH_BYTES)
        bodies = [load.produce_body(TOPIC, [(at, batch)]) for at in range(PARTITIONS)]
        self._bodies = itertools.cycle(bodies)
        self.stored_bytes = 0.0

    def cost_us(self, seconds: float, connections: int) -> float:
        """CPU of the agent for a batch, in microseconds."""
        opened = [load.Connection(self._port) for _ in range(connections)]
        with selectors.DefaultSelector() as selector:
            for connection in opened:
                selector.register(connection.fileno(), selectors.EVENT_READ, connection)
            resting = deque(
                opened if connections > UNDER_WAY else opened * (UNDER_WAY // connections)
            )
            for _ in range(min(UNDER_WAY, len(resting))):
                self._send(resting.popleft())
            cpu_s, count = cpu_seconds(self._agent.child.pid), 0
            end_s = time.monotonic() + seconds
            while time.monotonic() < end_s:
                for key, _ in selector.select():
                    key.data.receive()
                    resting.append(key.data)
                    self._send(resting.popleft())
                    count += 1
            cost = (cpu_seconds(self._agent.child.pid) - cpu_s) / count
        for connection in opened:
            connection.close()
        self.stored_bytes += count * BATCH_BYTES
        return cost * 1e6

    def fill(self, until_bytes: float) -> None:
        """Write until so much is stored."""
        missing = int(until_bytes - self.stored_bytes)
        if missing > 0:
            done = load.produce(
                self._port,
                TOPIC,
                partitions=PARTITIONS,
                batch_bytes=BATCH_BYTES,
                seconds=600.0,
                bytes_max=missing,
            )
            self.stored_bytes += done.bytes

    def _send(self, connection: load.Connection) -> None:
        connection.send(load.PRODUCE, load.PRODUCE_VERSION, next(self._bodies))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=6.0, help="of each step")
    parser.add_argument("--rounds", type=int, default=3, help="over the connections")
    parser.add_argument("--stored", type=float, default=max(STORED_BYTES), help="bytes at most")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="frazil-bench-") as name:
        agent = FrazilDev(Path(name), "--set", "log.retention.ms=-1")
        agent.start()
        try:
            measured = Load(agent)
            measured.cost_us(WARM_S, CONNECTIONS[0])
            first = 0.0
            for stored in STORED_BYTES:
                if stored > options.stored:
                    break
                measured.fill(stored)
                before = measured.stored_bytes
                cost = measured.cost_us(options.seconds, CONNECTIONS[0])
                first = first or cost
                print(
                    f"{before / 1e9:5.1f} GB stored: {cost:6.1f} us a batch, x {cost / first:.2f}"
                )
            for _ in range(options.rounds):
                costs = [measured.cost_us(options.seconds, count) for count in CONNECTIONS]
                for count, cost in zip(CONNECTIONS, costs, strict=True):
                    print(f"{count:5} connections: {cost:6.1f} us a batch, x {cost / costs[0]:.2f}")
        finally:
            agent.stop()


if __name__ == "__main__":
    main()

"""`python -m tests.bench.bench_workers`: what a request costs two workers beside one agent.

Many small clients, each on its own connection, write batches of one record; the agents stand on one etcd
and one MinIO and take slices in turn. Prints the CPU of a request (all processes of the agents, the
supervisor too) and the ratio of both with its 95 % interval, and what the processes hold. Never a test,
since machines differ.
"""

import argparse
import re
import selectors
import socket
import statistics
import struct
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from tests.bench import load
from tests.bench.cpu import cpu_seconds
from tests.bench.pairs import interval
from tests.parts.servers import EtcdServer, Frazil, FrazilCluster, MinioServer, get_text

PARTITIONS = 64
TOPIC = "many"
STEP = "workers.port.step=10"
IDLE_S = 10.0


class Slice(NamedTuple):
    """What one turn was."""

    requests: int
    seconds: float
    cpu_s: float
    chunks: int

    @property
    def us(self) -> float:
        """Of CPU a request."""
        return self.cpu_s / self.requests * 1e6


def pids(agent: Frazil) -> list[int]:
    """The agent's process, or the supervisor's and those of its workers."""
    text = agent.child.log.read_text()
    started = dict(re.findall(r"a worker was started worker=(w\d) pid=(\d+)", text))
    return [agent.child.pid, *map(int, started.values())]


def memory_mib(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096 >> 20


class Clients:
    """Many, each on its own connection, which stays open from turn to turn; each has so many requests
    open at a time."""

    def __init__(self, port: int, *, connections: int, in_flight: int) -> None:
        batch = load.batch_of(load.RECORD_BYTES)
        self._waiting = selectors.DefaultSelector()
        for number in range(connections):
            client = socket.create_connection(("127.0.0.1", port))
            body = b"".join(load.produce_body(TOPIC, [(number % PARTITIONS, batch)]))
            head = struct.pack(">hhih5s", load.PRODUCE, load.PRODUCE_VERSION, 7, 5, b"bench")
            frame = struct.pack(">i", len(head) + len(body)) + head + body
            client.sendall(frame * in_flight)
            self._waiting.register(client, selectors.EVENT_READ, (frame, bytearray()))

    def answered(self, seconds: float) -> int:
        """How many requests were, in so long."""
        count = 0
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for key, _ in self._waiting.select(0.1):
                frame, held = key.data
                client = key.fileobj
                assert isinstance(client, socket.socket)
                held += client.recv(1 << 16)
                done = 0
                while len(held) >= 4 and len(held) >= 4 + int.from_bytes(held[:4]):
                    del held[: 4 + int.from_bytes(held[:4])]
                    done += 1
                count += done
                client.sendall(frame * done)
        return count

    def close(self) -> None:
        for key in list(self._waiting.get_map().values()):
            assert isinstance(key.fileobj, socket.socket)
            key.fileobj.close()


def measure(agent: Frazil, clients: Clients, seconds: float) -> Slice:
    processes = pids(agent)
    chunks = chunks_put(agent)
    before, begun = sum(map(cpu_seconds, processes)), time.monotonic()
    count = clients.answered(seconds)
    cpu_s, took_s = sum(map(cpu_seconds, processes)) - before, time.monotonic() - begun
    return Slice(count, took_s, cpu_s, chunks_put(agent) - chunks)


def chunks_put(agent: Frazil) -> int:
    """Of all workers."""
    found = re.search(
        r"^frazil_store_puts_total (\S+)", get_text(agent.http_port, "/metrics"), re.MULTILINE
    )
    assert found is not None
    return int(float(found[1]))


def told(agent: Frazil) -> str:
    """What the processes take when nothing goes on."""
    processes = pids(agent)
    before = [cpu_seconds(pid) for pid in processes]
    time.sleep(IDLE_S)
    shares = [
        (cpu_seconds(pid) - was) / IDLE_S * 100 for pid, was in zip(processes, before, strict=True)
    ]
    each = zip(shares, map(memory_mib, processes), strict=True)
    return ", ".join(f"{share:.1f} % of a core and {mib} MiB" for share, mib in each)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--connections", type=int, default=2000)
    parser.add_argument("--in-flight", type=int, default=1)
    parser.add_argument("--set", action="append", default=[], help="a setting of both")
    arguments = parser.parse_args()
    settings = ["jobs.enabled=false", *arguments.set]
    with tempfile.TemporaryDirectory() as folder:
        etcd, minio = EtcdServer(Path(folder) / "etcd"), MinioServer(Path(folder) / "minio")
        for server in (etcd, minio):
            server.start()
        one = FrazilCluster(Path(folder) / "one", etcd, minio, *settings, agents=1)
        two = FrazilCluster(
            Path(folder) / "two", etcd, minio, *settings, STEP, "workers=2", agents=1
        )
        with one, two:
            agents = (one.agents[0], two.agents[0])
            many = {}
            for agent in agents:
                load.create_topic(agent.port, TOPIC, PARTITIONS)
                print("idle:", told(agent), flush=True)
                many[agent] = Clients(
                    agent.port, connections=arguments.connections, in_flight=arguments.in_flight
                )
                measure(agent, many[agent], arguments.seconds)
            pairs = []
            for number in range(arguments.pairs):
                turns = agents if number % 2 == 0 else agents[::-1]
                found = {agent: measure(agent, many[agent], arguments.seconds) for agent in turns}
                pairs.append((found[agents[0]], found[agents[1]]))
            for agent in agents:
                many[agent].close()
                print("after:", ", ".join(f"{memory_mib(pid)} MiB" for pid in pids(agent)))
        for server in (minio, etcd):
            server.stop()
    for title, slices in zip(("one agent", "two workers"), zip(*pairs, strict=True), strict=True):
        us = statistics.median(each.us for each in slices)
        rate = statistics.median(each.requests / each.seconds for each in slices)
        each = statistics.median(each.requests / each.chunks for each in slices)
        print(
            f"{title}: {us:.0f} us of CPU a request, {rate:.0f} requests a second,"
            f" {each:.0f} in a chunk"
        )
    ratios = [first.us / second.us for first, second in pairs]
    low, high = interval(ratios)
    print(
        f"requests per CPU second, two workers by one agent: {statistics.median(ratios):.3f}"
        f" ({low:.3f} to {high:.3f})"
    )


if __name__ == "__main__":
    main()

"""What rights and encryption cost: `python -m tests.bench.bench_rights`.

`cpu`: an agent's CPU for produce and fetch with an authorizer and ACLs, and without, two agents side by
side that take slices in turn. `throughput`: SASL_SSL against PLAINTEXT, ours and Apache Kafka's, in one
run. `reconnect`: many clients that lose their connections at once, and log in again over TLS by SCRAM.

    python -m tests.bench.bench_rights [--only cpu throughput reconnect] [--pairs 20] [--write]
"""

import argparse
import asyncio
import contextlib
import functools
import os
import random
import re
import resource
import ssl
import statistics
import struct
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import uvloop
from confluent_kafka.admin import AclOperation, AdminClient, ResourcePatternType

from broker.sasl import client as sasl_client
from tests.bench import load
from tests.bench.cpu import cpu_seconds
from tests.bench.pairs import (
    PRODUCE_BYTES_MAX,
    QUIET,
    WARM_BYTES,
    Case,
    fetch,
    pairs_of_slices,
    produce,
)
from tests.bench.report import machine, write_section
from tests.parts import install
from tests.parts.process import free_port
from tests.parts.secured import (
    AUTHORIZER,
    SCRAM_512,
    TOPIC,
    Identity,
    Security,
    give,
    make_users,
    right,
)
from tests.parts.servers import FrazilDev, KafkaServer

ACLS = 1_000
"""Of others, beside those that the client has."""
CONNECTED_AT_ONCE = 50
"""While nothing is measured."""
BACKOFF_S, BACKOFF_MAX_S = 0.05, 1.0
"""Kafka's reconnect.backoff.ms and reconnect.backoff.max.ms."""
PATIENCE_S = 120.0
USER = "swarm"


THROUGHPUT_CASES = (Case(1 << 20, 4), Case(16 << 10, 64))


# CPU with ACLs.


def _with_acls(agent: FrazilDev) -> None:
    """Rights of many others, and those that the client has by prefix."""
    admin = AdminClient({"bootstrap.servers": agent.bootstrap})
    anonymous = "ANONYMOUS"
    rights = [
        right(f"other{number}", TOPIC, f"topic{number}", AclOperation.READ)
        for number in range(ACLS)
    ]
    rights += [
        right(anonymous, TOPIC, "rights-", operation, pattern=ResourcePatternType.PREFIXED)
        for operation in (AclOperation.READ, AclOperation.WRITE)
    ]
    for first in range(0, len(rights), 200):
        give(admin, rights[first : first + 200])


@contextlib.contextmanager
def _two_agents(folder: Path) -> Iterator[tuple[FrazilDev, FrazilDev]]:
    """With rights, and without."""
    guarded = (f"authorizer.class.name={AUTHORIZER}", "allow.everyone.if.no.acl.found=true")
    settings = [word for setting in guarded for word in ("--set", setting)]
    with (
        FrazilDev(folder / "with", *QUIET, *settings) as guarded_agent,
        FrazilDev(folder / "without", *QUIET) as open_agent,
    ):
        yield guarded_agent, open_agent


def measure_cpu(folder: Path, *, pairs: int, seconds: float) -> list[str]:
    """Rows of the table."""
    with _two_agents(folder) as agents:
        return pairs_of_slices(
            agents, prepare=lambda: _with_acls(agents[0]), pairs=pairs, seconds=seconds
        )


# Two brokers, each with a listener of its kind.


class Broker(NamedTuple):
    name: str
    pid: int
    plain: int
    secured: int

    def port(self, who: Identity | None) -> int:
        return self.plain if who is None else self.secured


@contextlib.contextmanager
def _both(folder: Path, security: Security) -> Iterator[tuple[Broker, Broker]]:
    """Frazil and Kafka with a PLAINTEXT and a SASL_SSL listener, and a user."""
    plain, secured = free_port(), free_port()
    here = f"listeners=PLAINTEXT://127.0.0.1:{plain},SASL_SSL://127.0.0.1:{secured}"
    settings = [word for each in (here, *security.frazil) for word in ("--set", each)]
    frazil = FrazilDev(folder / "frazil", *QUIET, *settings)
    kafka = KafkaServer(folder / "kafka", java=install.measured_jvm("1g"))
    kafka_secured = _secure(kafka, security)
    try:
        frazil.start()
        kafka.start()
        brokers = (
            Broker("Frazil", frazil.child.pid, plain, secured),
            Broker("Kafka", kafka.child.pid, kafka.port, kafka_secured),
        )
        for broker in brokers:
            admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{broker.plain}"})
            make_users(admin, [security.who(USER)])
        time.sleep(2)  # Kafka's broker hears of users a moment later than its controller.
        yield brokers
    finally:
        frazil.stop()
        kafka.stop()


def _secure(kafka: KafkaServer, security: Security) -> int:
    """Add a listener; its port."""
    port = free_port()
    file = kafka.folder / "server.properties"
    text = file.read_text()
    found = re.search(r"CONTROLLER://127\.0\.0\.1:(\d+)", text)
    assert found is not None
    ours = f"PLAINTEXT://127.0.0.1:{kafka.port},SASL_SSL://127.0.0.1:{port}"
    module = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    lines = [
        text,
        f"listeners={ours},CONTROLLER://127.0.0.1:{found[1]}",
        f"advertised.listeners={ours}",
        "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL",
        "inter.broker.listener.name=PLAINTEXT",
        *security.tls,
        f"sasl.enabled.mechanisms={SCRAM_512}",
        f"listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config={module}",
    ]
    file.write_text("\n".join(lines))
    return port


def measure_throughput(
    brokers: tuple[Broker, Broker], who: Identity, *, turns: int, seconds: float
) -> list[str]:
    """Rows of the table."""
    rows = []
    for case in THROUGHPUT_CASES:
        for broker in brokers:
            load.create_topic(broker.plain, case.topic, case.partitions)
            for each in (None, who):
                produce(broker.port(each), case, seconds=seconds, bytes_max=WARM_BYTES, who=each)
                fetch(broker.port(each), case, each)
        found: dict[tuple[str, str, bool], list[float]] = {}
        for turn in range(turns):
            kinds = (None, who) if turn % 2 == 0 else (who, None)
            for broker in brokers:
                for each in kinds:
                    port = broker.port(each)
                    written = produce(
                        port, case, seconds=seconds, bytes_max=PRODUCE_BYTES_MAX, who=each
                    )
                    read = fetch(port, case, each)
                    for name, measured in (("produce", written), ("fetch newest", read)):
                        rate = measured.bytes / 1e6 / measured.seconds
                        found.setdefault((name, broker.name, each is not None), []).append(rate)
        for name in ("produce", "fetch newest"):
            rows.append(_throughput_row(name, case, found))
            print(rows[-1], flush=True)
    return rows


def _throughput_row(name: str, case: Case, found: dict[tuple[str, str, bool], list[float]]) -> str:
    cells, shares = [], []
    for broker in ("Frazil", "Kafka"):
        plain, secured = found[name, broker, False], found[name, broker, True]
        shares.append(statistics.median(map(_share, secured, plain)))
        cells.append(f"{statistics.median(secured):.0f} of {statistics.median(plain):.0f}")
        cells.append(f"{shares[-1]:.2f}")
    return f"| {name}, {case.title} | {' | '.join(cells)} | **{shares[0] / shares[1]:.2f}** |"


def _share(secured: float, plain: float) -> float:
    return secured / plain


# Clients that come back all at once.


class Return(NamedTuple):
    """What one turn saw."""

    seconds: list[float]
    """Until each client was served, sorted."""
    retries: int
    cpu_seconds: float
    """Of the broker."""


async def _ask(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, api: tuple[int, int], body: bytes
) -> bytes:
    frame = struct.pack(">hhih", *api, 1, -1) + body
    writer.write(struct.pack(">i", len(frame)) + frame)
    (length,) = struct.unpack(">i", await reader.readexactly(4))
    return (await reader.readexactly(length))[4:]


async def _log_in(port: int, who: Identity, context: ssl.SSLContext) -> asyncio.StreamWriter:
    """A connection that has had an answer to Metadata. Raises OSError, EOFError."""
    reader, writer = await asyncio.open_connection(
        "127.0.0.1",
        port,
        ssl=context,
        server_hostname="localhost",
        ssl_handshake_timeout=PATIENCE_S,
    )
    try:
        name = who.mechanism.encode()
        await _ask(reader, writer, (17, 1), struct.pack(">h", len(name)) + name)
        login = sasl_client.Login(who.mechanism, who.user, who.password)
        exchange = sasl_client.exchange_of(login, nonce=random.randbytes(16).hex())
        message: bytes | None = exchange.begin()
        while message is not None:
            body = struct.pack(">i", len(message)) + message
            answer = await _ask(reader, writer, (36, 0), body)
            (error,) = struct.unpack_from(">h", answer)
            assert error == 0, f"the login was refused: {error}"
            (length,) = struct.unpack_from(">i", answer, 4)
            message = exchange.respond(answer[8 : 8 + length])
        await _ask(reader, writer, (3, 1), struct.pack(">i", 0))
    except BaseException:
        writer.transport.abort()
        raise
    return writer


async def _until_served(
    port: int, who: Identity, context: ssl.SSLContext
) -> tuple[asyncio.StreamWriter, int]:
    """The connection, and how often it had to be tried again."""
    backoff_s = BACKOFF_S
    for retries in range(10_000):
        try:
            return await _log_in(port, who, context), retries
        except (OSError, EOFError):
            await asyncio.sleep(backoff_s * random.uniform(0.8, 1.2))
            backoff_s = min(2 * backoff_s, BACKOFF_MAX_S)
    raise AssertionError("a client is never served")


async def _come_back(broker: Broker, who: Identity, clients: int) -> Return:
    """All are connected, lose their connections, and come back."""
    context = ssl.create_default_context(cafile=str(who.authority))
    some = asyncio.Semaphore(CONNECTED_AT_ONCE)

    async def begin() -> asyncio.StreamWriter:
        async with some:
            return (await _until_served(broker.secured, who, context))[0]

    async with asyncio.timeout(PATIENCE_S):
        writers = await asyncio.gather(*[begin() for _ in range(clients)])
    for writer in writers:
        writer.transport.abort()
    began_s, before = time.perf_counter(), cpu_seconds(broker.pid)

    async def again() -> tuple[float, int]:
        writer, retries = await _until_served(broker.secured, who, context)
        served_s = time.perf_counter() - began_s
        back.append(writer)
        return served_s, retries

    back: list[asyncio.StreamWriter] = []
    async with asyncio.timeout(PATIENCE_S):
        found = await asyncio.gather(*[again() for _ in range(clients)])
    used = cpu_seconds(broker.pid) - before
    for writer in back:
        writer.transport.abort()
    await asyncio.sleep(1)
    return Return(sorted(each for each, _ in found), sum(each for _, each in found), used)


def measure_reconnect(
    brokers: tuple[Broker, Broker], who: Identity, *, clients: int, turns: int
) -> list[str]:
    """Rows of the table."""
    # The client's iterations are not what is measured.
    sasl_client.salted_password = functools.cache(sasl_client.salted_password)
    found: dict[str, list[Return]] = {broker.name: [] for broker in brokers}
    for turn in range(turns):
        for broker in brokers if turn % 2 == 0 else brokers[::-1]:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                found[broker.name].append(runner.run(_come_back(broker, who, clients)))
    rows = []
    for name, returns in found.items():
        last = statistics.median(each.seconds[-1] for each in returns)
        middle = statistics.median(each.seconds[len(each.seconds) // 2] for each in returns)
        used = statistics.median(each.cpu_seconds for each in returns)
        retries = statistics.median(each.retries for each in returns)
        rows.append(f"| {name} | {middle:.2f} | **{last:.2f}** | {used:.2f} | {retries:.0f} |")
        print(rows[-1], flush=True)
    return rows


# The report.

HEADS = {
    "cpu": f"""\
*ACLs*: two agents side by side take slices in turn; one has an authorizer, {ACLS:,} ACLs of others, and the
client's rights by prefix. The bar: the upper end of the interval at most 1.03.

| case | CPU s per GB, with / without | median of the ratios | 95 % interval |
|---|---|---|---|
""",
    "throughput": """\
*SASL_SSL beside PLAINTEXT*: TLS 1.3 and SCRAM-SHA-512; MB/s, and the median of SASL_SSL ÷ PLAINTEXT in
turns. The bar: ours at least 0.8 of Kafka's.

| case | Frazil, MB/s | SSL ÷ plain | Kafka, MB/s | SSL ÷ plain | ours ÷ Kafka's |
|---|---|---|---|---|---|
""",
    "reconnect": """\
*{clients:,} clients that come back at once* over TLS, with SCRAM-SHA-512, from one process, until each has an
answer to Metadata; medians of turns.

| broker | half are served, s | all are served, s | broker's CPU s | tries that failed |
|---|---|---|---|---|
""",
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.bench_rights")
    parser.add_argument("--only", nargs="+", choices=list(HEADS), default=list(HEADS))
    parser.add_argument("--pairs", type=int, default=20, help="of slices, with ACLs and without")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0, help="of one slice, at most")
    parser.add_argument("--clients", type=int, default=1_000)
    parser.add_argument("--write", action="store_true", help="write the section of BENCHMARKS.md")
    options = parser.parse_args()
    _, files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    load_before = os.getloadavg()[0]
    tables: dict[str, list[str]] = {}
    with tempfile.TemporaryDirectory(prefix="frazil-bench-") as name:
        folder = Path(name)
        if "cpu" in options.only:
            tables["cpu"] = measure_cpu(folder, pairs=options.pairs, seconds=options.seconds)
        if {"throughput", "reconnect"} & {*options.only}:
            security = Security(folder / "security")
            who = security.who(USER)
            with _both(folder, security) as brokers:
                if "throughput" in options.only:
                    tables["throughput"] = measure_throughput(
                        brokers, who, turns=options.turns, seconds=options.seconds
                    )
                if "reconnect" in options.only:
                    tables["reconnect"] = measure_reconnect(
                        brokers, who, clients=options.clients, turns=options.turns
                    )
    parts = [
        "`python -m tests.bench.bench_rights`: one `frazil dev` beside one Apache Kafka 4.3.1 node, the same",
        f"raw client for both (`tests/bench/load.py`); {options.pairs} pairs, {options.turns} turns.",
        "",
        f"{machine()} · load average {load_before:.1f} before",
    ]
    for name, rows in tables.items():
        parts += ["", HEADS[name].replace("{clients:,}", f"{options.clients:,}") + "\n".join(rows)]
    if options.write:
        write_section("Rights", "\n".join(parts))
    else:
        print("\n".join(parts))


if __name__ == "__main__":
    main()

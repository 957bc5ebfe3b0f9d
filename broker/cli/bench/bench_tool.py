"""`frazil bench`: first as fast as it goes, then a tenth of that, for what a client waits when nothing queues.

Producers and consumers are processes of this machine (`worker`), so what they take of it is told beside what they
saw. The topic is one of its own, deleted afterwards, unless one is named.
"""

import asyncio
import contextlib
import json
import multiprocessing
import os
import secrets
import sys
from argparse import Namespace
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any, Final

from broker.cli.arguments import client_of
from broker.cli.bench import worker
from broker.cli.bench.histogram import Histogram
from broker.cli.bench.worker import Counted, Job, Load, Seat
from broker.cli.command_result import CommandResult, ToolError
from broker.cli.kafka_client import KafkaClient
from broker.cli.topics import topic_tool
from broker.cli.topics.topic_tool import NewTopic
from broker.reports import bench_report
from broker.reports.bench_report import BenchView, RunView, TimesView

PACED: Final = 0.1
"""Of what went at most."""
PATIENCE_S: Final = 180.0
"""For what processes need besides the time that is measured."""


def bench(options: Namespace) -> CommandResult:
    """Raises ToolError, FailedError, ClientError, KafkaError."""
    load = Load(
        options.topic or f"frazil-bench-{secrets.token_hex(4)}",
        options.seconds,
        options.bytes,
        options.acks,
        options.compression,
        0.0,
        options.producers,
        options.consumers,
    )
    with _topic(options, load.topic):
        most = _run(options, load)
        rate = options.rate or max(most.produced * PACED, 1.0)
        paced = _run(options, load._replace(rate=rate / load.producers))
    view = BenchView(
        partitions=options.partitions if options.topic is None else None,
        producers=load.producers,
        consumers=load.consumers,
        bytes=load.bytes,
        acks=load.acks,
        compression=load.compression,
        seconds=load.seconds,
        most=most,
        paced_rate=rate,
        paced=paced,
        cores=os.cpu_count() or 1,
    )
    lines = (
        [json.dumps(bench_report.bench_json(view))] if options.json else bench_report.lines(view)
    )
    failed = most.failed + paced.failed
    failures = [f"{failed:,} records were not acknowledged"] if failed else []
    return CommandResult(lines, failures=failures)


@contextlib.contextmanager
def _topic(options: Namespace, name: str) -> Iterator[None]:
    """It is there. Raises ToolError."""
    if options.topic is not None:
        yield
        return

    async def create(client: KafkaClient) -> CommandResult:
        like = NewTopic(options.partitions)
        return await topic_tool.create(
            client, [name], like, if_not_exists=False, dry_run=False, as_json=False
        )

    async def delete(client: KafkaClient) -> CommandResult:
        return await topic_tool.delete(client, [name], if_exists=True)

    _ask(options, create)
    try:
        yield
    finally:
        _ask(options, delete)


def _ask(options: Namespace, command: Any) -> None:
    """Raises ToolError when it fails."""

    async def work() -> CommandResult:
        async with client_of(options) as client:
            said: CommandResult = await command(client)
            return said

    said = asyncio.run(work())
    if said.failures:
        raise ToolError("; ".join(said.failures))


def _run(options: Namespace, load: Load) -> RunView:
    """Raises ToolError."""
    if sys.stderr.isatty():
        pace = f"{load.rate * load.producers:,.0f} records/s" if load.rate else "as fast as it goes"
        sys.stderr.write(f"measuring for {load.seconds:g} s, {pace} ...\n")
    jobs: list[tuple[Job, int]] = [(worker.produce, number) for number in range(load.producers)]
    jobs += [(worker.consume, number) for number in range(load.consumers)]
    found = _work(options, load, jobs)
    if problems := sorted({one.error for one in found if one.error}):
        raise ToolError("; ".join(problems))
    sent, read = found[: load.producers], found[load.producers :]
    return RunView(
        produced=sum(one.records / one.seconds for one in sent),
        consumed=sum(one.records / one.seconds for one in read) if read else None,
        failed=sum(one.failed for one in sent),
        acknowledged=_times(sent),
        read=_times(read) if read else None,
        cpu_cores=sum(one.cpu_s for one in found) / load.seconds,
    )


def _times(found: list[Counted]) -> TimesView:
    times = Histogram.merged(one.times for one in found)
    percentiles = {part: times.percentile(part) for part in bench_report.PARTS}
    return TimesView(percentiles, times.within(bench_report.ENDS_US), times.total)


def _work(options: Namespace, load: Load, jobs: list[tuple[Job, int]]) -> list[Counted]:
    """What each process saw, producers first. Raises ToolError."""
    spawn = multiprocessing.get_context("spawn")
    barrier = spawn.Barrier(len(jobs))
    written = spawn.Event()
    # Functions of the parser are not sent.
    plain = Namespace(**{name: value for name, value in vars(options).items() if name != "run"})
    processes = []
    ends: list[Connection] = []
    try:
        for job, number in jobs:
            mine, theirs = spawn.Pipe(duplex=False)
            process = spawn.Process(
                target=worker.work,
                args=(job, plain, load, Seat(number, barrier, written), theirs),
                daemon=True,
            )
            process.start()
            theirs.close()
            processes.append(process)
            ends.append(mine)
        patience_s = load.seconds + PATIENCE_S
        sent = [_received(end, patience_s) for end in ends[: load.producers]]
        written.set()
        return sent + [_received(end, patience_s) for end in ends[load.producers :]]
    finally:
        for process in processes:
            process.join(1)
            process.terminate()


def _received(end: Connection, patience_s: float) -> Counted:
    """Raises ToolError."""
    try:
        if end.poll(patience_s):
            counted: Counted = end.recv()
            return counted
    except EOFError as error:
        raise ToolError("a process of it ended without a word") from error
    raise ToolError(f"a process of it did not end within {patience_s:.0f} s")

"""The arguments of `frazil bench`.

What a command needs is imported when it is called.
"""

import argparse
from typing import Any, Final

from broker.cli.arguments import INT_MAX, on_agent, whole
from broker.cli.completion import completes_topics
from broker.cli.records.arguments import COMPRESSIONS, add_client

PROCESSES_MAX: Final = 64
SECONDS_MAX: Final = 3600
BYTES_MAX: Final = 10_000_000
BYTES_MIN: Final = 8
"""A record says when it was sent."""


def add_bench(commands: Any) -> None:
    """`frazil bench`."""
    text = "what a cluster takes and gives: records, bytes, and how long they take, in a minute"
    parser = commands.add_parser("bench", help=text, description=text)
    parser.set_defaults(run=_bench, name="frazil bench")
    completes_topics(
        parser.add_argument("--topic", metavar="TOPIC", help="(one of its own, deleted afterwards)")
    )
    for flag, default, most, text in (
        ("--partitions", 6, INT_MAX, "of its own topic"),
        ("--producers", 1, PROCESSES_MAX, "processes"),
        ("--seconds", 20, SECONDS_MAX, "measured, twice"),
        ("--rate", 0, INT_MAX, "records a second of the second run (a tenth of the first one's)"),
    ):
        parser.add_argument(
            flag,
            type=whole(0 if default == 0 else 1, most),
            default=default,
            metavar="N",
            help=text if default == 0 else f"{text} ({default})",
        )
    parser.add_argument(
        "--consumers", type=whole(0, PROCESSES_MAX), default=1, metavar="N", help="processes (1)"
    )
    parser.add_argument(
        "--bytes",
        type=whole(BYTES_MIN, BYTES_MAX),
        default=1000,
        metavar="N",
        help="of a value (1000)",
    )
    parser.add_argument("--acks", choices=("all", "1", "0"), default="all", help="(all)")
    parser.add_argument("--compression", "-z", choices=COMPRESSIONS, default="none", help="(none)")
    shape = (
        "{partitions, producers, consumers, bytes, acks, compression, seconds, most, paced_rate, paced, cores}; most"
        " and paced: {produced, consumed, failed, acknowledged, read, cpu_cores}, records a second and ms"
    )
    parser.add_argument("--json", action="store_true", help=shape)
    add_client(parser)


def _bench(options: argparse.Namespace) -> int:
    from broker.cli.arguments import FailedError
    from broker.cli.bench.bench_tool import bench
    from broker.cli.kafka_client import ClientError
    from protocol.errors import KafkaError

    try:
        return on_agent(options, lambda: bench(options))
    except (ClientError, KafkaError) as error:
        raise FailedError(str(error)) from error

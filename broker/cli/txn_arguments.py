"""The arguments of `frazil txn` and `frazil feature`; the rest of the command line is `broker.cli.main`.

What a command needs is imported when it is called.
"""

import argparse
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from broker.config.values import whole_number

if TYPE_CHECKING:
    from broker.cli.command_result import CommandResult
    from broker.cli.feature_tool import Level
    from broker.cli.kafka_client import KafkaClient

OnCluster = Callable[
    [argparse.Namespace, Callable[["KafkaClient"], Awaitable["CommandResult"]]], int
]
"""Runs a command of a tool, prints what it says, and gives the exit code."""
Add = Callable[[str, Callable[[argparse.Namespace], int], str], argparse.ArgumentParser]
"""Adds a command of name, function and text, with what all that ask a cluster have."""

LONG_MAX: Final = (1 << 63) - 1
INT_MAX: Final = (1 << 31) - 1
HANGING_MINUTES: Final = 15
"""The longest that a transaction may be open, by Kafka's default (`transaction.max.timeout.ms`)."""


def add_txn(add: Add, on_cluster: OnCluster, duration_ms: Callable[[str], int]) -> None:
    """The commands of `frazil txn`; flags are those of kafka-transactions.sh where it has them."""
    listing = add("list", lambda options: _list(options, on_cluster), "transactional ids")
    listing.add_argument("--state", action="append", default=[], type=_state, metavar="STATE")
    listing.add_argument("--producer-id", action="append", default=[], type=_long, metavar="ID")
    listing.add_argument(
        "--longer-than", type=duration_ms, metavar="PnDTnHnMnS", help="open for longer than that"
    )
    listing.add_argument("--pattern", metavar="RE2", help="ids that are wholly like that")

    describing = add(
        "describe", lambda options: _describe(options, on_cluster), "one id, and what takes part"
    )
    describing.add_argument("id", metavar="ID")
    describing.add_argument("--json", action="store_true", help="as one JSON object")

    aborting = add(
        "abort", lambda options: _abort(options, on_cluster), "give an open transaction up"
    )
    aborting.add_argument("id", metavar="ID", nargs="?")
    aborting.add_argument("--topic", metavar="TOPIC", help="without an ID: where it is open,")
    aborting.add_argument("--partition", type=_int, metavar="N", help="and in which partition,")
    aborting.add_argument("--start-offset", type=_long, metavar="N", help="and where it begins,")
    aborting.add_argument("--producer-id", type=_long, metavar="N", help="or whose it is")

    finding = add(
        "find-hanging",
        lambda options: _find_hanging(options, on_cluster),
        "transactions that are open in a partition and that no coordinator knows of",
    )
    finding.add_argument("--topic", action="append", metavar="TOPIC", help="(all topics)")
    finding.add_argument(
        "--max-transaction-timeout",
        type=_int,
        default=HANGING_MINUTES,
        metavar="MINUTES",
        help=f"leave alone what wrote since ({HANGING_MINUTES})",
    )


def add_feature(add: Add, on_cluster: OnCluster) -> None:
    """The commands of `frazil feature`; flags are those of kafka-features.sh."""
    add("describe", lambda options: _features(options, on_cluster), "features and their levels")
    for name, text in (("upgrade", "raise levels"), ("downgrade", "lower levels")):
        parser = add(name, lambda options: _change(options, on_cluster), text)
        parser.add_argument(
            "--feature",
            action="append",
            required=True,
            type=_level,
            metavar="NAME=LEVEL",
            help="may be repeated",
        )
        parser.add_argument("--dry-run", action="store_true", help="only say whether it could be")
        if name == "downgrade":
            parser.add_argument("--unsafe", action="store_true", help="also when it loses data")


def _list(options: argparse.Namespace, on_cluster: OnCluster) -> int:
    from broker.cli import txn_tool

    wanted = txn_tool.TransactionFilter(
        states=tuple(options.state),
        producer_ids=tuple(options.producer_id),
        longer_than_ms=options.longer_than,
        pattern=options.pattern,
    )
    return on_cluster(options, lambda client: txn_tool.list_transactions(client, wanted))


def _describe(options: argparse.Namespace, on_cluster: OnCluster) -> int:
    from broker.cli import txn_tool
    from broker.environment import now_ms

    return on_cluster(
        options,
        lambda client: txn_tool.describe(client, options.id, now_ms=now_ms(), as_json=options.json),
    )


def _abort(options: argparse.Namespace, on_cluster: OnCluster) -> int:
    from broker.cli import txn_tool

    where = (options.topic, options.partition)
    which = (options.start_offset, options.producer_id)
    if options.id is not None:
        if (*where, *which) != (None,) * 4:
            raise ValueError("either an ID, or a partition: not both")
        return on_cluster(options, lambda client: txn_tool.abort(client, options.id))
    if None in where or which.count(None) != 1:
        raise ValueError(
            "which one? an ID, or --topic, --partition, and --start-offset or --producer-id"
        )
    return on_cluster(
        options,
        lambda client: txn_tool.abort_in(
            client, where, start_offset=options.start_offset, producer_id=options.producer_id
        ),
    )


def _find_hanging(options: argparse.Namespace, on_cluster: OnCluster) -> int:
    from broker.cli import txn_tool
    from broker.environment import now_ms

    return on_cluster(
        options,
        lambda client: txn_tool.find_hanging(
            client,
            options.topic,
            longer_than_ms=options.max_transaction_timeout * 60_000,
            now_ms=now_ms(),
        ),
    )


def _features(options: argparse.Namespace, on_cluster: OnCluster) -> int:
    from broker.cli import feature_tool

    return on_cluster(options, feature_tool.describe)


def _change(options: argparse.Namespace, on_cluster: OnCluster) -> int:
    from broker.cli import feature_tool

    kind = feature_tool.UPGRADE
    if hasattr(options, "unsafe"):
        kind = feature_tool.UNSAFE_DOWNGRADE if options.unsafe else feature_tool.SAFE_DOWNGRADE
    return on_cluster(
        options,
        lambda client: feature_tool.change(
            client, options.feature, kind=kind, dry_run=options.dry_run
        ),
    )


def _checked(read: Callable[[str], Any], text: str) -> Any:
    """What `read` makes of an argument; its sentence when it is none."""
    try:
        return read(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _long(text: str) -> int:
    number: int = _checked(lambda text: whole_number(text, minimum=0, maximum=LONG_MAX), text)
    return number


def _int(text: str) -> int:
    number: int = _checked(lambda text: whole_number(text, minimum=0, maximum=INT_MAX), text)
    return number


def _level(text: str) -> "Level":
    from broker.cli.feature_tool import level

    found: Level = _checked(level, text)
    return found


def _state(text: str) -> str:
    """A transaction's state by its name, whatever the case."""
    from broker.reports.txn_report import STATES

    for state in STATES:
        if state.lower() == text.lower():
            return state
    raise argparse.ArgumentTypeError(f'"{text}" is not a state ({", ".join(STATES)})')
